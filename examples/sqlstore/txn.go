package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// Txn implements registry.Registry.
func (c *Client) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	return c.handle.Txn(ctx, t, c.commit)
}

// commit sends t once. Only a connection is tried for again.
func (c *Client) commit(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	var conn *sql.Conn
	err := retry(ctx, func() (err error) {
		conn, err = c.calls.Conn(ctx)
		return err
	})
	if err != nil {
		return registry.Rev{}, backend.NotApplied(err)
	}
	defer conn.Close()
	items := itemsOf(t)
	var n int64 // as the function commit of the schema describes it
	err = conn.QueryRowContext(ctx, "SELECT commit($1, $2, $3, $4, $5, $6)",
		items.kinds, items.dirs, items.names, items.revs, items.sessions, items.values).Scan(&n)
	switch {
	case err != nil && (isUnsent(err) || isRefused(err)):
		return registry.Rev{}, backend.NotApplied(translate(err))
	case err != nil:
		return registry.Rev{}, backend.Unknown(backend.CallError(ctx, err))
	case n < 0:
		return registry.Rev{}, registry.Conflict(t, int(-n)-1)
	case n == 0:
		return registry.Rev{}, fmt.Errorf("%w: the session of a CreateOwned has ended", registry.ErrSessionLost)
	}
	return revOf(n), nil
}

// isUnsent reports whether a statement has not left the process.
func isUnsent(err error) bool { return errors.Is(err, driver.ErrBadConn) || pgconn.SafeToRetry(err) }

// isRefused reports whether the server has rolled a statement back: it has answered with an error, and the connection continues. The end of
// a connection (FATAL, class 08) proves nothing.
func isRefused(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && answer.SeverityUnlocalized == "ERROR" && !strings.HasPrefix(answer.Code, "08") && answer.Code != "40003"
}

// items are the conditions and operations of a transaction, by columns.
type items struct {
	kinds, dirs, names, sessions []string
	revs                         []int64
	values                       [][]byte
}

var kindOfCond = map[registry.CondKind]string{
	registry.CondAbsent: "absent", registry.CondAt: "at", registry.CondAlive: "alive", registry.CondDead: "dead",
}

var kindOfOp = map[registry.OpKind]string{
	registry.OpCreate: "create", registry.OpCreateOwned: "create owned", registry.OpSet: "set", registry.OpDelete: "delete",
}

func itemsOf(t registry.Txn) *items {
	s := &items{}
	for i := range t.If {
		c := &t.If[i]
		s.add(kindOfCond[c.Kind], c.Key, c.Rev, c.Session, nil)
	}
	for i := range t.Then {
		o := &t.Then[i]
		s.add(kindOfOp[o.Kind], o.Key, o.Rev, o.Session, backend.EncodeValue(t.ID, o.Value))
	}
	return s
}

func (s *items) add(kind string, key registry.Key, rev registry.Rev, session registry.SessionID, value []byte) {
	if rev.Aux != 0 || rev.Seq >= 1<<63 {
		rev.Seq = 0 // which no commit has: the Rev is of another store
	}
	s.kinds = append(s.kinds, kind)
	s.dirs = append(s.dirs, string(key.Dir()))
	s.names = append(s.names, key.Name())
	s.revs = append(s.revs, int64(rev.Seq))
	s.sessions = append(s.sessions, string(session))
	s.values = append(s.values, value)
}
