// Package postgresbackend describes registry/postgres to the conformance suite.
package postgresbackend

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/conformance/tcpproxy"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
	"github.com/rota-dev/rota/registry/postgres"
	"github.com/rota-dev/rota/registry/postgres/internal/pgserver"
)

// Config describes the server that the suite runs on.
type Config struct {
	// Server is used by the suite alone: it is killed and suspended.
	Server *pgserver.Server
	// Pooler, if not nil, is between the machines and the server, but for the connections that listen.
	Pooler *pgserver.Pooler
	// PollOnly makes the handles ask for changes only.
	PollOnly bool
	// Restart restarts the server; nil kills it first, as a crash of its host would.
	Restart func(*pgserver.Server) error
}

// database is the database of all registries of the suite, each of which is a schema.
const database = "postgres"

// New returns the description of the PostgreSQL registry on a server.
func New(c Config) conformance.Backend {
	lacks := conformance.SingleServer("is one server: a standby is never read, and promoted by other programs")
	if c.Pooler != nil {
		lacks[conformance.Revoke] = "all machines have the role that the pooler knows"
	}
	if c.PollOnly {
		lacks["W16"] = "a change waits for the next poll, 25 ms on average, and longer on a busy machine"
	}
	return conformance.Backend{
		Name: "postgres",
		Open: func(t testing.TB) *conformance.Store { return newStore(t, c).faultControls() },
		TTL:  2 * time.Second,
		Packages: []string{
			reflect.TypeFor[postgres.Client]().PkgPath(), reflect.TypeFor[backend.Session]().PkgPath(),
			reflect.TypeFor[pgconn.PgConn]().PkgPath(),
		},
		Lacks: lacks,
	}
}

// store is a schema with the machines that use it.
type store struct {
	Config
	t      testing.TB
	schema string

	mu       sync.Mutex
	machines map[string]*machine

	stallMu sync.Mutex // separate, since mu is held during calls to the store
	resume  func()     // ends the current stall; or nil
}

var stores atomic.Int64

func newStore(t testing.TB, c Config) *store {
	s := &store{
		Config: c, t: t, schema: fmt.Sprintf("test_%d_%s", stores.Add(1), strings.ToLower(rand.Text()[:8])),
		machines: map[string]*machine{},
	}
	t.Cleanup(s.close)
	s.must("create the schema", postgres.Migrate(t.Context(), postgres.Options{
		Endpoints: []string{c.Server.Addr()}, Database: database, Username: "rota", Schema: s.schema,
	}))
	if c.Pooler != nil {
		s.exec("DO $$ BEGIN CREATE ROLE " + pgserver.Role + " LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
		s.exec(s.rights("GRANT", "TO", pgserver.Role))
	}
	return s
}

func (s *store) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exec("DROP SCHEMA " + s.schema + " CASCADE")
	for _, m := range s.machines {
		m.close()
		if m.role != pgserver.Role {
			s.exec("DROP ROLE " + m.role)
		}
	}
}

// rights returns statements that grant or revoke the rights of a handle, as the documentation lists them.
func (s *store) rights(verb, preposition, role string) string {
	return strings.NewReplacer("GRANT", verb, "TO", preposition, "rota", s.schema, "ROLE", role).Replace(
		`GRANT USAGE ON SCHEMA rota TO ROLE;
		GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA rota TO ROLE;
		GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA rota TO ROLE`)
}

func (s *store) must(what string, err error) {
	if err != nil {
		s.t.Errorf("%s: %v", what, err)
		panic(fmt.Sprintf("%s: %v", what, err)) // a fault control cannot return an error
	}
}

// exec executes statements as the superuser, past all proxies.
func (s *store) exec(sql string) [][]string {
	s.endStall()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		rows, err := s.Server.Query(ctx, database, sql)
		if isTransient(err) && backend.Sleep(ctx, 10*time.Millisecond) {
			continue
		}
		s.must(sql, err)
		return rows
	}
}

// isTransient reports whether the server is not there, or is ending, or the statement has locked tables in another order than a call
// that still runs though its handle was closed.
func isTransient(err error) bool {
	const deadlock = "40P01"
	var answer *pgconn.PgError
	return err != nil && (!errors.As(err, &answer) || answer.Severity == "FATAL" || answer.Code == deadlock)
}

// machine returns the machine of a name, with a role of its own unless there is a pooler.
func (s *store) machine(name string) *machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machines[name]
	if m == nil {
		upstream, role := s.Server.Addr(), s.schema+"_"+strconv.Itoa(len(s.machines))
		if s.Pooler != nil {
			upstream, role = s.Pooler.Addr(), pgserver.Role
		}
		m = newMachine(s.t, name, upstream, s.Server.Addr(), role)
		if s.Pooler == nil {
			s.exec("CREATE ROLE " + role + " LOGIN; " + s.rights("GRANT", "TO", role))
		}
		s.machines[name] = m
	}
	return m
}

func (s *store) faultControls() *conformance.Store {
	c := &conformance.Store{
		Connect:     s.connect,
		Expire:      s.expire,
		Partition:   func(machine string, cut conformance.Cut) (heal func()) { return s.machine(machine).partition(cut) },
		LoseReply:   func(machine string) { s.machine(machine).wire.LoseReply() },
		LoseRequest: func(machine string) { s.machine(machine).wire.LoseRequest() },
		HoldCommit:  s.holdCommit,
		Delay: func(machine string, d time.Duration) (restore func()) {
			return s.machine(machine).onEachProxy(func(p *tcpproxy.Proxy) func() { return p.Delay(tcpproxy.ToClient, d) })
		},
		Stall:     s.stall,
		Restart:   s.restart,
		Compact:   s.compact,
		Starve:    func(machine string) (feed func()) { return s.machine(machine).starve() },
		StepClock: s.stepClock,
		Move:      func(machine string) { s.machine(machine).move() },
		FillQuota: s.fill,
		Revoke:    s.revoke,
	}
	if s.Pooler != nil {
		c.Revoke = nil
	}
	return c
}

func (s *store) connect(t testing.TB, name string) registry.Registry {
	t.Helper()
	m := s.machine(name)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := postgres.Open(ctx, postgres.Options{
		Endpoints: []string{m.host(0)}, ListenEndpoints: []string{m.host(1)}, Database: database, Schema: s.schema, Username: m.role,
		PollOnly: s.PollOnly, DialContext: m.dial, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatalf("connect %s: %v", name, err)
	}
	return handle{c, m}
}

// handle records the sessions of a machine, so that they can be starved.
type handle struct {
	*postgres.Client
	machine *machine
}

func (h handle) OpenSession(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
	s, err := h.Client.OpenSession(ctx, o)
	if err == nil {
		h.machine.addSession(s.(*backend.Session))
	}
	return s, err
}

// commitNow begins a commit as the functions of the schema do, in a transaction of the superuser.
func (s *store) commitNow(sql string) {
	s.exec(strings.ReplaceAll("BEGIN; SELECT rota.start_commit(); "+sql+"; COMMIT", "rota.", s.schema+"."))
}

func (s *store) expire(id registry.SessionID) {
	s.exec(fmt.Sprintf("SELECT %s.end_session(true, '%s')", s.schema, id))
}

func (s *store) compact() {
	s.commitNow("UPDATE rota.state SET compacted = rota.last(); DELETE FROM rota.log WHERE seq < rota.last()")
}

// fill sets a quota that is reached, and the flag that the next tick would set.
func (s *store) fill() (free func()) {
	s.commitNow("UPDATE rota.state SET quota = 1, is_full = true")
	return sync.OnceFunc(func() { s.commitNow("UPDATE rota.state SET quota = NULL, is_full = false") })
}

// stepClock replaces the function that reads the time of day.
func (s *store) stepClock(d time.Duration) (restore func()) {
	set := func(d time.Duration) {
		s.exec(fmt.Sprintf("CREATE OR REPLACE FUNCTION %s.wall() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT clock_timestamp() + interval ''%d microseconds'''",
			s.schema, d.Microseconds()))
	}
	set(d)
	return sync.OnceFunc(func() { set(0) })
}

func (s *store) revoke(machine string) (restore func()) {
	role := s.machine(machine).role
	s.exec(s.rights("REVOKE", "FROM", role))
	return sync.OnceFunc(func() { s.exec(s.rights("GRANT", "TO", role)) })
}

// holdCommit breaks the connection of the transaction and sends it again at release.
func (s *store) holdCommit(name string) (release func()) {
	return s.machine(name).wire.Hold(func(txn []byte) {
		s.endStall()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		c, err := pgconn.Connect(ctx, fmt.Sprintf("postgres://rota@%s/%s?sslmode=disable", s.Server.Addr(), database))
		s.must("connect", err)
		h, err := c.Hijack()
		s.must("connect", err)
		defer h.Conn.Close()
		_, err = h.Conn.Write(txn)
		s.must("send a held transaction", err)
		for {
			b := make([]byte, 1<<16)
			n, err := h.Conn.Read(b)
			s.must("read the answer to a held transaction", err)
			if answer := b[:n]; len(answer) >= 6 && answer[n-6] == typeReadyForQuery {
				return
			}
		}
	})
}

func (s *store) stall() (resume func()) {
	s.endStall()
	s.must("pause", s.Server.Pause())
	resume = sync.OnceFunc(func() { s.must("resume", s.Server.Resume()) })
	s.stallMu.Lock()
	defer s.stallMu.Unlock()
	s.resume = resume
	return resume
}

// endStall ends a stall for a control that needs an answer from the store: the caller waits for it and cannot end the stall itself.
func (s *store) endStall() {
	s.stallMu.Lock()
	resume := s.resume
	s.resume = nil
	s.stallMu.Unlock()
	if resume != nil {
		resume()
	}
}

func (s *store) restart() {
	s.endStall()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if s.Config.Restart != nil {
		s.must("restart", s.Config.Restart(s.Server))
		return
	}
	s.Server.Kill()
	s.must("restart", s.Server.Continue(ctx))
}

// machine is a client host with a proxy for its connections and one for those that listen.
type machine struct {
	t    testing.TB
	name string
	role string
	wire *tcpproxy.Requests
	to   []string // the addresses behind the proxies

	mu       sync.Mutex
	proxies  []*tcpproxy.Proxy
	old      []*tcpproxy.Proxy // from before a move
	sessions []*backend.Session
	starved  int
	feeds    []func()
}

func newMachine(t testing.TB, name, upstream, direct, role string) *machine {
	m := &machine{t: t, name: name, role: role, wire: tcpproxy.NewRequests(newParser), to: []string{upstream, direct}}
	m.proxies = m.newProxies()
	return m
}

func (m *machine) newProxies() (proxies []*tcpproxy.Proxy) {
	for _, to := range m.to {
		p, err := tcpproxy.Listen(to)
		if err != nil {
			m.t.Fatalf("machine %s: %v", m.name, err)
		}
		p.SetFilter(m.wire.Filter)
		proxies = append(proxies, p)
	}
	return proxies
}

func (m *machine) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range append(m.old, m.proxies...) {
		p.Close()
	}
}

// host returns a name of the server, which only this machine's dialer resolves.
func (m *machine) host(i int) string { return fmt.Sprintf("server-%d.%s.test:5432", i, m.name) }

func (m *machine) dial(ctx context.Context, _, address string) (net.Conn, error) {
	m.mu.Lock()
	to := ""
	for i, p := range m.proxies {
		if address == m.host(i) {
			to = p.Addr()
		}
	}
	m.mu.Unlock()
	if to == "" {
		return nil, fmt.Errorf("machine %s cannot resolve %s", m.name, address)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", to)
}

// move changes the addresses of the server.
func (m *machine) move() {
	proxies := m.newProxies()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.proxies {
		p.Close()
	}
	m.old, m.proxies = append(m.old, m.proxies...), proxies
}

func (m *machine) partition(c conformance.Cut) (heal func()) {
	return m.onEachProxy(func(p *tcpproxy.Proxy) func() {
		switch c {
		case conformance.Refuse:
			return p.Refuse()
		case conformance.ToStore:
			return p.OneWay(tcpproxy.ToServer)
		case conformance.FromStore:
			return p.OneWay(tcpproxy.ToClient)
		}
		return p.Blackhole()
	})
}

// onEachProxy injects a fault into all proxies, until heal.
func (m *machine) onEachProxy(impose func(*tcpproxy.Proxy) (heal func())) (heal func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var heals []func()
	for _, p := range m.proxies {
		heals = append(heals, impose(p))
	}
	return func() {
		for _, heal := range heals {
			heal()
		}
	}
}

// starve stops the renewals of all sessions, and of those that begin meanwhile, until feed: the protocol is answered in order, so renewals cannot be
// dropped on the way.
func (m *machine) starve() (feed func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.starved++; m.starved == 1 {
		for _, s := range m.sessions {
			m.feeds = append(m.feeds, s.Starve())
		}
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

func (m *machine) addSession(s *backend.Session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sessions = append(m.sessions, s)
	if m.starved > 0 {
		m.feeds = append(m.feeds, s.Starve())
	}
}
