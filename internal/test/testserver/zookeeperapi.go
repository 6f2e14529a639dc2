package testserver

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/rota-dev/rota/conformance/tcpproxy"
)

// probe checks the mode, since a server answers simpler commands before it accepts
// sessions.
func (z *zookeeper) probe(ctx context.Context, m *Member) error {
	_, err := z.mode(ctx, m)
	return err
}

func (z *zookeeper) leads(ctx context.Context, m *Member) (bool, error) {
	mode, err := z.mode(ctx, m)
	return mode == "leader" || mode == "standalone", err
}

func (z *zookeeper) mode(ctx context.Context, m *Member) (string, error) {
	answer, err := z.sendCommand(ctx, m, "srvr")
	if err != nil {
		return "", err
	}
	_, after, ok := strings.Cut(answer, "Mode: ")
	if !ok {
		return "", fmt.Errorf("%s has no mode yet: %s", m.name, answer)
	}
	mode, _, _ := strings.Cut(after, "\n")
	return mode, nil
}

func (z *zookeeper) counters(ctx context.Context, m *Member) (map[string]float64, error) {
	answer, err := z.sendCommand(ctx, m, "mntr")
	if err != nil {
		return nil, err
	}
	counters := map[string]float64{}
	for line := range strings.Lines(answer) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			counters[name] = v
		}
	}
	return counters, nil
}

// sendCommand sends one of the four-letter commands.
func (z *zookeeper) sendCommand(ctx context.Context, m *Member, word string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", z.plainPort(m).Addr())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return "", err
		}
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

// rewriteAnnouncedAddr returns a filter for election connections. Such a connection
// begins with the address at which the member wants to be called back, which would bypass
// the proxies; the filter replaces it by addr.
func rewriteAnnouncedAddr(addr string) tcpproxy.Filter {
	var head []byte
	done := false
	return func(_ context.Context, d tcpproxy.Direction, b []byte) ([]byte, error) {
		if d == tcpproxy.ToClient || done {
			return b, nil
		}
		// version int64, member int64, length int32, address
		const fixed = 8 + 8 + 4
		head = append(head, b...)
		if len(head) < fixed {
			return nil, nil
		}
		n := int(binary.BigEndian.Uint32(head[fixed-4:]))
		if n > 1<<10 {
			return nil, errors.New("not the start of an election connection")
		}
		if len(head) < fixed+n {
			return nil, nil
		}
		done = true
		var out bytes.Buffer
		out.Write(head[:fixed-4])
		_ = binary.Write(&out, binary.BigEndian, int32(len(addr)))
		out.WriteString(addr)
		out.Write(head[fixed+n:])
		return out.Bytes(), nil
	}
}
