package registry_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/registrytest"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestPrefix_ReadsBelowTheDirectory(t *testing.T) {
	for name, make := range map[string]func(reg registry.Registry) registry.Registry{
		"a directory":          func(reg registry.Registry) registry.Registry { return registry.Prefix(reg, "x/y") },
		"a prefix of a prefix": func(reg registry.Registry) registry.Registry { return registry.Prefix(registry.Prefix(reg, "x"), "y") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reg := client(t)
				p := make(reg)
				rev := registrytest.Commit(t, reg, registry.Create("x/y/d/a", []byte("1")), registry.Create("x/y/d/b", nil),
					registry.Create("x/y/k", nil), registry.Create("x/k", nil), registry.Create("x/yz/k", nil), registry.Create("k", nil))

				require.Equal(t, registry.Key("d/a"), registrytest.Get(t, p, "d/a").Key)
				require.Equal(t, "1", string(registrytest.Get(t, p, "d/a").Value))
				require.Equal(t, rev, registrytest.Get(t, p, "k").Modified)
				require.Equal(t, []registry.Key{"k"}, keys(listed(t, p, "")))
				require.Equal(t, []registry.Key{"d/a", "d/b"}, keys(listed(t, p, "d")))
				isAbsent(t, p, "x/k")

				w, err := p.Watch(t.Context(), "d", registry.WatchOptions{})
				require.NoError(t, err)
				b, err := w.Next(t.Context())
				require.NoError(t, err)
				require.Equal(t, registry.Snapshot, b.Kind)
				require.Equal(t, []registry.Key{"d/a", "d/b"}, keys(b.Puts))
				registrytest.Commit(t, p, registry.Delete("d/a", rev), registry.Create("d/c", nil))
				b, err = w.Next(t.Context())
				require.NoError(t, err)
				require.Equal(t, []registry.Key{"d/c"}, keys(b.Puts))
				require.Equal(t, []registry.Key{"d/a"}, b.Deletes)
				require.NoError(t, w.Close())
				require.Equal(t, reg.Limits(), p.Limits())
				require.Equal(t, []registry.Key{"x/y/d/b", "x/y/d/c"}, keys(listed(t, reg, "x/y/d")))
			})
		})
	}
}

func keys(entries []registry.Entry) []registry.Key {
	var keys []registry.Key
	for _, e := range entries {
		keys = append(keys, e.Key)
	}
	return keys
}

func TestPrefix_WritesBelowTheDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := client(t)
		p := registry.Prefix(reg, "x")
		s, err := p.OpenSession(t.Context(), registry.SessionOptions{})
		require.NoError(t, err)
		isAlive(t, reg, s.ID())
		registrytest.Commit(t, p, registry.CreateOwned("d/~a", []byte("v"), s.ID()))
		require.Equal(t, s.ID(), registrytest.Get(t, reg, "x/d/~a").Owner)

		txn := registry.Txn{
			ID:   registry.NewTxnID(),
			If:   []registry.Cond{registry.Alive(s.ID()), registry.Absent("d/b")},
			Then: []registry.Op{registry.Create("d/b", []byte("v"))},
		}
		rev, err := p.Txn(t.Context(), txn)
		require.NoError(t, err)
		require.Equal(t, txn.ID, registrytest.Get(t, reg, "x/d/b").Txn)
		require.Equal(t, registry.Key("d/b"), txn.Then[0].Key, "the caller's transaction is unchanged")
		require.Equal(t, registry.Key("d/b"), txn.If[1].Key)

		_, err = p.Txn(t.Context(), txn)
		require.Equal(t, registry.Conflict(txn, 1), err)
		txn.If = []registry.Cond{registry.At("d/b", rev)}
		_, err = p.Txn(t.Context(), txn)
		require.Equal(t, registry.Conflict(txn, 1), err)
		require.NoError(t, s.Close(t.Context()))
		isAbsent(t, p, "d/~a")
	})
}

func TestPrefix_ChecksKeysWithAndWithoutTheDirectory(t *testing.T) {
	deep := strings.Repeat("s/", 14)
	wide := strings.Repeat("s", 120)
	for name, c := range map[string]struct {
		dir, key registry.Key
		ok       bool
	}{
		"an empty key":              {"x", "", false},
		"a slash before":            {"x", "/k", false},
		"a slash after":             {"x", "k/", false},
		"two dots":                  {"x", "../k", false},
		"a space":                   {"x", "a b", false},
		"below an owned key":        {"~x", "k", false},
		"sixteen segments":          {"x", registry.Key(deep + "k"), true},
		"seventeen segments":        {"x/y", registry.Key(deep + "k"), false},
		"512 bytes":                 {registry.Join(wide, wide, wide), registry.Join(wide, "s123456789012345678901234567"), true},
		"513 bytes":                 {registry.Join(wide, wide, wide), registry.Join(wide, "s1234567890123456789012345678"), false},
		"an invalid directory":      {"x/", "k", false},
		"the root as the directory": {"", "k", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memory.New()
				p := registry.Prefix(registrytest.Client(t, s, "a"), c.dir)
				judge := func(err error) {
					t.Helper()
					if c.ok {
						assert.NoError(t, err)
					} else {
						assert.ErrorIs(t, err, registry.ErrInvalidKey)
					}
				}
				_, err := p.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(c.key, nil)}})
				judge(err)
				_, err = p.Txn(t.Context(), registry.Txn{If: []registry.Cond{registry.At(c.key, registry.Rev{Seq: 1})}})
				if !c.ok {
					judge(err)
				}
				_, err = p.Get(t.Context(), c.key, registry.ReadOptions{})
				judge(err)
				if c.key == "" {
					return // the root of the prefix is a directory
				}
				_, err = p.List(t.Context(), c.key, registry.ReadOptions{})
				judge(err)
				w, err := p.Watch(t.Context(), c.key, registry.WatchOptions{})
				judge(err)
				if err == nil {
					require.NoError(t, w.Close())
				}
			})
		})
	}
}

func TestPrefix_CountsFullKeysTowardsTheLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := registry.Prefix(client(t), "x")
		l := p.Limits()
		ops := []registry.Op{registry.Create("a", make([]byte, l.ValueBytes)), registry.Create("b", make([]byte, l.TxnBytes-l.ValueBytes-2))}
		require.Equal(t, l.TxnBytes, registry.Txn{Then: ops}.Size())
		_, err := p.Txn(t.Context(), registry.Txn{Then: ops})
		require.ErrorIs(t, err, registry.ErrTooLarge)
		ops[1].Value = ops[1].Value[2*len("x/"):]
		registrytest.Commit(t, p, ops...)

		x, err := p.OpenSession(t.Context(), registry.SessionOptions{})
		require.NoError(t, err)
		guarded := registry.Txn{If: []registry.Cond{registry.Alive(x.ID())}, Then: []registry.Op{
			registry.Create("c", ops[0].Value), registry.Create("d", ops[1].Value[len(x.ID()):]),
		}}
		_, err = p.Txn(t.Context(), guarded)
		require.NoError(t, err, "the id of a session gets no prefix")
	})
}

func TestPrefix_Close(t *testing.T) {
	t.Run("ends only the calls, watchers and sessions of the handle", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			reg := registrytest.Client(t, s, "a")
			p := registry.Prefix(reg, "x")
			mine, err := p.OpenSession(t.Context(), registry.SessionOptions{})
			require.NoError(t, err)
			parents, err := reg.OpenSession(t.Context(), registry.SessionOptions{})
			require.NoError(t, err)
			w, err := p.Watch(t.Context(), "d", registry.WatchOptions{})
			require.NoError(t, err)
			parentsWatch, err := reg.Watch(t.Context(), "x/d", registry.WatchOptions{})
			require.NoError(t, err)
			registrytest.Commit(t, p, registry.CreateOwned("d/~k", nil, mine.ID()))

			require.NoError(t, p.Close(t.Context()))
			isDead(t, reg, mine.ID())
			require.ErrorIs(t, mine.Err(), registry.ErrClosed)
			isAbsent(t, reg, "x/d/~k")
			_, err = w.Next(t.Context())
			require.ErrorIs(t, err, registry.ErrClosed)
			isAlive(t, reg, parents.ID())
			_, err = parentsWatch.Next(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, s.Counts("a").Watches)

			_, err = p.Get(t.Context(), "k", registry.ReadOptions{})
			require.ErrorIs(t, err, registry.ErrClosed)
			_, err = p.List(t.Context(), "", registry.ReadOptions{})
			require.ErrorIs(t, err, registry.ErrClosed)
			_, err = p.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
			require.ErrorIs(t, err, registry.ErrClosed)
			require.NotErrorIs(t, err, registry.ErrUnknownOutcome)
			_, err = p.Watch(t.Context(), "", registry.WatchOptions{})
			require.ErrorIs(t, err, registry.ErrClosed)
			_, err = p.OpenSession(t.Context(), registry.SessionOptions{})
			require.ErrorIs(t, err, registry.ErrClosed)
			require.NoError(t, w.Close())
			require.NoError(t, p.Close(t.Context()), "closing twice is legal")
		})
	})

	t.Run("ends pending calls", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			p := registry.Prefix(registrytest.Client(t, s, "a"), "x")
			w, err := p.Watch(t.Context(), "d", registry.WatchOptions{})
			require.NoError(t, err)
			heal := s.PartitionOneWay("a", memory.Replies)
			defer heal()
			calls := map[string]func() error{
				"Next": func() error { _, err := w.Next(t.Context()); return err },
				"Get":  func() error { _, err := p.Get(t.Context(), "k", registry.ReadOptions{}); return err },
				"List": func() error { _, err := p.List(t.Context(), "", registry.ReadOptions{}); return err },
				"Watch": func() error {
					_, err := p.Watch(t.Context(), "", registry.WatchOptions{})
					return err
				},
				"OpenSession": func() error {
					_, err := p.OpenSession(t.Context(), registry.SessionOptions{})
					return err
				},
				"Txn": func() error {
					_, err := p.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("k", nil)}})
					assert.ErrorIs(t, err, registry.ErrUnknownOutcome)
					return err
				},
			}
			errs := make(map[string]<-chan error)
			for name, call := range calls {
				done := make(chan error, 1)
				errs[name] = done
				go func() { done <- call() }()
			}
			synctest.Wait()
			start := time.Now()
			require.NoError(t, p.Close(t.Context()))
			for name, err := range errs {
				assert.ErrorIs(t, <-err, registry.ErrClosed, name)
			}
			require.Zero(t, time.Since(start))
		})
	})

	t.Run("closes sessions and watchers that are opened meanwhile", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			slow := &slowOpening{Registry: registrytest.Client(t, s, "a"), wait: make(chan struct{})}
			p := registry.Prefix(slow, "x")
			opened := make(chan error)
			go func() {
				_, err := p.OpenSession(t.Context(), registry.SessionOptions{})
				opened <- err
			}()
			go func() {
				_, err := p.Watch(t.Context(), "d", registry.WatchOptions{})
				opened <- err
			}()
			synctest.Wait()
			require.NoError(t, p.Close(t.Context()))
			close(slow.wait)
			require.ErrorIs(t, <-opened, registry.ErrClosed)
			require.ErrorIs(t, <-opened, registry.ErrClosed)
			require.Zero(t, s.Counts("a").Sessions)
			require.Zero(t, s.Counts("a").Watches)
		})
	})

	t.Run("does not close a session that has ended", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			counted := &countingCloses{Registry: registrytest.Client(t, s, "a")}
			p := registry.Prefix(counted, "x")
			for range 4 {
				s.Expire("a")
				_, err := p.OpenSession(t.Context(), registry.SessionOptions{})
				require.NoError(t, err)
			}
			require.NoError(t, p.Close(t.Context()))
			require.Equal(t, 1, counted.closes)
		})
	})

	t.Run("of the parent ends the handle", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			reg := client(t)
			p := registry.Prefix(reg, "x")
			w, err := p.Watch(t.Context(), "d", registry.WatchOptions{})
			require.NoError(t, err)
			require.NoError(t, reg.Close(t.Context()))
			_, err = w.Next(t.Context())
			require.ErrorIs(t, err, registry.ErrClosed)
			require.NoError(t, p.Close(t.Context()))
		})
	})
}

// slowOpening is a registry that opens sessions and watches only when wait is closed, even
// if the context of the call has ended.
type slowOpening struct {
	registry.Registry
	wait chan struct{}
}

func (s *slowOpening) OpenSession(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
	<-s.wait
	return s.Registry.OpenSession(context.WithoutCancel(ctx), o)
}

func (s *slowOpening) Watch(ctx context.Context, dir registry.Key, o registry.WatchOptions) (registry.Watcher, error) {
	<-s.wait
	return s.Registry.Watch(context.WithoutCancel(ctx), dir, o)
}

// countingCloses is a registry that counts how often its sessions are closed.
type countingCloses struct {
	registry.Registry
	closes int
}

func (c *countingCloses) OpenSession(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
	s, err := c.Registry.OpenSession(ctx, o)
	return &countedSession{s, c}, err
}

type countedSession struct {
	registry.Session
	by *countingCloses
}

func (s *countedSession) Close(ctx context.Context) error {
	s.by.closes++
	return s.Session.Close(ctx)
}

func TestPrefix_WatchersEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		p := registry.Prefix(registrytest.Client(t, s, "a"), "x")
		ctx, cancel := context.WithCancel(t.Context())
		w, err := p.Watch(ctx, "d", registry.WatchOptions{})
		require.NoError(t, err)
		cancel()
		synctest.Wait()
		_, err = w.Next(t.Context())
		require.ErrorIs(t, err, registry.ErrClosed)
		require.Zero(t, s.Counts("a").Watches)
		require.NoError(t, p.Close(t.Context()))
	})
}
