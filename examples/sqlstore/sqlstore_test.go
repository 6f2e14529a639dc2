package sqlstore_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/conformance/child"
	"github.com/rota-dev/rota/conformance/freeport"
	"github.com/rota-dev/rota/conformance/tcpproxy"
	"github.com/rota-dev/rota/examples/sqlstore"
	"github.com/rota-dev/rota/internal/test/long"
	"github.com/rota-dev/rota/internal/test/testserver/dbserver"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// TestConformance runs the whole suite with long, else the cases that guard safety, and groups that are fast.
func TestConformance(t *testing.T) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	s := startServer(t)
	lacks := conformance.SingleServer("is one server")
	lacks[conformance.FillQuota] = "has no quota, only the end of the disk"
	lacks[conformance.StepClock] = "has no statement that reads the time of day"
	conformance.Run(t, conformance.Backend{
		Name: "sqlstore",
		Open: func(t testing.TB) *conformance.Store { return newStore(t, s).controls() },
		TTL:  2 * time.Second,
		Packages: []string{
			reflect.TypeFor[sqlstore.Client]().PkgPath(), reflect.TypeFor[backend.Handle]().PkgPath(), reflect.TypeFor[pgx.Conn]().PkgPath(),
		},
		Lacks: lacks,
		Which: long.Pick(func(c conformance.Case) bool {
			return c.Safety || slices.Contains([]string{"Keys", "Transactions", "Reads", "Hygiene"}, c.Group)
		}, nil),
	})
}

// server is a server that the suite suspends and kills.
type server struct {
	t       testing.TB
	port    *freeport.Port
	command func() *exec.Cmd
	process *child.Process
	log     *os.File
}

func startServer(t testing.TB) *server {
	s := &server{t: t}
	dir, err := os.MkdirTemp("", "rota-sqlstore-")
	s.must(err)
	s.log, err = os.Create(filepath.Join(dir, "log"))
	s.must(err)
	s.port, err = freeport.Reserve()
	s.must(err)
	s.command, err = dbserver.PreparePostgres(t.Context(), dir, s.port, "fsync=off", "max_connections=400")
	s.must(err)
	s.start()
	t.Cleanup(func() {
		s.process.Kill()
		s.log.Close()
		s.port.Release()
		os.RemoveAll(dir)
	})
	return s
}

// must fails and panics if there is an error, which a fault control cannot return.
func (s *server) must(err error) {
	if err != nil {
		s.t.Error(err)
		panic(err)
	}
}

// start starts the process. After a crash, it refuses to start until the processes of the one before have ended.
func (s *server) start() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		cmd := s.command()
		cmd.Stdout, cmd.Stderr = s.log, s.log
		var err error
		s.process, err = child.Start(cmd)
		s.must(err)
		err = s.process.AwaitReady(ctx, func(ctx context.Context) error {
			c, err := pgx.ConnectConfig(ctx, s.config("rota", "public"))
			if err == nil {
				err = c.Close(ctx)
			}
			return err
		})
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			text, _ := os.ReadFile(s.log.Name())
			s.must(fmt.Errorf("%w\n%s", err, text[max(0, len(text)-2000):]))
		}
	}
}

func (s *server) config(role, schema string) *pgx.ConnConfig {
	c, err := pgx.ParseConfig(fmt.Sprintf("postgres://%s@%s/postgres?sslmode=disable&search_path=%s", role, s.port.Addr(), schema))
	s.must(err)
	return c
}

// store is a schema with the machines that use it.
type store struct {
	*server
	schema string

	mu       sync.Mutex
	machines map[string]*machine
	resume   atomic.Pointer[func()] // ends the last stall
}

func newStore(t testing.TB, s *server) *store {
	st := &store{server: s, schema: "test_" + strings.ToLower(rand.Text()), machines: map[string]*machine{}}
	st.exec("CREATE SCHEMA " + st.schema)
	st.must(sqlstore.Create(t.Context(), s.config("rota", st.schema)))
	t.Cleanup(func() {
		for _, m := range st.machines {
			m.proxy.Close()
		}
		st.exec("DROP SCHEMA " + st.schema + " CASCADE")
	})
	return st
}

// endStall ends a stall for a control that needs an answer from the store: the case waits for the control, and cannot.
func (s *store) endStall() {
	if resume := s.resume.Load(); resume != nil {
		(*resume)()
	}
}

// exec executes a statement as the superuser, past the proxies.
func (s *store) exec(sql string) {
	s.endStall()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		c, err := pgx.ConnectConfig(ctx, s.config("rota", s.schema))
		if err == nil {
			_, err = c.Exec(ctx, sql)
			c.Close(ctx)
		}
		const deadlock = "40P01" // with a call of a closed handle
		var answer *pgconn.PgError
		if err == nil || errors.As(err, &answer) && answer.Severity == "ERROR" && answer.Code != deadlock || !backend.Sleep(ctx, 10*time.Millisecond) {
			s.must(err)
			return
		}
	}
}

func (s *store) rights(verb, preposition string, m *machine) {
	s.exec(fmt.Sprintf("%s SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %s %s %s", verb, s.schema, preposition, m.role))
}

func (s *store) machine(name string) *machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machines[name]
	if m == nil {
		m = &machine{store: s, role: fmt.Sprintf("%s_%d", s.schema, len(s.machines))}
		m.wire = tcpproxy.NewRequests(func() tcpproxy.Parser { return &parser{machine: m} })
		m.move()
		s.exec("CREATE ROLE " + m.role + " LOGIN; GRANT USAGE ON SCHEMA " + s.schema + " TO " + m.role)
		s.rights("GRANT", "TO", m)
		s.machines[name] = m
	}
	return m
}

func (s *store) controls() *conformance.Store {
	return &conformance.Store{
		Connect:   func(t testing.TB, name string) registry.Registry { return s.machine(name).connect(t) },
		Expire:    func(id registry.SessionID) { s.exec("SELECT end_sessions('" + string(id) + "')") },
		Compact:   func() { s.exec("DELETE FROM log WHERE seq < (SELECT max(seq) FROM log)") },
		Partition: func(name string, c conformance.Cut) func() { return s.machine(name).partition(c) },
		Delay: func(name string, d time.Duration) func() {
			return s.machine(name).proxy.Delay(tcpproxy.ToClient, d)
		},
		LoseRequest: func(name string) { s.machine(name).wire.LoseRequest() },
		LoseReply:   func(name string) { s.machine(name).wire.LoseReply() },
		HoldCommit:  func(name string) func() { return s.machine(name).hold() },
		Starve:      func(name string) func() { return s.machine(name).starve() },
		Move:        func(name string) { s.machine(name).move() },
		Revoke: func(name string) func() {
			s.rights("REVOKE", "FROM", s.machine(name))
			return sync.OnceFunc(func() { s.rights("GRANT", "TO", s.machine(name)) })
		},
		Stall: func() func() {
			s.must(s.process.Pause())
			resume := sync.OnceFunc(func() { s.must(s.process.Resume()) })
			s.resume.Store(&resume)
			return resume
		},
		Restart: func() {
			s.endStall()
			s.process.Kill()
			s.start()
		},
	}
}

// machine is a client host. Its handles connect to its proxy with a role of its own.
type machine struct {
	store *store
	role  string
	wire  *tcpproxy.Requests
	holds atomic.Int32

	mu       sync.Mutex
	proxy    *tcpproxy.Proxy
	sessions []*backend.Session
	starved  int
	feeds    []func()
}

// move changes the address of the server.
func (m *machine) move() {
	p, err := tcpproxy.Listen(m.store.port.Addr())
	m.store.must(err)
	p.SetFilter(m.wire.Filter)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.proxy != nil {
		m.proxy.Close()
	}
	m.proxy = p
}

func (m *machine) connect(t testing.TB) registry.Registry {
	config := m.store.config(m.role, m.store.schema)
	config.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
		m.mu.Lock()
		addr := m.proxy.Addr()
		m.mu.Unlock()
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	c, err := sqlstore.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return handle{c, m}
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

// starve stops the renewals of all sessions, and of those that begin meanwhile: they cannot be dropped on the way, where each is answered.
func (m *machine) starve() (feed func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.starved++
	for _, s := range m.sessions {
		m.feeds = append(m.feeds, s.Starve())
	}
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.starved--; m.starved == 0 {
			for _, feed := range m.feeds {
				feed()
			}
			m.feeds = nil
		}
	})
}

// handle records the sessions of a machine.
type handle struct {
	*sqlstore.Client
	machine *machine
}

func (h handle) OpenSession(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
	s, err := h.Client.OpenSession(ctx, o)
	if err != nil {
		return nil, err
	}
	m := h.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sessions = append(m.sessions, s.(*backend.Session))
	if m.starved > 0 {
		m.feeds = append(m.feeds, s.(*backend.Session).Starve())
	}
	return s, nil
}

// hold holds the next transaction. When the context of the call ends, the driver sends a cancel request. That is lost, since it could overtake
// the transaction, which has to arrive.
func (m *machine) hold() (release func()) {
	m.holds.Add(1)
	forward := m.wire.Hold(nil)
	return sync.OnceFunc(func() {
		forward()
		m.holds.Add(-1)
	})
}

// parser recognizes transactions and their answers. A connection carries one request at a time.
type parser struct {
	machine *machine
	started bool
}

const (
	txnID         = 1
	cancelRequest = 80877102
)

var errLost = errors.New("a cancel request is lost")

// Parse implements tcpproxy.Parser. A message has a type, but for the first one, and a length.
func (p *parser) Parse(d tcpproxy.Direction, b []byte) (n int, f tcpproxy.Frame, err error) {
	header := 1
	if d == tcpproxy.ToServer && !p.started {
		header = 0
	}
	if len(b) < header+4 {
		return 0, f, nil
	}
	if n = header + int(binary.BigEndian.Uint32(b[header:])); len(b) < n {
		return 0, f, nil
	}
	switch {
	case header == 0 && binary.BigEndian.Uint32(b[4:]) == cancelRequest && p.machine.holds.Load() > 0:
		return 0, f, errLost
	case header == 0:
		p.started = true
	case d == tcpproxy.ToServer && b[0] == 'P' && bytes.Contains(b[:n], []byte("SELECT commit(")): // Parse
		f.Kind, f.ID = tcpproxy.Transaction, txnID
	case d == tcpproxy.ToClient && b[0] == 'Z': // ReadyForQuery
		f.ID = txnID
	}
	return n, f, nil
}
