package zookeeper

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/registry"
)

// listen passes each connection to serve until the test ends.
func listen(t *testing.T, serve func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer context.AfterFunc(ctx, func() { conn.Close() })()
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		cancel()
		wg.Wait()
	})
	return l.Addr().String()
}

// oldServer grants sessions and reports every znode as missing.
func oldServer(conn net.Conn) {
	frame := func() ([]byte, error) {
		var size [4]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return nil, err
		}
		b := make([]byte, binary.BigEndian.Uint32(size[:]))
		_, err := io.ReadFull(conn, b)
		return b, err
	}
	if _, err := frame(); err != nil {
		return
	}
	greeting := binary.BigEndian.AppendUint32(nil, 36)
	greeting = binary.BigEndian.AppendUint32(greeting, 0)
	greeting = binary.BigEndian.AppendUint32(greeting, 4000)
	greeting = binary.BigEndian.AppendUint64(greeting, 1)
	greeting = binary.BigEndian.AppendUint32(greeting, 16)
	conn.Write(append(greeting, make([]byte, 16)...))
	for {
		request, err := frame()
		if err != nil {
			return
		}
		reply := binary.BigEndian.AppendUint32(nil, 16)
		reply = append(reply, request[:4]...)
		reply = binary.BigEndian.AppendUint64(reply, 1)
		noNode := int32(-101)
		conn.Write(binary.BigEndian.AppendUint32(reply, uint32(noNode)))
	}
}

func TestOpen(t *testing.T) {
	fails := func(t *testing.T, within time.Duration, o Options) error {
		t.Helper()
		start := time.Now()
		c, err := Open(t.Context(), o)
		require.Error(t, err)
		require.Nil(t, c)
		require.Less(t, time.Since(start), within)
		return err
	}
	const soon = 10 * time.Second // for a very busy machine
	t.Run("fails at once if the connection is refused", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		addr := l.Addr().String()
		require.NoError(t, l.Close())
		err = fails(t, soon, Options{Endpoints: []string{addr}})
		require.ErrorIs(t, err, registry.ErrUnavailable)
		require.ErrorContains(t, err, addr)
		require.ErrorContains(t, err, "connection refused")
	})
	t.Run("fails at once for an unknown host", func(t *testing.T) {
		err := fails(t, soon, Options{
			Endpoints: []string{"unknown.invalid:2181"},
			LookupHost: func(context.Context, string) ([]string, error) {
				return nil, &net.DNSError{Err: "no such host", Name: "unknown.invalid"}
			},
		})
		require.ErrorIs(t, err, registry.ErrUnavailable)
		require.ErrorContains(t, err, "unknown.invalid")
	})
	t.Run("fails soon if the server uses another protocol or never answers", func(t *testing.T) {
		addr := listen(t, func(conn net.Conn) { fmt.Fprint(conn, "HTTP/1.1 400 Bad Request\r\n\r\n") })
		err := fails(t, soon, Options{Endpoints: []string{addr}})
		require.ErrorIs(t, err, registry.ErrUnavailable)
		addr = listen(t, func(conn net.Conn) { io.Copy(io.Discard, conn) })
		err = fails(t, linkTimeout/3+soon, Options{Endpoints: []string{addr}})
		require.ErrorIs(t, err, registry.ErrUnavailable)
		require.ErrorContains(t, err, "does not answer as a ZooKeeper server does")
	})
	t.Run("fails if the server is too old", func(t *testing.T) {
		err := fails(t, soon, Options{Endpoints: []string{listen(t, oldServer)}})
		require.ErrorIs(t, err, errOldServer)
		require.False(t, registry.Retryable(err))
	})
	t.Run("skips members that do not answer", func(t *testing.T) {
		c := open(t, newNamespace(), func(o *Options) {
			silent := listen(t, func(conn net.Conn) { io.Copy(io.Discard, conn) })
			o.Endpoints = append([]string{"127.0.0.1:1", silent}, o.Endpoints...)
			o.InOrder = true
		})
		mustCommit(t, c, registry.Create("k", nil))
	})
	t.Run("fails with the credentials of another user", func(t *testing.T) {
		ns := newNamespace()
		as := func(user, password string) func(*Options) {
			return func(o *Options) { o.Username, o.Password = user, password }
		}
		c := open(t, ns, as("owner", "right"))
		mustCommit(t, c, registry.Create("k", nil))
		for _, other := range []func(*Options){as("owner", "wrong"), as("other", "right"), func(*Options) {}} {
			o := Options{Endpoints: c.options.Endpoints, Namespace: ns}
			other(&o)
			err := fails(t, soon, o)
			require.ErrorIs(t, err, registry.ErrPermission)
			require.False(t, registry.Retryable(err))
			require.ErrorContains(t, err, ns)
		}
		_, err := open(t, ns, as("owner", "right")).Get(t.Context(), "k", fresh)
		require.NoError(t, err)
	})
	t.Run("ends with its context", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := Open(ctx, Options{Endpoints: []string{listen(t, func(conn net.Conn) { io.Copy(io.Discard, conn) })}})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(start), soon)
	})
	t.Run("lists all problems of the options", func(t *testing.T) {
		_, err := Open(t.Context(), Options{Namespace: "no/slash", Password: "secret", CallTimeout: -1})
		for _, part := range []string{"no endpoints", "no/slash", "Username", "CallTimeout"} {
			require.ErrorContains(t, err, part)
		}
		require.NotContains(t, err.Error(), "secret")
		for _, o := range []Options{
			{Endpoints: []string{"host"}},
			{Endpoints: []string{":2181"}},
			{Endpoints: []string{"a:1", ""}},
			{Endpoints: []string{"a:1"}, Namespace: "/a/"},
			{Endpoints: []string{"a:1"}, Namespace: "/zookeeper/x"},
			{Endpoints: []string{"a:1"}, Namespace: "/"},
			{Endpoints: []string{"a:1"}, Namespace: "/a:b"},
		} {
			_, err := Open(t.Context(), o)
			require.Error(t, err, "%+v", o)
		}
	})
}

func TestOptions_HideThePassword(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o := Options{Endpoints: servertest.ZooKeeper(t).Addrs(), Namespace: newNamespace(), Username: "me", Password: "top-secret", Logger: logger}
	require.NotContains(t, fmt.Sprintf("%v %+v %#v %s", o, o, o, o), "top-secret")
	logger.Info("options", "options", o)
	c, err := Open(t.Context(), o)
	require.NoError(t, err)
	s := newSession(t, c)
	c.base.hangUp()
	mustCommit(t, c, registry.CreateOwned("~k", nil, s.ID()))
	require.NoError(t, c.Close(t.Context()))
	require.NotContains(t, log.String(), "top-secret")
	require.NotEmpty(t, log.String())
}

func TestACL_IsSetOnAllZnodes(t *testing.T) {
	ns := newNamespace()
	want := append(zk.DigestACL(zk.PermAll, "me", "pw"), zk.WorldACL(zk.PermRead)...)
	c := open(t, ns, func(o *Options) {
		o.Username, o.Password, o.ACL = "me", "pw", want
	})
	s := newSession(t, c)
	mustCommit(t, c, registry.Create("a/b/c", nil), registry.CreateOwned("x/~k", nil, s.ID()))
	raw := connectRaw(t)
	require.NoError(t, raw.AddAuth("digest", []byte("me:pw"))) // other users see less of the ACL
	seen := 0
	var walk func(path string)
	walk = func(path string) {
		acl, _, err := raw.GetACL(path)
		require.NoError(t, err)
		require.ElementsMatch(t, want, acl, path)
		seen++
		names, _, err := raw.Children(path)
		require.NoError(t, err)
		for _, name := range names {
			walk(strings.TrimSuffix(path, "/") + "/" + name)
		}
	}
	walk(ns)
	require.GreaterOrEqual(t, seen, 1+4+2+5)
	require.NoError(t, c.Close(t.Context()))
}

// The first team that starts would shut the parent of all namespaces for the others.
func TestOpen_CreatesNoAncestorsThatOthersCannotUse(t *testing.T) {
	teams := newNamespace()
	o := Options{Endpoints: servertest.ZooKeeper(t).Addrs(), Namespace: teams + "/a", Username: "a", Password: "pw"}
	_, err := Open(t.Context(), o)
	require.ErrorIs(t, err, registry.ErrNotFound)
	require.ErrorContains(t, err, "the znode "+teams+" above the namespace")
	require.False(t, registry.Retryable(err))
	raw := connectRaw(t)
	requireMissing(t, raw, teams)
	_, err = raw.Create(teams, nil, 0, zk.WorldACL(zk.PermRead|zk.PermCreate))
	require.NoError(t, err)
	for _, team := range []string{"a", "b"} {
		mustCommit(t, open(t, teams+"/"+team, func(o *Options) { o.Username, o.Password = team, "pw" }), registry.Create("k", nil))
	}
	mustCommit(t, open(t, newNamespace()+"/deep/below"), registry.Create("k", nil)) // without credentials
}

func TestOpen_WarnsOfAnOpenNamespaceAndOfPasswordsInClearText(t *testing.T) {
	ns := newNamespace()
	mustCommit(t, open(t, ns), registry.Create("k", nil))
	var log bytes.Buffer
	with := func(user, host string) func(o *Options) {
		return func(o *Options) {
			log.Reset()
			o.Username, o.Password = user, strings.Repeat("s3cret", len(user))
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
			o.LookupHost = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
			if host != "" {
				_, port, _ := net.SplitHostPort(o.Endpoints[0])
				o.Endpoints = []string{net.JoinHostPort(host, port)}
			}
		}
	}
	const openToAll, inClear = "everyone has rights to the namespace", "sent without TLS"
	open(t, ns, with("", "zk.example"))
	require.Empty(t, log.String(), "nothing is to be protected")
	open(t, ns, with("me", ""))
	require.Contains(t, log.String(), openToAll)
	require.NotContains(t, log.String(), inClear, "the server is on this host")
	open(t, newNamespace(), with("me", ""))
	require.Empty(t, log.String())
	open(t, newNamespace(), with("me", "zk.example"))
	require.Contains(t, log.String(), inClear)
	require.NotContains(t, log.String(), "s3cret")
	open(t, ns, with("me", ""), func(o *Options) { o.ACL = zk.WorldACL(zk.PermAll) })
	require.Empty(t, log.String(), "the rights are as wanted")
}

func TestOpen_NamesTheBoundOfConnections(t *testing.T) {
	_, err := Open(t.Context(), Options{Endpoints: []string{listen(t, func(net.Conn) {})}})
	require.ErrorContains(t, err, "maxClientCnxns")
}

func TestTLS(t *testing.T) {
	cluster := servertest.StartZooKeeper(t, testserver.ZooKeeperOptions{TLS: testserver.MutualTLS})
	var c *Client
	eventually(t, func() (ok bool) { // the server's first TLS handshake is slow
		var err error
		c, err = Open(t.Context(), Options{Endpoints: cluster.Addrs(), TLS: cluster.TLS()})
		return err == nil
	})
	s := newSession(t, c)
	mustCommit(t, c, registry.CreateOwned("~k", nil, s.ID()))
	w, err := c.Watch(t.Context(), "", registry.WatchOptions{})
	require.NoError(t, err)
	b, err := w.Next(t.Context())
	require.NoError(t, err)
	require.Len(t, b.Puts, 1)
	require.NoError(t, c.Close(t.Context()))

	stranger := cluster.TLS()
	stranger.RootCAs, stranger.Certificates = nil, nil
	_, err = Open(t.Context(), Options{Endpoints: cluster.Addrs(), TLS: stranger})
	require.ErrorIs(t, err, registry.ErrUnavailable)
	require.ErrorContains(t, err, "certificate")
}
