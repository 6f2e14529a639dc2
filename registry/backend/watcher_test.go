package backend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

// directory is a directory of a store that keeps a log of its changes.
type directory struct {
	mu      sync.Mutex
	seq     uint64
	entries map[registry.Key]registry.Entry
	log     []Change // after forgotten
	oldest  uint64   // changes up to this one are forgotten
	changed chan struct{}
	err     error // of all requests
	lists   int
	closes  int
}

func newDirectory() *directory {
	return &directory{entries: map[registry.Key]registry.Entry{}, changed: make(chan struct{})}
}

func (d *directory) set(key registry.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seq++
	e := entry(key, d.seq)
	d.entries[key] = e
	d.append(Change{Key: key, Rev: rev(d.seq), Entry: &e})
}

func (d *directory) remove(key registry.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seq++
	delete(d.entries, key)
	d.append(gone(key, d.seq))
}

func (d *directory) append(c Change) {
	d.log = append(d.log, c)
	close(d.changed)
	d.changed = make(chan struct{})
}

// forget discards the log.
func (d *directory) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log, d.oldest = nil, d.seq
}

// fail makes all requests fail, or succeed again if err is nil.
func (d *directory) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
	close(d.changed)
	d.changed = make(chan struct{})
}

func (d *directory) source() Source {
	return Source{
		List: func(context.Context) ([]registry.Entry, registry.Rev, error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.lists++
			return slices.Collect(maps.Values(d.entries)), rev(d.seq), d.err
		},
		Changes: func(ctx context.Context, after registry.Rev) ([]Change, registry.Rev, error) {
			for {
				d.mu.Lock()
				all, seq, oldest, changed, err := slices.Clone(d.log), d.seq, d.oldest, d.changed, d.err
				d.mu.Unlock()
				switch {
				case err != nil:
					return nil, registry.Rev{}, err
				case after.Seq < oldest:
					return nil, registry.Rev{}, fmt.Errorf("%w: up to %d", ErrMissed, oldest)
				case after.Seq < seq:
					return slices.DeleteFunc(all, func(c Change) bool { return c.Rev.Seq <= after.Seq }), rev(seq), nil
				}
				select {
				case <-changed:
				case <-ctx.Done():
					return nil, registry.Rev{}, ctx.Err()
				}
			}
		},
		Close: func() { d.closes++ },
	}
}

func nextOf(t *testing.T, w registry.Watcher) registry.Batch {
	t.Helper()
	b, err := w.Next(t.Context())
	require.NoError(t, err)
	return b
}

func requireNoBatch(t *testing.T, w registry.Watcher) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, err := w.Next(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded, "%v", b)
}

func TestHandle_Watch(t *testing.T) {
	for name, f := range map[string]func(t *testing.T, h *Handle, d *directory){
		"delivers the list, then merged changes": func(t *testing.T, h *Handle, d *directory) {
			d.set("a")
			w, err := h.Watch(t.Context(), "", d.source())
			require.NoError(t, err)
			require.Equal(t, registry.Batch{Kind: registry.Snapshot, Rev: rev(1), Puts: []registry.Entry{entry("a", 1)}}, nextOf(t, w))
			d.set("a")
			d.set("b")
			d.remove("a")
			synctest.Wait()
			require.Equal(t, delta(4, []registry.Entry{entry("b", 3)}, "a"), nextOf(t, w))
			requireNoBatch(t, w)
		},
		"goes on from the last change that was read when a request fails": func(t *testing.T, h *Handle, d *directory) {
			s := d.source()
			var asked []uint64
			changes := s.Changes
			s.Changes = func(ctx context.Context, after registry.Rev) ([]Change, registry.Rev, error) {
				asked = append(asked, after.Seq)
				return changes(ctx, after)
			}
			w, err := h.Watch(t.Context(), "", s)
			require.NoError(t, err)
			d.set("a")
			synctest.Wait()
			d.fail(errors.New("cause"))
			synctest.Wait()
			d.fail(nil)
			time.Sleep(time.Second)
			synctest.Wait()
			require.Equal(t, []uint64{0, 1, 1}, asked)
			require.NoError(t, w.Close())
		},
		"needs no function that closes its source": func(t *testing.T, h *Handle, d *directory) {
			s := d.source()
			s.Close = nil
			w, err := h.Watch(t.Context(), "", s)
			require.NoError(t, err)
			require.NoError(t, w.Close())
			synctest.Wait()
		},
		"fails if the handle is closed before it follows": func(t *testing.T, h *Handle, d *directory) {
			s := d.source()
			s.List = func(context.Context) ([]registry.Entry, registry.Rev, error) {
				go func() { _ = h.Close(context.Background(), nil) }()
				synctest.Wait()
				return nil, rev(1), nil
			}
			w, err := h.Watch(t.Context(), "", s)
			require.ErrorIs(t, err, registry.ErrClosed)
			require.Nil(t, w)
		},
		"keeps one change for each key of a window that nobody reads": func(t *testing.T, h *Handle, d *directory) {
			w, err := h.Watch(t.Context(), "", d.source())
			require.NoError(t, err)
			nextOf(t, w)
			for i := range 10_000 {
				d.set(registry.Join(fmt.Sprint(i % 200)))
			}
			for i := range 100 {
				d.remove(registry.Join(fmt.Sprint(i)))
			}
			synctest.Wait()
			require.Len(t, w.batches.pending, 100)
			b := nextOf(t, w)
			require.Len(t, b.Puts, 100)
			require.Empty(t, b.Deletes, "the reader never had those keys")
			require.Equal(t, rev(10_100), b.Rev)
			requireNoBatch(t, w)
		},
		"continues after an error where it was": func(t *testing.T, h *Handle, d *directory) {
			w, err := h.Watch(t.Context(), "", d.source())
			require.NoError(t, err)
			nextOf(t, w)
			d.fail(errCause)
			time.Sleep(time.Minute)
			d.set("a")
			d.fail(nil)
			require.Equal(t, delta(1, []registry.Entry{entry("a", 1)}), nextOf(t, w))
			require.Equal(t, 1, d.lists)
		},
		"lists again if changes were missed": func(t *testing.T, h *Handle, d *directory) {
			d.set("a")
			w, err := h.Watch(t.Context(), "", d.source())
			require.NoError(t, err)
			nextOf(t, w)
			d.fail(errCause)
			d.remove("a")
			d.set("b")
			d.forget()
			d.fail(nil)
			require.Equal(t, registry.Batch{Kind: registry.Snapshot, Rev: rev(3), Puts: []registry.Entry{entry("b", 3)}}, nextOf(t, w))
			d.set("b")
			require.Equal(t, delta(4, []registry.Entry{entry("b", 4)}), nextOf(t, w))
			require.Equal(t, 2, d.lists)
		},
		"repeats the list until it succeeds": func(t *testing.T, h *Handle, d *directory) {
			s := d.source()
			list, failures := s.List, 5
			s.List = func(ctx context.Context) ([]registry.Entry, registry.Rev, error) {
				if failures--; d.lists > 0 && failures > 0 {
					return nil, registry.Rev{}, errCause
				}
				return list(ctx)
			}
			w, err := h.Watch(t.Context(), "", s)
			require.NoError(t, err)
			nextOf(t, w)
			synctest.Wait()
			d.set("a")
			d.forget()
			for b := nextOf(t, w); b.Rev != rev(1); b = nextOf(t, w) {
				t.Log(b)
			}
		},
		"ends if the store refuses it": func(t *testing.T, h *Handle, d *directory) {
			for _, refusal := range []error{registry.ErrPermission, registry.ErrUnauthenticated} {
				d.fail(nil)
				w, err := h.Watch(t.Context(), "", d.source())
				require.NoError(t, err)
				nextOf(t, w)
				d.fail(refusal)
				_, err = w.Next(t.Context())
				require.ErrorIs(t, err, refusal)
			}
			synctest.Wait()
			require.Equal(t, 2, d.closes)
		},
		"ends if the store refuses the list after missed changes": func(t *testing.T, h *Handle, d *directory) {
			s := d.source()
			s.Changes = func(ctx context.Context, after registry.Rev) ([]Change, registry.Rev, error) {
				d.fail(registry.ErrPermission)
				return nil, registry.Rev{}, ErrMissed
			}
			w, err := h.Watch(t.Context(), "", s)
			require.NoError(t, err)
			for err == nil {
				_, err = w.Next(t.Context())
			}
			require.ErrorIs(t, err, registry.ErrPermission)
		},
		"fails if the store cannot be reached": func(t *testing.T, h *Handle, d *directory) {
			d.fail(errCause)
			_, err := h.Watch(t.Context(), "a", d.source())
			require.EqualError(t, err, `watch "a": registry unavailable: cause`)
			require.Equal(t, 1, d.closes)
		},
		"checks the directory": func(t *testing.T, h *Handle, d *directory) {
			_, err := h.Watch(t.Context(), "~a", d.source())
			require.ErrorIs(t, err, registry.ErrInvalidKey)
			require.Zero(t, d.lists)
			require.Equal(t, 1, d.closes)
		},
		"ends with its context": func(t *testing.T, h *Handle, d *directory) {
			ctx, cancel := context.WithCancelCause(t.Context())
			w, err := h.Watch(ctx, "", d.source())
			require.NoError(t, err)
			nextOf(t, w)
			time.AfterFunc(time.Second, func() { cancel(errCause) })
			_, err = w.Next(t.Context())
			require.ErrorIs(t, err, registry.ErrClosed)
			require.ErrorIs(t, err, errCause)
			synctest.Wait()
			require.Equal(t, 1, d.closes)
			_, err = h.Watch(ctx, "", d.source())
			require.ErrorIs(t, err, errCause)
		},
		"ends with its Close, and leaves nothing": func(t *testing.T, h *Handle, d *directory) {
			w, err := h.Watch(t.Context(), "", d.source())
			require.NoError(t, err)
			require.NoError(t, w.Close())
			require.NoError(t, w.Close())
			require.False(t, w.detach(), "the context, which lives on, keeps nothing of it")
			_, err = w.Next(t.Context())
			require.ErrorIs(t, err, registry.ErrClosed)
			synctest.Wait()
			require.Equal(t, 1, d.closes)
			require.Empty(t, h.watchers)
		},
		"ends with the Close of its handle": func(t *testing.T, h *Handle, d *directory) {
			w, err := h.Watch(t.Context(), "", d.source())
			require.NoError(t, err)
			require.NoError(t, h.Close(t.Context(), nil))
			require.Equal(t, 1, d.closes)
			_, err = w.Next(t.Context())
			require.EqualError(t, err, `watch "": registry closed`)
			_, err = h.Watch(t.Context(), "", d.source())
			require.ErrorIs(t, err, registry.ErrClosed)
		},
		"reports its end once": func(t *testing.T, h *Handle, _ *directory) {
			ends := 0
			w, err := h.NewWatcher(t.Context(), "", func() { ends++ })
			require.NoError(t, err)
			w.Fail(errors.New("first"))
			require.NoError(t, w.Close())
			require.NoError(t, h.Close(t.Context(), nil))
			require.Equal(t, 1, ends)
			_, err = w.Next(t.Context())
			require.ErrorContains(t, err, "first")
		},
	} {
		inBubble(t, name, func(t *testing.T, h *Handle) { f(t, h, newDirectory()) })
	}
}

// TestHandle_WatchConverges compares what a reader has with the directory, over random changes,
// lost connections and forgotten histories.
func TestHandle_WatchConverges(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, seed))
			d, h := newDirectory(), NewHandle(Config{Logger: slog.New(slog.DiscardHandler)})
			w, err := h.Watch(t.Context(), "", d.source())
			require.NoError(t, err)
			has := map[registry.Key]registry.Entry{}
			read := func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for {
					b, err := w.Next(ctx)
					if err != nil {
						return
					}
					if b.Kind == registry.Snapshot {
						clear(has)
					}
					for _, e := range b.Puts {
						has[e.Key] = e
					}
					for _, key := range b.Deletes {
						require.Contains(t, has, key, "seed %d", seed)
						delete(has, key)
					}
				}
			}
			for range 300 {
				key := registry.Join(string(rune('a' + random.IntN(6))))
				switch n := random.IntN(30); {
				case n == 0:
					d.forget()
				case n == 1:
					d.fail(errCause)
				case n == 2:
					d.fail(nil)
				case n == 3:
					time.Sleep(time.Second)
				case n == 4:
					d.fail(nil)
					read()
					require.Equal(t, d.entries, has, "seed %d", seed)
				case n < 12:
					d.remove(key)
				default:
					d.set(key)
				}
			}
			require.NoError(t, h.Close(t.Context(), nil))
		})
	}
}
