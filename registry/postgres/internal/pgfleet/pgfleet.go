// Package pgfleet makes a server of PostgreSQL the store of fleets under test.
package pgfleet

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/internal/test/fleet"
	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/internal/test/storelog"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/postgres"
	"github.com/rota-dev/rota/registry/postgres/internal/pgserver"
)

const database = "postgres"

// Schemes are the schemes of the URLs of Stores.
func Schemes() registryurl.Schemes {
	return registryurl.Schemes{"postgres": func(ctx context.Context, url string, o registryurl.Options) (registry.Registry, error) {
		options, err := postgres.ParseURL(url)
		if err != nil {
			return nil, err
		}
		options.Logger = o.Logger
		c, err := postgres.Open(ctx, options)
		if err != nil {
			return nil, err
		}
		return c, nil
	}}
}

// Standby is the store whose server has a synchronous standby, to which each restart fails over.
const Standby = "postgres-standby"

// pooler is the store that is used through a pooler in transaction mode.
const pooler = "pgbouncer"

// Stores returns PostgreSQL: a server, one behind a pooler, and one with a standby.
func Stores() (all []fleet.Store) {
	for _, name := range []string{"postgres", pooler, Standby} {
		all = append(all, fleet.Store{Name: name, Start: func(ctx context.Context, _ int) (*fleet.Server, error) { return start(ctx, name) }, Members: []int{1}, Chaos: "registry/postgres/internal/chaos"})
	}
	return all
}

// servers are a server, and perhaps a pooler or a standby.
type servers struct {
	server *member
	pooler *pgserver.Pooler
	addrs  []string // which the processes of a fleet use, each through a proxy
}

// start starts a server that syncs its disk, as the faults kill it.
func start(ctx context.Context, name string) (*fleet.Server, error) {
	s, err := pgserver.Start("fsync=on")
	if err != nil {
		return nil, err
	}
	all := servers{server: &member{primary: s}, addrs: []string{s.Addr()}}
	stop := func(err error) (*fleet.Server, error) {
		all.Stop()
		return nil, err
	}
	err = postgres.Migrate(ctx, postgres.Options{Endpoints: []string{s.Addr()}, Database: database, Username: "rota"})
	if err == nil {
		err = s.Exec(ctx, database, audit)
	}
	if err != nil {
		return stop(err)
	}
	switch name {
	case pooler:
		if all.pooler, err = pgserver.StartPooler(s, 20); err != nil {
			return stop(err)
		}
		all.addrs = []string{all.pooler.Addr(), s.Addr()}
	case Standby:
		// Standbys copy this setting: once promoted, they commit nothing before they have one of their own.
		if err := s.Exec(ctx, database, "ALTER SYSTEM SET synchronous_standby_names = '*'"); err != nil {
			return stop(err)
		}
		if all.server.standby, err = s.StartStandby(); err != nil {
			return stop(err)
		}
		all.addrs = append(all.addrs, all.server.standby.Addr())
		if err := s.Exec(ctx, database, "SELECT pg_reload_conf()"); err != nil {
			return stop(err)
		}
	}
	return &fleet.Server{Servers: all, Schemes: Schemes(), URL: func(addrs []string) string {
		url, more := "postgres://"+addrs[0], ""
		switch name {
		case pooler:
			more = "&listen=" + addrs[1]
		case Standby:
			url += "," + addrs[1]
		}
		return url + "/" + database + "?user=rota" + more
	}, Log: func(context.Context, []string) (storelog.Log, error) { return &log{server: all.server}, nil }, SetFull: all.server.setFull}, nil
}

func (s servers) Addrs() []string { return s.addrs }

func (s servers) Members() []fleet.Member { return []fleet.Member{s.server} }

func (s servers) Leader(context.Context) (fleet.Member, error) { return s.server, nil }

func (s servers) Stop() {
	if s.pooler != nil {
		s.pooler.Remove()
	}
	s.server.remove()
}

// member is a server, perhaps with a standby.
type member struct {
	mu               sync.Mutex
	primary, standby *pgserver.Server
}

// Kill kills the server as a crash of its host would.
func (m *member) Kill() { m.now().Kill() }

// Restart kills the server, and starts it again, or fails over to its standby.
func (m *member) Restart(ctx context.Context) error {
	if m.standby == nil {
		m.primary.Kill()
		return m.primary.Continue(ctx)
	}
	next, err := m.primary.FailOver(ctx, m.standby)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.primary, m.standby = m.standby, next
	return nil
}

// now returns the present primary.
func (m *member) now() *pgserver.Server {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.primary
}

// setFull sets a quota that the table of entries exceeds, or none.
func (m *member) setFull(ctx context.Context, full bool) error {
	statement := "UPDATE rota.state SET quota = NULL, is_full = false"
	if full {
		statement = "UPDATE rota.state SET quota = 1, is_full = true"
	}
	return m.now().Exec(ctx, database, statement)
}

func (m *member) remove() {
	m.primary.Remove()
	if m.standby != nil {
		m.standby.Remove()
	}
}

// audit records each change of a row under the number of its commit, which the schema inserts into the table log after the changes.
const audit = `
CREATE TABLE audit (id bigserial PRIMARY KEY, seq bigint, kind text, key text, value bytea, session text, at timestamptz DEFAULT clock_timestamp());
CREATE FUNCTION audit_kv() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	IF TG_OP = 'DELETE' THEN
		INSERT INTO audit (kind, key) VALUES ('delete', OLD.dir || '/' || OLD.name);
	ELSE
		INSERT INTO audit (kind, key, value, session) VALUES (lower(TG_OP), NEW.dir || '/' || NEW.name, NEW.value, NEW.owner);
	END IF;
	RETURN NULL;
END $$;
CREATE FUNCTION audit_session() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	IF TG_OP = 'DELETE' THEN
		INSERT INTO audit (kind, session) VALUES ('end', OLD.id);
	ELSE -- a session begins without the lock; with it, ids are in the order of commits
		PERFORM pg_advisory_xact_lock(1919906913, 'rota.kv'::regclass::oid::integer);
		INSERT INTO audit (seq, kind, session) VALUES (rota.last(), 'open', NEW.id);
	END IF;
	RETURN NULL;
END $$;
CREATE FUNCTION audit_log() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	UPDATE audit SET seq = (SELECT max(seq) FROM added) WHERE seq IS NULL;
	RETURN NULL;
END $$;
CREATE TRIGGER audit AFTER INSERT OR UPDATE OR DELETE ON rota.kv FOR EACH ROW EXECUTE FUNCTION audit_kv();
CREATE TRIGGER audit AFTER INSERT OR DELETE ON rota.session FOR EACH ROW EXECUTE FUNCTION audit_session();
CREATE TRIGGER audit AFTER INSERT ON rota.log REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION audit_log();
CREATE INDEX ON audit ((1)) WHERE seq IS NULL;
`

// log reads the commits from the table audit.
type log struct {
	server *member

	mu      sync.Mutex
	last    int64 // id of the last row that was read
	commits []judge.Commit
}

// Take implements storelog.Log.
func (l *log) Take() []judge.Commit {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.commits
	l.commits = nil
	return all
}

const syncWithin = 30 * time.Second

// Sync implements storelog.Log.
func (l *log) Sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, syncWithin)
	defer cancel()
	for {
		err := l.read(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("read the audit: %w (%w)", context.Cause(ctx), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Close implements storelog.Log.
func (l *log) Close() error { return nil }

func (l *log) read(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	rows, err := l.server.now().Query(ctx, database, fmt.Sprintf("SELECT id, seq, kind, key, convert_from(value, 'UTF8'), session, "+
		"(extract(epoch FROM at) * 1000000)::bigint FROM audit WHERE id > %d ORDER BY id", l.last))
	if err != nil {
		return err
	}
	for _, r := range rows {
		var id, at int64
		var seq uint64
		if _, err := fmt.Sscan(strings.Join([]string{r[0], r[1], r[6]}, " "), &id, &seq, &at); err != nil {
			return fmt.Errorf("row %q: %w", r, err)
		}
		l.add(seq, time.UnixMicro(at), r[2], registry.Key(strings.TrimPrefix(r[3], "/")), []byte(r[4]), registry.SessionID(r[5]))
		l.last = id
	}
	return nil
}

// add adds a change to the commit that it belongs to. The begin and the end of a session are commits of their own; owned keys vanish with their
// session.
func (l *log) add(seq uint64, at time.Time, kind string, key registry.Key, value []byte, session registry.SessionID) {
	c := judge.Commit{Rev: registry.Rev{Seq: seq}, At: at}
	switch kind {
	case "open":
		c.Opened = session
		l.commits = append(l.commits, c)
		return
	case "end":
		c.Ended = session
		l.commits = append(l.commits, c)
		return
	}
	op := registry.Op{Kind: registry.OpSet, Key: key, Value: value}
	switch {
	case kind == "delete":
		op = registry.Op{Kind: registry.OpDelete, Key: key}
	case kind == "insert" && session != "":
		op.Kind, op.Session = registry.OpCreateOwned, session
	case kind == "insert":
		op.Kind = registry.OpCreate
	}
	if n := len(l.commits); n > 0 && l.commits[n-1].Rev.Seq == seq && l.commits[n-1].Opened == "" {
		if last := &l.commits[n-1]; last.Ended == "" {
			last.Then = append(last.Then, op)
		}
		return
	}
	c.Then = []registry.Op{op}
	l.commits = append(l.commits, c)
}
