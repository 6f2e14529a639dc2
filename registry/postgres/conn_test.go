package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// script is a server whose messages a test sends.
type script struct {
	t    *testing.T
	peer net.Conn
	back *pgproto3.Backend
}

// newScript returns a connection to a script, in a bubble.
func newScript(t *testing.T) (*conn, *script) {
	ours, peer := net.Pipe()
	c := newConn(&pgconn.HijackedConn{Conn: ours, Frontend: pgproto3.NewFrontend(ours, ours)}, "script", func(string) {}, func(*conn) {})
	go c.read()
	go c.write()
	t.Cleanup(func() {
		go io.Copy(io.Discard, peer)
		c.end(errGone)
		synctest.Wait()
		peer.Close()
	})
	return c, &script{t, peer, pgproto3.NewBackend(peer, peer)}
}

// await reads messages up to a Sync.
func (s *script) await() {
	for {
		m, err := s.back.Receive()
		require.NoError(s.t, err)
		if _, ok := m.(*pgproto3.Sync); ok {
			return
		}
	}
}

func (s *script) send(messages ...pgproto3.BackendMessage) {
	for _, m := range messages {
		s.back.Send(m)
	}
	require.NoError(s.t, s.back.Flush())
}

func ready() pgproto3.BackendMessage { return &pgproto3.ReadyForQuery{TxStatus: 'I'} }

func rowOf(v string) pgproto3.BackendMessage { return &pgproto3.DataRow{Values: [][]byte{[]byte(v)}} }

func serverErr(severity, code string) pgproto3.BackendMessage {
	return &pgproto3.ErrorResponse{Severity: severity, SeverityUnlocalized: severity, Code: code, Message: "m"}
}

type answer struct {
	rows []row
	err  error
}

func (c *conn) begin(ctx context.Context, sql string) <-chan answer {
	done := make(chan answer, 1)
	go func() {
		rows, err := c.do(ctx, statement{sql: sql})
		done <- answer{rows, err}
	}()
	return done
}

func TestConn(t *testing.T) {
	bubble := func(name string, f func(t *testing.T, c *conn, s *script)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := newScript(t)
				f(t, c, s)
			})
		})
	}
	bubble("answers requests in order, when the commit is done and not when the rows come", func(t *testing.T, c *conn, s *script) {
		one := c.begin(t.Context(), "1")
		s.await()
		two := c.begin(t.Context(), "2")
		s.await()
		s.send(rowOf("a"), &pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
		synctest.Wait()
		assert.Empty(t, one, "the server may still refuse to commit")
		s.send(ready(), rowOf(""), ready())
		assert.Equal(t, []row{{[]byte("a")}}, (<-one).rows)
		assert.Equal(t, []row{{[]byte{}}}, (<-two).rows, "an empty value is not null")
	})
	bubble("proves by an ERROR that a request was refused", func(t *testing.T, c *conn, s *script) {
		one := c.begin(t.Context(), "1")
		s.await()
		s.send(rowOf("a"), serverErr("ERROR", "40001"), ready())
		assert.True(t, refused((<-one).err))
		assert.NoError(t, c.err, "the connection goes on")
	})
	bubble("proves nothing by a FATAL, nor by the end of the connection", func(t *testing.T, c *conn, s *script) {
		one, two := c.begin(t.Context(), "1"), c.begin(t.Context(), "2")
		s.await()
		s.await()
		s.send(serverErr("FATAL", "57P01"))
		for _, done := range []<-chan answer{one, two} {
			err := (<-done).err
			require.Error(t, err)
			assert.False(t, refused(err))
			assert.NotErrorIs(t, err, errNotSent)
		}
		_, err := c.do(t.Context(), statement{sql: "3"})
		assert.ErrorIs(t, err, errNotSent, "after the farewell nothing is sent")
	})
	bubble("reports a warning, after which a commit may be on one machine only", func(t *testing.T, c *conn, s *script) {
		one := c.begin(t.Context(), "1")
		s.await()
		s.send(rowOf("a"), &pgproto3.NoticeResponse{Severity: "WARNING", SeverityUnlocalized: "WARNING", Message: "canceling wait"}, ready())
		err := (<-one).err
		require.ErrorContains(t, err, "canceling wait")
		assert.False(t, refused(err))
		assert.NotErrorIs(t, err, errNotSent)
	})
	bubble("leaves a request alone whose context has ended, and answers the next one", func(t *testing.T, c *conn, s *script) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		one := c.begin(ctx, "1")
		s.await()
		err := (<-one).err
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, errNotSent)
		two := c.begin(t.Context(), "2")
		s.await()
		s.send(rowOf("late"), ready(), rowOf("b"), ready())
		assert.Equal(t, []row{{[]byte("b")}}, (<-two).rows)
	})
	bubble("withdraws a request that a silent connection has not accepted", func(t *testing.T, c *conn, s *script) {
		one := c.begin(t.Context(), "1") // the pipe accepts nothing until it is read
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		two := c.begin(ctx, "2")
		require.ErrorIs(t, (<-two).err, errNotSent)
		s.await()
		s.send(ready())
		require.NoError(t, (<-one).err)
	})
	bubble("measures silence while a request is unanswered", func(t *testing.T, c *conn, s *script) {
		time.Sleep(time.Minute)
		assert.Zero(t, c.silence(), "nothing is asked")
		one := c.begin(t.Context(), "1")
		s.await()
		time.Sleep(time.Second)
		assert.Equal(t, time.Second, c.silence())
		s.send(ready())
		<-one
		assert.Zero(t, c.silence())
	})
	bubble("ends when it is retired and all is answered", func(t *testing.T, c *conn, s *script) {
		one := c.begin(t.Context(), "1")
		s.await()
		c.retire()
		_, err := c.do(t.Context(), statement{sql: "2"})
		assert.ErrorIs(t, err, errNotSent)
		go func() { s.send(rowOf("a"), ready()) }()
		assert.Equal(t, []row{{[]byte("a")}}, (<-one).rows, "a late answer counts")
		<-c.ended
		go io.Copy(io.Discard, s.peer)
	})
	bubble("ends when it is retired and never answered", func(t *testing.T, c *conn, s *script) {
		one := c.begin(t.Context(), "1")
		s.await()
		c.retire()
		assert.ErrorIs(t, (<-one).err, errGone)
	})
}

func TestSlot_ReplacesASilentConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dialed := 0
		ctx, cancel := context.WithCancel(t.Context())
		s := newSlot(ctx, time.Second, inBackground(t), nil)
		var scripts []*script
		s.dial = func(ctx context.Context, onEnd func(*conn)) (*conn, error) {
			if dialed++; dialed == 2 {
				return nil, errors.New("not yet")
			}
			c, peer := newScript(t)
			c.onEnd = onEnd
			scripts = append(scripts, peer)
			return c, nil
		}
		first, err := s.get(t.Context())
		require.NoError(t, err)
		one := first.begin(t.Context(), "1")
		scripts[0].await()
		same, err := s.get(t.Context())
		require.NoError(t, err)
		require.Same(t, first, same)
		time.Sleep(1100 * time.Millisecond)
		_, _ = s.get(t.Context()) // suspects it
		time.Sleep(time.Second)
		second, err := s.get(t.Context())
		require.NoError(t, err)
		require.NotSame(t, first, second)
		go func() { scripts[0].send(rowOf("late"), ready()) }()
		require.Equal(t, []row{{[]byte("late")}}, (<-one).rows, "the silent connection may still answer")
		cancel()
		go io.Copy(io.Discard, scripts[0].peer)
		go io.Copy(io.Discard, scripts[1].peer)
		s.close()
	})
}
