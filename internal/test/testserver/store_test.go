package testserver_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/test/testserver"
)

// store writes and reads keys as a client, with a minimal part of the protocols.
type store interface {
	put(ctx context.Context, c *testserver.Cluster, m *testserver.Member, key, value string) error
	// get returns "" if the key is absent. Its reads are linearizable.
	get(ctx context.Context, c *testserver.Cluster, m *testserver.Member, key string) (string, error)
}

// etcdStore uses etcd's JSON interface. It authenticates if there is a password.
type etcdStore struct{ password string }

func (s etcdStore) put(ctx context.Context, c *testserver.Cluster, m *testserver.Member, key, value string) error {
	return s.call(ctx, c, m, "kv/put", map[string][]byte{"key": []byte(key), "value": []byte(value)}, nil)
}

func (s etcdStore) get(ctx context.Context, c *testserver.Cluster, m *testserver.Member, key string) (string, error) {
	var answer struct {
		Kvs []struct{ Value []byte }
	}
	err := s.call(ctx, c, m, "kv/range", map[string][]byte{"key": []byte(key)}, &answer)
	if err != nil || len(answer.Kvs) == 0 {
		return "", err
	}
	return string(answer.Kvs[0].Value), nil
}

func (s etcdStore) call(ctx context.Context, c *testserver.Cluster, m *testserver.Member, path string, in, out any) error {
	token := ""
	if s.password != "" {
		var granted struct{ Token string }
		credentials := map[string]string{"name": "root", "password": s.password}
		if err := post(ctx, c, m, "", "auth/authenticate", credentials, &granted); err != nil {
			return err
		}
		token = granted.Token
	}
	return post(ctx, c, m, token, path, in, out)
}

func post(ctx context.Context, c *testserver.Cluster, m *testserver.Member, token, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	scheme := "http"
	if c.TLS() != nil {
		scheme = "https"
	}
	url := scheme + "://" + m.Addr() + "/v3/" + path
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", token)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: c.TLS()}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, answer)
	}
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(answer, out)
}

// zookeeperStore opens a session for each call and authenticates as super if it has the
// password.
type zookeeperStore struct {
	super string // password
	acl   string // scheme:id with all permissions on created nodes; world:anyone if ""
}

// Request types and errors.
const (
	opCreate = 1
	opGet    = 4
	opSync   = 9
	opAuth   = 100

	errNoNode     = -101
	errNodeExists = -110
)

func (s zookeeperStore) put(ctx context.Context, c *testserver.Cluster, m *testserver.Member, key, value string) error {
	conn, err := s.open(ctx, c, m)
	if err != nil {
		return err
	}
	defer conn.Close()
	scheme, id, ok := strings.Cut(s.acl, ":")
	if !ok {
		scheme, id = "world", "anyone"
	}
	_, err = conn.request(opCreate, "/"+key, []byte(value), int32(1), int32(31), scheme, id, int32(0))
	if err == zkError(errNodeExists) {
		return nil // an attempt whose reply came too late has created it
	}
	return err
}

func (s zookeeperStore) get(ctx context.Context, c *testserver.Cluster, m *testserver.Member, key string) (string, error) {
	conn, err := s.open(ctx, c, m)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := conn.request(opSync, "/"); err != nil {
		return "", err
	}
	answer, err := conn.request(opGet, "/"+key, false)
	if err == zkError(errNoNode) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	n := binary.BigEndian.Uint32(answer)
	return string(answer[4:][:n]), nil
}

type zkConn struct{ net.Conn }

type zkError int32

func (e zkError) Error() string { return fmt.Sprintf("ZooKeeper error %d", int32(e)) }

func (s zookeeperStore) open(ctx context.Context, c *testserver.Cluster, m *testserver.Member) (*zkConn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", m.Addr())
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	if config := c.TLS(); config != nil {
		config.ServerName = "localhost"
		conn = tls.Client(conn, config)
	}
	z := &zkConn{conn}
	// version, last transaction, timeout in ms, session, password
	_, err = z.exchange(int32(0), int64(0), int32(5000), int64(0), make([]byte, 16))
	if err == nil && s.super != "" {
		_, err = z.request(opAuth, int32(0), "digest", []byte("super:"+s.super))
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return z, nil
}

// request sends a request and returns the body of the reply.
func (z *zkConn) request(op int32, fields ...any) ([]byte, error) {
	xid := int32(1)
	if op == opAuth {
		xid = -4
	}
	answer, err := z.exchange(append([]any{xid, op}, fields...)...)
	if err != nil {
		return nil, err
	}
	// xid int32, transaction int64, error int32
	const head = 4 + 8 + 4
	if len(answer) < head {
		return nil, io.ErrUnexpectedEOF
	}
	if code := int32(binary.BigEndian.Uint32(answer[head-4:])); code != 0 {
		return nil, zkError(code)
	}
	return answer[head:], nil
}

func (z *zkConn) exchange(fields ...any) ([]byte, error) {
	var out bytes.Buffer
	for _, f := range fields {
		if s, ok := f.(string); ok {
			f = []byte(s)
		}
		if b, ok := f.([]byte); ok {
			_ = binary.Write(&out, binary.BigEndian, int32(len(b)))
		}
		_ = binary.Write(&out, binary.BigEndian, f)
	}
	packet := binary.BigEndian.AppendUint32(nil, uint32(out.Len()))
	if _, err := z.Write(append(packet, out.Bytes()...)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(z, size[:]); err != nil {
		return nil, err
	}
	in := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(z, in)
	return in, err
}

// withCallTimeout bounds one call.
func withCallTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, shortly)
}

// shortly is long enough for a call on a machine that is not overloaded.
const shortly = 500 * time.Millisecond
