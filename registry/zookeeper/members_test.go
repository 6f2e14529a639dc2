package zookeeper

import (
	"context"
	"errors"
	"testing"

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
	t.Run("ends with its context", func(t *testing.T) {
		r, _ := routeOf(true, "127.0.0.1:1")
		ctx, cancel := context.WithCancel(t.Context())
		quit := make(chan struct{})
		r.ctx, r.closing = ctx, quit
		r.idle = func() { close(quit) } // Next waits for this
		cancel()
		_, over := r.Next()
		require.True(t, over)
	})
}
