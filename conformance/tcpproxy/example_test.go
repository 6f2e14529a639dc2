package tcpproxy_test

import (
	"context"
	"encoding/binary"
	"net"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/conformance/child"
	"github.com/rota-dev/rota/conformance/freeport"
	"github.com/rota-dev/rota/conformance/tcpproxy"
)

// frames recognizes the frames of a protocol in which each has a length, a type and the number
// of its request. It is the only part that knows the protocol.
type frames struct{}

func (frames) Parse(_ tcpproxy.Direction, b []byte) (n int, f tcpproxy.Frame, err error) {
	const header = 4 + 1 + 8
	if len(b) < header {
		return 0, f, nil
	}
	if n = header + int(binary.BigEndian.Uint32(b)); len(b) < n {
		return 0, f, nil
	}
	f.ID = binary.BigEndian.Uint64(b[5:])
	switch b[4] {
	case 'T':
		f.Kind = tcpproxy.Transaction
	case 'R':
		f.Kind = tcpproxy.Renewal
	}
	return n, f, nil
}

// machine is a client host. Its handles connect to its proxy.
type machine struct {
	proxy    *tcpproxy.Proxy
	requests *tcpproxy.Requests
}

func newMachine(t testing.TB, server string) *machine {
	m := &machine{requests: tcpproxy.NewRequests(func() tcpproxy.Parser { return frames{} })}
	var err error
	if m.proxy, err = tcpproxy.Listen(server); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.proxy.Close)
	m.proxy.SetFilter(m.requests.Filter)
	return m
}

func (m *machine) partition(c conformance.Cut) (heal func()) {
	switch c {
	case conformance.Refuse:
		return m.proxy.Refuse()
	case conformance.ToStore:
		return m.proxy.OneWay(tcpproxy.ToServer)
	case conformance.FromStore:
		return m.proxy.OneWay(tcpproxy.ToClient)
	}
	return m.proxy.Blackhole()
}

// server is the store, a child process on a port of its own.
type server struct {
	port    *freeport.Port
	process *child.Process
}

// start starts the process, with the data of the one before, and returns when it answers.
func (s *server) start() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if s.process, err = child.Start(exec.Command("server", "--port", strconv.Itoa(s.port.Number))); err != nil {
		return err
	}
	return s.process.AwaitReady(ctx, func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.port.Addr())
		if err == nil {
			conn.Close()
		}
		return err
	})
}

// controls returns the fault controls that are the same for every server. machineOf returns the
// machine of a name.
func controls(t testing.TB, s *server, machineOf func(name string) *machine) *conformance.Store {
	must := func(err error) {
		if err != nil {
			t.Error(err)
			panic(err) // a control cannot return an error
		}
	}
	return &conformance.Store{
		Partition:   func(name string, c conformance.Cut) func() { return machineOf(name).partition(c) },
		Delay:       func(name string, d time.Duration) func() { return machineOf(name).proxy.Delay(tcpproxy.ToClient, d) },
		LoseRequest: func(name string) { machineOf(name).requests.LoseRequest() },
		LoseReply:   func(name string) { machineOf(name).requests.LoseReply() },
		HoldCommit:  func(name string) func() { return machineOf(name).requests.Hold(nil) },
		Starve:      func(name string) func() { return machineOf(name).requests.Starve() },
		Stall: func() (resume func()) {
			must(s.process.Pause())
			return sync.OnceFunc(func() { must(s.process.Resume()) })
		},
		Restart: func() {
			s.process.Kill()
			must(s.start())
		},
	}
}

// The controls that remain need a client with more rights (Expire, Compact, FillQuota, Revoke),
// other addresses (Move) or several members.
func ExampleRequests() {
	var t *testing.T // of the test of the backend
	open := func(t testing.TB) *conformance.Store {
		port, err := freeport.Reserve()
		if err != nil {
			t.Fatal(err)
		}
		s := &server{port: port}
		if err := s.start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.process.Kill)
		machines := map[string]*machine{}
		return controls(t, s, func(name string) *machine {
			if machines[name] == nil { // guard it with a mutex
				machines[name] = newMachine(t, port.Addr())
			}
			return machines[name]
		})
	}
	conformance.Run(t, conformance.Backend{Name: "example", Open: open})
}
