package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRoute(t *testing.T) {
	byName := map[string][]string{"one": {"10.0.0.1"}, "two": {"10.0.0.2", "10.0.0.3"}}
	routeOf := func(inOrder bool, endpoints ...string) (*route, *[]error) {
		h := newMembers(&Options{Endpoints: endpoints, InOrder: inOrder, LookupHost: func(_ context.Context, name string) ([]string, error) {
			if found := byName[name]; found != nil {
				return found, nil
			}
			return nil, errors.New("unknown host " + name)
		}})
		var failed []error
		return &route{members: h, ctx: t.Context(), roundFailed: func(err error) { failed = append(failed, err) }, idle: func() {}}, &failed
	}
	next := func(r *route) string {
		address, _ := r.Next()
		return address
	}
	t.Run("looks names up in each round", func(t *testing.T) {
		r, failed := routeOf(true, "one:1", "two:2", "127.0.0.1:3")
		for _, want := range []string{"10.0.0.1:1", "10.0.0.2:2", "10.0.0.3:2", "127.0.0.1:3"} {
			require.Equal(t, want, next(r))
		}
		require.Equal(t, "two", r.members.hostName("10.0.0.3:2"))
		r.addError(errors.New("refused"))
		byName["one"] = []string{"10.0.0.9"}
		require.Equal(t, "10.0.0.9:1", next(r), "the new address of a member that moved")
		require.Len(t, *failed, 1)
		require.ErrorContains(t, (*failed)[0], "refused")
		r.Connected()
		require.Equal(t, "10.0.0.9:1", next(r), "a new round after a connection")
		require.Len(t, *failed, 1)
	})
	t.Run("begins with the preferred member and keeps the order of the others", func(t *testing.T) {
		r, _ := routeOf(true, "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")
		r.members.prefer("127.0.0.1:3")
		require.Equal(t, []string{"127.0.0.1:3", "127.0.0.1:1", "127.0.0.1:2"}, []string{next(r), next(r), next(r)})
	})
	t.Run("tries each member once per round, in random order", func(t *testing.T) {
		firsts := map[string]bool{}
		for range 100 {
			r, _ := routeOf(false, "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")
			round := []string{next(r), next(r), next(r)}
			require.ElementsMatch(t, []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}, round)
			firsts[round[0]] = true
		}
		require.Len(t, firsts, 3)
	})
	t.Run("reports unknown names and continues with the other members", func(t *testing.T) {
		r, failed := routeOf(true, "three:1", "127.0.0.1:2")
		require.Equal(t, "127.0.0.1:2", next(r))
		require.Equal(t, "127.0.0.1:2", next(r))
		require.ErrorContains(t, (*failed)[0], "three")
	})
	t.Run("tries each address once, the preferred one included", func(t *testing.T) {
		r, _ := routeOf(true, "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")
		r.members.prefer("127.0.0.1:2")
		all, err := r.members.resolve(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{"127.0.0.1:2", "127.0.0.1:1", "127.0.0.1:3"}, all)
		require.Equal(t, 3, r.Len())
	})
	t.Run("pauses between rounds, twice as long each time, and reports the errors of each", func(t *testing.T) {
		shares := map[int]bool{}
		for range 50 {
			synctest.Test(t, func(t *testing.T) {
				r, failed := routeOf(true, "127.0.0.1:1")
				r.ctx, r.maxPause = t.Context(), 100*time.Millisecond
				next(r)
				for i, pause := range []time.Duration{20, 40, 80, 100, 100} {
					pause *= time.Millisecond
					r.addError(fmt.Errorf("round %d", i))
					start := time.Now()
					next(r)
					took := time.Since(start)
					require.GreaterOrEqual(t, took, pause/2)
					require.LessOrEqual(t, took, pause)
					shares[int(10*took/pause)] = true
					require.Len(t, *failed, i+1)
					require.EqualError(t, (*failed)[i], fmt.Sprintf("round %d", i))
				}
				r.Connected()
				start := time.Now()
				next(r)
				require.Zero(t, time.Since(start), "a new round after a connection")
				next(r)
				require.LessOrEqual(t, time.Since(start), 20*time.Millisecond)
			})
		}
		require.GreaterOrEqual(t, len(shares), 5, "the pauses differ")
	})
	t.Run("ends with its context when the library is closed, and looks up no more", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, failed := routeOf(true, "one:1")
			r.members.lookup = func(context.Context, string) ([]string, error) {
				t.Error("it looks up")
				return nil, nil
			}
			ctx, cancel := context.WithCancel(t.Context())
			quit := make(chan struct{})
			r.ctx, r.closing = ctx, quit
			r.idle = func() { time.AfterFunc(time.Second, func() { close(quit) }) } // Next waits for this
			cancel()
			start := time.Now()
			_, over := r.Next()
			require.True(t, over)
			require.Equal(t, time.Second+libraryQueueTime, time.Since(start))
			require.Empty(t, *failed)
		})
	})
}
