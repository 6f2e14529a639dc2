package guarded

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
)

func TestOnce(t *testing.T) {
	run := &executor.Run{RunInfo: executor.RunInfo{ID: "settle/2/x/1", Key: "settle/2/x", Namespace: "billing", Group: "blue", Job: "settle", Shard: 2, Fence: 7}}
	failure := errors.New("no disk")
	for name, c := range map[string]struct {
		newest, first int64 // rows that the two statements change
		fails, want   error
		writes        bool
		ends          string
	}{
		"commits the first work of the newest run":  {newest: 1, first: 1, writes: true, ends: "commit"},
		"does not repeat committed work":            {newest: 1, first: 0, ends: "roll back"},
		"refuses a run that another has overtaken":  {newest: 0, first: 1, want: executor.ErrRunOver, ends: "roll back"},
		"rolls back when the work returns an error": {newest: 1, first: 1, fails: failure, want: failure, writes: true, ends: "roll back"},
	} {
		t.Run(name, func(t *testing.T) {
			fake := &fakeDB{changed: map[string]int64{"fences": c.newest, "done": c.first}}
			db := sql.OpenDB(fake)
			defer db.Close()
			wrote := false
			h := Once(db, func(_ context.Context, _ *sql.Tx, r *executor.Run) error {
				wrote = r == run
				return c.fails
			})
			require.ErrorIs(t, h(t.Context(), run), c.want)
			assert.Equal(t, c.writes, wrote)
			assert.Equal(t, c.ends, fake.end)
			assert.Equal(t, []driver.Value{"billing/blue/settle/2", int64(7)}, fake.args["fences"])
		})
	}
}

// fakeDB is a database of one connection that answers statements about a table with a
// number of changed rows, and records their arguments and how the transaction ends.
type fakeDB struct {
	changed map[string]int64
	args    map[string][]driver.Value
	end     string
}

func (f *fakeDB) Connect(context.Context) (driver.Conn, error) { return f, nil }
func (f *fakeDB) Driver() driver.Driver                        { return nil }
func (f *fakeDB) Begin() (driver.Tx, error)                    { return f, nil }
func (f *fakeDB) Close() error                                 { return nil }

func (f *fakeDB) Commit() error {
	f.end = "commit"
	return nil
}

func (f *fakeDB) Rollback() error {
	f.end = "roll back"
	return nil
}

func (f *fakeDB) Prepare(query string) (driver.Stmt, error) {
	return fakeStmt{f, strings.Fields(query)[2]}, nil // INSERT INTO <table>
}

type fakeStmt struct {
	*fakeDB
	table string
}

func (s fakeStmt) NumInput() int { return -1 }

func (s fakeStmt) Exec(args []driver.Value) (driver.Result, error) {
	if s.args == nil {
		s.args = map[string][]driver.Value{}
	}
	s.args[s.table] = args
	return driver.RowsAffected(s.changed[s.table]), nil
}

func (s fakeStmt) Query([]driver.Value) (driver.Rows, error) { return nil, errors.ErrUnsupported }
