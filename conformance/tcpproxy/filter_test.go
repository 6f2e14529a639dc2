package tcpproxy

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLoseNextReply(t *testing.T) {
	t.Run("forwards the request and cuts before the reply", func(t *testing.T) {
		e := newEcho(t)
		p := newProxy(t, e.Addr().String())
		c, other := dial(t, p), dial(t, p)
		c.send("a")
		c.expectLine("A")
		lost, cancel := p.LoseNextReply()
		defer cancel()
		c.send("b")
		c.expectReset()
		receive(t, lost)
		require.Equal(t, 1, e.count("b"))
		other.send("c") // is not concerned
		other.expectLine("C")
	})
	t.Run("keeps bytes sent without a request", func(t *testing.T) {
		e := newEcho(t)
		p := newProxy(t, e.Addr().String())
		c := dial(t, p)
		heal := p.OneWay(ToClient)
		c.send("a")
		require.Eventually(t, func() bool { return e.count("a") == 1 }, patience, time.Millisecond)
		_, cancel := p.LoseNextReply()
		defer cancel()
		heal()
		c.expectLine("A")
	})
	t.Run("loses one reply per call", func(t *testing.T) {
		p := newProxy(t, newEcho(t).Addr().String())
		one, _ := p.LoseNextReply()
		two, _ := p.LoseNextReply()
		for _, lost := range []<-chan struct{}{one, two} {
			c := dial(t, p)
			c.send("a")
			c.expectReset()
			receive(t, lost)
		}
		c := dial(t, p)
		c.send("a")
		c.expectLine("A")
	})
	t.Run("can be canceled", func(t *testing.T) {
		e := newEcho(t)
		p := newProxy(t, e.Addr().String())
		lost, cancel := p.LoseNextReply()
		cancel()
		c := dial(t, p)
		c.send("a")
		c.expectLine("A")

		lostToo, cancel := p.LoseNextReply()
		heal := p.OneWay(ToClient)
		c.send("b") // for which the order is taken
		require.Eventually(t, func() bool { return e.count("b") == 1 }, patience, time.Millisecond)
		cancel()
		heal()
		c.expectLine("B")
		require.Empty(t, lost)
		select {
		case <-lost:
			t.Error("lost")
		case <-lostToo:
			t.Error("lost")
		default:
		}
	})
	t.Run("completes when the connection ends before the reply", func(t *testing.T) {
		e := newEcho(t)
		p := newProxy(t, e.Addr().String())
		lost, _ := p.LoseNextReply()
		heal := p.OneWay(ToClient)
		defer heal()
		c := dial(t, p)
		c.send("a")
		require.Eventually(t, func() bool { return e.count("a") == 1 }, patience, time.Millisecond)
		p.Cut()
		receive(t, lost)
	})
}

func receive(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatal("channel was not closed in time")
	}
}

func TestSetFilter(t *testing.T) {
	t.Run("sees each connection completely and in order", func(t *testing.T) {
		p := newProxy(t, newEcho(t).Addr().String())
		var mu sync.Mutex
		var seen []*[2]bytes.Buffer // by connection
		p.SetFilter(func() Filter {
			var mine [2]bytes.Buffer
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, &mine)
			return func(_ context.Context, d Direction, b []byte) ([]byte, error) {
				mu.Lock()
				defer mu.Unlock()
				mine[d].Write(b)
				return b, nil
			}
		})
		a, b := dial(t, p), dial(t, p)
		for _, line := range []string{"a", "bc"} {
			a.send(line)
			a.expectLine(string(bytes.ToUpper([]byte(line))))
		}
		b.send("d")
		b.expectLine("D")
		mu.Lock()
		defer mu.Unlock()
		var got [][2]string
		for _, s := range seen {
			got = append(got, [2]string{s[ToServer].String(), s[ToClient].String()})
		}
		slices.SortFunc(got, func(a, b [2]string) int { return len(b[0]) - len(a[0]) })
		require.Equal(t, [][2]string{{"a\nbc\n", "A\nBC\n"}, {"d\n", "D\n"}}, got)
	})
	t.Run("forwards the bytes that the filter returns", func(t *testing.T) {
		e := newEcho(t)
		p := newProxy(t, e.Addr().String())
		useFilter(p, func(_ context.Context, d Direction, b []byte) ([]byte, error) {
			if d == ToServer {
				return bytes.ReplaceAll(b, []byte("a"), []byte("bb")), nil
			}
			return b, nil
		})
		c := dial(t, p)
		c.send("xay")
		c.expectLine("XBBY")
	})
	t.Run("drops bytes for which it returns nothing", func(t *testing.T) {
		e := newEcho(t)
		p := newProxy(t, e.Addr().String())
		useFilter(p, func(context.Context, Direction, []byte) ([]byte, error) { return nil, nil })
		c := dial(t, p)
		c.send("a")
		c.expectNothing()
		require.Zero(t, e.count("a"))
	})
	t.Run("cuts the connection on an error", func(t *testing.T) {
		e := newEcho(t)
		p := newProxy(t, e.Addr().String())
		useFilter(p, func(_ context.Context, _ Direction, b []byte) ([]byte, error) {
			if bytes.Contains(b, []byte("bad")) {
				return nil, errors.New("bad")
			}
			return b, nil
		})
		c := dial(t, p)
		c.send("good")
		c.expectLine("GOOD")
		c.send("bad")
		c.expectReset()
		require.Zero(t, e.count("bad"))
	})
	t.Run("may block until the connection ends", func(t *testing.T) {
		p := newProxy(t, newEcho(t).Addr().String())
		useFilter(p, func(ctx context.Context, _ Direction, _ []byte) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		c := dial(t, p)
		c.send("a")
		c.expectNothing()
		p.Close()
		c.expectReset()
	})
}

func useFilter(p *Proxy, f Filter) { p.SetFilter(func() Filter { return f }) }
