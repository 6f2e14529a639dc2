package tcpproxy

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lines is a protocol whose frames are lines: a word and the ID of the request. "txn" is a
// transaction, of which all lines but the last end in "+"; "renew" is a renewal.
type lines struct{}

func (lines) Parse(_ Direction, b []byte) (n int, f Frame, err error) {
	n = bytes.IndexByte(b, '\n') + 1
	if n == 0 {
		return 0, f, nil
	}
	words := strings.Fields(strings.ToLower(string(b[:n])))
	if f.ID, err = strconv.ParseUint(strings.TrimSuffix(words[1], "+"), 10, 64); err != nil {
		return 0, f, err
	}
	f.Data, f.More = b[:n], strings.HasSuffix(words[1], "+")
	switch words[0] {
	case "txn":
		f.Kind = Transaction
	case "renew":
		f.Kind = Renewal
	}
	return n, f, nil
}

func newRequests(t *testing.T) (*Requests, *Proxy, *echo) {
	e := newEcho(t)
	p := newProxy(t, e.Addr().String())
	r := NewRequests(func() Parser { return lines{} })
	p.SetFilter(r.Filter)
	return r, p, e
}

func TestRequests(t *testing.T) {
	t.Run("without a fault everything passes, in any portions", func(t *testing.T) {
		filter := NewRequests(func() Parser { return lines{} }).Filter()
		for _, portion := range []struct{ in, out string }{{"tx", ""}, {"n 1\nget 2\nren", "txn 1\nget 2\n"}, {"ew 3\n", "renew 3\n"}} {
			for _, d := range []Direction{ToServer, ToClient} {
				passed, err := filter(t.Context(), d, []byte(portion.in))
				require.NoError(t, err)
				require.Equal(t, portion.out, string(passed))
			}
		}
	})
	t.Run("a lost request does not arrive, and others do", func(t *testing.T) {
		r, p, e := newRequests(t)
		c, other := dial(t, p), dial(t, p)
		r.LoseRequest()
		c.send("get 1")
		c.expectLine("GET 1")
		c.send("txn 2")
		c.expectReset()
		other.send("txn 3")
		other.expectLine("TXN 3")
		require.Zero(t, e.count("txn 2"))
	})
	t.Run("a lost reply belongs to a request that arrived", func(t *testing.T) {
		r, p, e := newRequests(t)
		c := dial(t, p)
		r.LoseReply()
		heal := p.OneWay(ToClient)
		c.send("get 1")
		c.send("txn 2")
		require.Eventually(t, func() bool { return e.count("txn 2") == 1 }, patience, time.Millisecond)
		heal()
		c.expectResetAfter("GET 1") // which may come before the reply that is lost, in a segment of its own
	})
	t.Run("orders act on one transaction each, in their order", func(t *testing.T) {
		r, p, e := newRequests(t)
		r.LoseRequest()
		r.LoseReply()
		for i := range 2 {
			c := dial(t, p)
			c.send("txn " + strconv.Itoa(i))
			c.expectReset()
			require.Equal(t, i, e.count("txn "+strconv.Itoa(i)))
		}
		c := dial(t, p)
		c.send("txn 2")
		c.expectLine("TXN 2")
	})
	t.Run("a held transaction arrives at release, which waits for the reply", func(t *testing.T) {
		r, p, e := newRequests(t)
		c := dial(t, p)
		release := r.Hold(nil)
		c.send("txn 1")
		c.send("get 2")
		c.expectNothing()
		require.Zero(t, e.count("txn 1")+e.count("get 2"))
		release()
		require.Equal(t, 1, e.count("txn 1"))
		release()
		c.expectLine("TXN 1")
		c.expectLine("GET 2")
	})
	t.Run("a held transaction arrives though its client has gone", func(t *testing.T) {
		r, p, e := newRequests(t)
		c := dial(t, p)
		release := r.Hold(nil)
		c.send("txn 1")
		c.expectNothing()
		c.Close()
		release()
		require.Eventually(t, func() bool { return e.count("txn 1") == 1 }, patience, time.Millisecond)
	})
	t.Run("a transaction to be replayed is complete, and breaks its connection", func(t *testing.T) {
		r, p, e := newRequests(t)
		c := dial(t, p)
		var replayed []string
		release := r.Hold(func(txn []byte) { replayed = append(replayed, string(txn)) })
		c.send("txn 1+")
		c.send("get 2")
		c.send("more 1+")
		c.expectNothing()
		c.send("last 1")
		c.expectReset()
		require.Zero(t, e.count("txn 1+")+e.count("get 2"))
		release()
		release()
		require.Equal(t, []string{"txn 1+\nmore 1+\nlast 1\n"}, replayed)
	})
	t.Run("release cancels a hold that no transaction met", func(t *testing.T) {
		r, p, _ := newRequests(t)
		for _, replay := range []func([]byte){nil, func([]byte) { t.Error("it replays") }} {
			r.Hold(replay)()
		}
		c := dial(t, p)
		c.send("txn 1")
		c.expectLine("TXN 1")
	})
	t.Run("release returns when the connection of the held transaction has ended", func(t *testing.T) {
		r, p, _ := newRequests(t)
		c := dial(t, p)
		release := r.Hold(nil)
		c.send("txn 1")
		c.expectNothing()
		p.Cut()
		begun := time.Now()
		release()
		require.Less(t, time.Since(begun), releaseTimeout)
	})
	t.Run("renewals are dropped while starved, and nothing else is", func(t *testing.T) {
		r, p, e := newRequests(t)
		c := dial(t, p)
		one, two := r.Starve(), r.Starve()
		one()
		one()
		c.send("renew 1")
		c.send("get 2")
		c.expectLine("GET 2")
		two()
		c.send("renew 3")
		c.expectLine("RENEW 3")
		require.Zero(t, e.count("renew 1"))
	})
	t.Run("a parser's error resets the connection", func(t *testing.T) {
		_, p, _ := newRequests(t)
		c := dial(t, p)
		c.send("txn one")
		c.expectReset()
	})
}
