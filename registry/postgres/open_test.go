package postgres_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/postgres"
	"github.com/rota-dev/rota/registry/postgres/internal/pgserver"
)

const database = "postgres"

var silent = slog.New(slog.DiscardHandler)

// optionsOf returns the options of a registry in a schema of its own, which does not exist.
func optionsOf(s *pgserver.Server) postgres.Options {
	return postgres.Options{
		Endpoints: []string{s.Addr()}, Database: database, Username: "rota", Schema: "t_" + strings.ToLower(rand.Text()[:10]), Logger: silent,
	}
}

// newRegistry returns the options of a registry that exists.
func newRegistry(t *testing.T, s *pgserver.Server) postgres.Options {
	o := optionsOf(s)
	require.NoError(t, postgres.Migrate(t.Context(), o))
	return o
}

func open(t *testing.T, o postgres.Options) *postgres.Client {
	c, err := postgres.Open(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { closeWithin(c, 5*time.Second) })
	return c
}

func closeWithin(c *postgres.Client, d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	_ = c.Close(ctx)
}

// exec executes statements as the superuser, with the schema of o in place of rota.
func exec(t *testing.T, s *pgserver.Server, o postgres.Options, sql string) [][]string {
	rows, err := s.Query(t.Context(), database, strings.ReplaceAll(sql, "rota.", o.Schema+"."))
	require.NoError(t, err, sql)
	return rows
}

// newRole returns the name of a role with statements executed for it, in which it is called $ROLE.
func newRole(t *testing.T, s *pgserver.Server, o postgres.Options, sql string) string {
	role := "r_" + strings.ToLower(rand.Text()[:10])
	exec(t, s, o, strings.ReplaceAll("CREATE ROLE $ROLE LOGIN;"+sql, "$ROLE", role))
	t.Cleanup(func() {
		_ = s.Exec(context.Background(), database, "DROP OWNED BY "+role+"; DROP ROLE "+role)
	})
	return role
}

// grants are those that the page on stores lists.
const grants = grantsOfTables + "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA %[1]s TO $ROLE;"

const readGrants = readGrantsOfTables + "GRANT EXECUTE ON FUNCTION %[1]s.get, %[1]s.list, %[1]s.changes, %[1]s.last, %[1]s.check_primary TO $ROLE;"

// Those that it listed before step 4 of the schema.
const (
	grantsOfTables     = "GRANT USAGE ON SCHEMA %[1]s TO $ROLE; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %[1]s TO $ROLE;"
	readGrantsOfTables = "GRANT USAGE ON SCHEMA %[1]s TO $ROLE; GRANT SELECT ON ALL TABLES IN SCHEMA %[1]s TO $ROLE;"
)

func TestOpen_NamesWhatIsMissing(t *testing.T) {
	s := sharedServer(t)
	o := newRegistry(t, s)
	refuse := func(o postgres.Options) error {
		c, err := postgres.Open(t.Context(), o)
		if !assert.Error(t, err) {
			closeWithin(c, time.Second)
		}
		return err
	}
	t.Run("the schema", func(t *testing.T) {
		err := refuse(optionsOf(s))
		require.ErrorIs(t, err, postgres.ErrNoSchema)
		require.NotErrorIs(t, err, registry.ErrUnavailable, "no retry helps")
		require.ErrorContains(t, err, "rota postgres migrate")
	})
	t.Run("the database", func(t *testing.T) {
		o := o
		o.Database = "none"
		err := refuse(o)
		require.ErrorIs(t, err, postgres.ErrNoSchema)
		require.NotErrorIs(t, err, registry.ErrUnavailable, "no retry helps")
		require.ErrorContains(t, err, `database "none" does not exist`)
		require.ErrorContains(t, err, "rota postgres migrate")
	})
	t.Run("a later version of the schema", func(t *testing.T) {
		o := newRegistry(t, s)
		exec(t, s, o, "DELETE FROM rota.version; INSERT INTO rota.version VALUES (0)")
		err := refuse(o)
		require.ErrorIs(t, err, postgres.ErrNoSchema)
		require.ErrorContains(t, err, fmt.Sprintf("has version 0, this program needs %d", postgres.SchemaVersion()))
	})
	t.Run("rights to the schema", func(t *testing.T) {
		o := o
		o.Username = newRole(t, s, o, "")
		require.ErrorIs(t, refuse(o), registry.ErrPermission)
	})
	t.Run("rights to tables", func(t *testing.T) {
		o := o
		o.Username = newRole(t, s, o, fmt.Sprintf(readGrants, o.Schema))
		err := refuse(o)
		require.ErrorIs(t, err, registry.ErrPermission)
		require.ErrorContains(t, err, "DELETE on "+o.Schema+".kv")
	})
	t.Run("rights to functions", func(t *testing.T) {
		o := o
		o.Username = newRole(t, s, o, fmt.Sprintf(grantsOfTables, o.Schema))
		err := refuse(o)
		require.ErrorIs(t, err, registry.ErrPermission)
		require.ErrorContains(t, err, "EXECUTE on function "+o.Schema+".start_commit")
		require.NotContains(t, err.Error(), "complete_run", "others call it")
		o.ReadOnly = true
		err = refuse(o)
		require.ErrorIs(t, err, registry.ErrPermission)
		require.ErrorContains(t, err, "EXECUTE on function "+o.Schema+".list")
		require.NotContains(t, err.Error(), "start_commit")
	})
	t.Run("the role", func(t *testing.T) {
		o := o
		o.Username = "nobody"
		require.ErrorIs(t, refuse(o), registry.ErrUnauthenticated)
	})
	t.Run("a server", func(t *testing.T) {
		o := o
		o.Endpoints = []string{"127.0.0.1:1"}
		err := refuse(o)
		require.ErrorIs(t, err, registry.ErrUnavailable)
		require.ErrorContains(t, err, "127.0.0.1:1")
	})
	t.Run("READ COMMITTED", func(t *testing.T) {
		for _, level := range []string{"repeatable read", "serializable"} {
			o := o
			o.Username = newRole(t, s, o, fmt.Sprintf(grants, o.Schema)+"ALTER ROLE $ROLE SET default_transaction_isolation = '"+level+"'")
			err := refuse(o)
			require.ErrorContains(t, err, level)
			require.ErrorContains(t, err, "default_transaction_isolation")
		}
	})
}

func TestOpen_NeedsNoMoreThanTheDocumentedRights(t *testing.T) {
	s := sharedServer(t)
	o := newRegistry(t, s)
	o.Username = newRole(t, s, o, fmt.Sprintf(grants, o.Schema))
	c := open(t, o)
	session, err := c.OpenSession(t.Context(), registry.SessionOptions{})
	require.NoError(t, err)
	_, err = c.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.CreateOwned("d/~k", nil, session.ID())}})
	require.NoError(t, err)
	require.NoError(t, session.Close(t.Context()))

	o.Username, o.ReadOnly = newRole(t, s, o, fmt.Sprintf(readGrants, o.Schema)), true
	c = open(t, o)
	_, err = c.List(t.Context(), "d", registry.ReadOptions{})
	require.NoError(t, err)
	w, err := c.Watch(t.Context(), "d", registry.WatchOptions{})
	require.NoError(t, err)
	_, err = w.Next(t.Context())
	require.NoError(t, err)
	_, err = c.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("d/k", nil)}})
	require.ErrorIs(t, err, registry.ErrReadOnly)
}

// TestStoresPage executes the statements of the page: those that grant rights, with which handles open, and those that look.
// The rights of a fleet are those of the first service.
func TestStoresPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/stores.md")
	require.NoError(t, err)
	first, err := os.ReadFile("../../docs/guide/first-service.md")
	require.NoError(t, err)
	sqlAfter := func(heading string) (all string) {
		_, section, found := strings.Cut(string(text), "# "+heading+"\n")
		require.True(t, found, heading)
		section, _, _ = strings.Cut(section, "\n#")
		for _, block := range strings.Split(section, "```sql\n")[1:] {
			block, _, _ = strings.Cut(block, "```")
			all += block
		}
		return all
	}
	s := startServer(t)
	o := optionsOf(s)
	o.Schema = ""
	require.NoError(t, postgres.Migrate(t.Context(), o))
	run := func(sql string) { require.NoError(t, s.Exec(t.Context(), database, sql)) }
	run("CREATE ROLE fleet LOGIN; CREATE ROLE grafana LOGIN; CREATE ROLE app")
	for line := range strings.Lines(string(first)) {
		if strings.HasPrefix(line, "GRANT ") {
			run(strings.ReplaceAll(line, "TO rota", "TO fleet")) // rota is the superuser here
		}
	}
	run(sqlAfter("Rights on PostgreSQL"))
	o.Username = "fleet"
	open(t, o)
	o.Username, o.ReadOnly = "grafana", true
	open(t, o)
	queries := sqlAfter("What to watch")
	run(queries)
	_, connections, _ := strings.Cut(queries, "-- Connections")
	_, connections, _ = strings.Cut(connections, "\n")
	require.Eventually(t, func() bool {
		rows, err := s.Query(t.Context(), database, "SELECT usename, sum(count) FROM ("+strings.TrimSuffix(strings.TrimSpace(connections), ";")+") c GROUP BY 1 ORDER BY 1")
		return err == nil && fmt.Sprint(rows) == "[[fleet 4] [grafana 2]]"
	}, patience, 20*time.Millisecond, "a process has as many as the page says")
}

// TestTxn_RefusesAnIsolationLevelThatWasSetLater changes the default of a role whose handle is open: new connections have it.
func TestTxn_RefusesAnIsolationLevelThatWasSetLater(t *testing.T) {
	s := sharedServer(t)
	o := newRegistry(t, s)
	o.Username = newRole(t, s, o, fmt.Sprintf(grants, o.Schema))
	c := open(t, o)
	exec(t, s, o, "ALTER ROLE "+o.Username+" SET default_transaction_isolation = 'repeatable read'; "+
		"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '"+o.Username+"'")
	require.Eventually(t, func() bool {
		_, err := c.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
		require.Error(t, err)
		return strings.Contains(err.Error(), "the isolation level is repeatable read") && errors.Is(err, registry.ErrNotApplied)
	}, 20*time.Second, 20*time.Millisecond)
	_, err := c.Get(t.Context(), "k", registry.ReadOptions{})
	require.ErrorIs(t, err, registry.ErrNotFound, "nothing was changed")
}

func TestMigrate(t *testing.T) {
	s := sharedServer(t)
	t.Run("may be called by several processes at once, and again", func(t *testing.T) {
		o := optionsOf(s)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { assert.NoError(t, postgres.Migrate(t.Context(), o)) })
		}
		wg.Wait()
		require.NoError(t, postgres.Migrate(t.Context(), o))
		require.Equal(t, [][]string{{"1"}, {"2"}, {"3"}, {"4"}, {"5"}}, exec(t, s, o, "SELECT version FROM rota.version ORDER BY version"))
	})
	t.Run("leaves a later version alone", func(t *testing.T) {
		o := newRegistry(t, s)
		exec(t, s, o, "INSERT INTO rota.version VALUES (99); DROP FUNCTION rota.wall CASCADE")
		require.NoError(t, postgres.Migrate(t.Context(), o))
		require.Equal(t, [][]string{{"0"}}, exec(t, s, o, "SELECT count(*) FROM pg_proc WHERE proname = 'wall' AND pronamespace = '"+o.Schema+"'::regnamespace"))
		open(t, o)
	})
	t.Run("needs no right to create schemas if the schema exists", func(t *testing.T) {
		o := optionsOf(s)
		o.Username = newRole(t, s, o, "CREATE SCHEMA "+o.Schema+" AUTHORIZATION $ROLE")
		require.NoError(t, postgres.Migrate(t.Context(), o))
		open(t, o)
	})
	t.Run("names a missing right", func(t *testing.T) {
		o := optionsOf(s)
		o.Username = newRole(t, s, o, "")
		err := postgres.Migrate(t.Context(), o)
		require.ErrorIs(t, err, registry.ErrPermission)
		require.ErrorContains(t, err, "migrate schema "+o.Schema)
	})
	t.Run("changes all or nothing", func(t *testing.T) {
		o := optionsOf(s)
		exec(t, s, o, "CREATE SCHEMA "+o.Schema+"; CREATE FUNCTION rota.reap(boolean) RETURNS boolean LANGUAGE sql AS 'SELECT true'")
		require.Error(t, postgres.Migrate(t.Context(), o))
		require.Equal(t, [][]string{{"0"}}, exec(t, s, o, "SELECT count(*) FROM pg_class WHERE relnamespace = '"+o.Schema+"'::regnamespace"))
	})
	t.Run("leaves each role the functions that its rights to tables were made for", func(t *testing.T) {
		o := optionsOf(s)
		exec(t, s, o, thirdVersion(t, o))
		fleet, looking := o, o
		fleet.Username = newRole(t, s, o, fmt.Sprintf(grantsOfTables, o.Schema))
		looking.Username, looking.ReadOnly = newRole(t, s, o, fmt.Sprintf(readGrantsOfTables, o.Schema)), true
		completing := newRole(t, s, o, strings.Join(grantsOfStep(t, o, "complete_run"), " TO $ROLE;")+" TO $ROLE")
		posting := newRole(t, s, o, strings.Join(grantsOfStep(t, o, "post"), " TO $ROLE;")+" TO $ROLE")
		require.NoError(t, postgres.Migrate(t.Context(), o))
		open(t, fleet)
		open(t, looking)
		for role, want := range map[string]string{
			looking.Username: "{changes,check_primary,get,last,list}", completing: "{complete_run}", posting: "{post}",
		} {
			got := exec(t, s, o, "SELECT array_agg(proname ORDER BY proname) FROM pg_proc WHERE pronamespace = '"+o.Schema+"'::regnamespace AND has_function_privilege('"+role+"', oid, 'EXECUTE')")
			require.Equal(t, want, got[0][0])
		}
	})
	t.Run("can be done by the printed statements, from nothing, from an earlier version and again", func(t *testing.T) {
		o := optionsOf(s)
		text, err := postgres.MigrationSQL(o.Schema)
		require.NoError(t, err)
		require.NotContains(t, text, "rota.")
		exec(t, s, o, text)
		exec(t, s, o, text)
		open(t, o)
		exec(t, s, o, "DROP SCHEMA "+o.Schema+" CASCADE")
		exec(t, s, o, thirdVersion(t, o))
		exec(t, s, o, text)
		open(t, o)
		_, err = postgres.MigrationSQL("Bad")
		require.ErrorContains(t, err, "lower-case")
	})
}

// thirdVersion returns the statements for the third version of a schema.
func thirdVersion(t *testing.T, o postgres.Options) string {
	text, err := postgres.MigrationSQL(o.Schema)
	require.NoError(t, err)
	const end = ".version (version) VALUES (3);\n$step$;\nEND IF;\n"
	before, _, found := strings.Cut(text, end)
	require.True(t, found)
	return before + end + "END $migrate$;"
}

// logged is a log that can be read while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestOpen_WarnsOfAServerThatDoesNotSync(t *testing.T) {
	o := newRegistry(t, sharedServer(t))
	var log logged
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	open(t, o)
	require.Contains(t, log.String(), "the server does not sync its disk")
}
