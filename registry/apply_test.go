package registry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/registrytest"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// applyCase is a transaction that txn prepares, with a check that it was applied.
type applyCase struct {
	name string
	txn  func(t *testing.T, reg registry.Registry) registry.Txn
	done func(t *testing.T, reg registry.Registry, rev registry.Rev) // requires that it was applied, at rev
}

var applyCases = []applyCase{
	{
		name: "create",
		txn: func(*testing.T, registry.Registry) registry.Txn {
			return registry.Txn{Then: []registry.Op{registry.Create("new", []byte("v"))}}
		},
		done: func(t *testing.T, reg registry.Registry, rev registry.Rev) {
			assert.Equal(t, rev, registrytest.Get(t, reg, "new").Created)
		},
	},
	{
		name: "create owned",
		txn: func(t *testing.T, reg registry.Registry) registry.Txn {
			x, err := reg.OpenSession(t.Context(), registry.SessionOptions{})
			require.NoError(t, err)
			return registry.Txn{Then: []registry.Op{registry.CreateOwned("~new", []byte("v"), x.ID())}}
		},
		done: func(t *testing.T, reg registry.Registry, rev registry.Rev) {
			assert.Equal(t, rev, registrytest.Get(t, reg, "~new").Created)
		},
	},
	{
		name: "set",
		txn: func(t *testing.T, reg registry.Registry) registry.Txn {
			rev := registrytest.Commit(t, reg, registry.Create("old", []byte("0")))
			return registry.Txn{Then: []registry.Op{registry.Set("old", rev, []byte("1"))}}
		},
		done: func(t *testing.T, reg registry.Registry, rev registry.Rev) {
			e := registrytest.Get(t, reg, "old")
			assert.Equal(t, rev, e.Modified)
			assert.Equal(t, "1", string(e.Value))
		},
	},
	{
		name: "delete",
		txn: func(t *testing.T, reg registry.Registry) registry.Txn {
			rev := registrytest.Commit(t, reg, registry.Create("old", nil), registry.Create("other", nil))
			return registry.Txn{Then: []registry.Op{registry.Delete("old", rev), registry.Delete("other", rev)}}
		},
		done: func(t *testing.T, reg registry.Registry, _ registry.Rev) {
			isAbsent(t, reg, "old")
			isAbsent(t, reg, "other")
		},
	},
	{
		name: "all kinds",
		txn: func(t *testing.T, reg registry.Registry) registry.Txn {
			rev := registrytest.Commit(t, reg, registry.Create("gone", nil), registry.Create("old", nil))
			return registry.Txn{
				If: []registry.Cond{registry.Absent("never")},
				Then: []registry.Op{
					registry.Delete("gone", rev), registry.Set("old", rev, nil), registry.Create("new", nil),
				},
			}
		},
		done: func(t *testing.T, reg registry.Registry, rev registry.Rev) {
			isAbsent(t, reg, "gone")
			assert.Equal(t, rev, registrytest.Get(t, reg, "old").Modified)
			assert.Equal(t, rev, registrytest.Get(t, reg, "new").Created)
		},
	},
}

func TestApply_DeterminesTheOutcome(t *testing.T) {
	faults := []struct {
		name  string
		steps []step
	}{
		{"after no fault", []step{pass}},
		{"after a lost request", []step{loseRequest}},
		{"after a lost reply", []step{loseReply}},
		{"after many lost requests", []step{loseRequest, loseRequest, loseRequest, loseRequest}},
		{"after many lost replies", []step{loseReply, loseReply, loseReply}},
		{"after lost requests and replies", []step{loseRequest, loseReply, loseRequest}},
		{"after a lost reply among refusals", []step{
			answer(registry.ErrNotApplied), loseReply, answer(registry.ErrNotApplied), answer(registry.ErrUnavailable),
		}},
	}
	for _, c := range applyCases {
		for _, fault := range faults {
			t.Run(c.name+" "+fault.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					reg := client(t)
					txn := c.txn(t, reg)
					s := &scripted{Registry: reg, steps: fault.steps}
					rev, err := registry.Apply(t.Context(), s, txn)
					require.NoError(t, err)
					require.Empty(t, s.steps)
					c.done(t, reg, rev)
					for _, id := range s.sent {
						assert.Equal(t, s.sent[0], id, "the same transaction is sent again")
						assert.NotZero(t, id)
					}
					assert.Equal(t, s.read, s.fresh)
				})
			})
		}
	}
}

func TestApply_CommitsOnceDespiteLosses(t *testing.T) {
	faults := []struct {
		name   string
		inject func(s *memory.Server) (undo func())
	}{
		{"replies", func(s *memory.Server) func() { s.LoseReply("a", 3); return func() {} }},
		{"requests", func(s *memory.Server) func() { s.LoseRequest("a", 3); return func() {} }},
		{"requests, then replies", func(s *memory.Server) func() {
			s.LoseRequest("a", 2)
			s.LoseReply("a", 2)
			return func() {}
		}},
		{"nothing while one request is late", func(s *memory.Server) func() { return s.HoldCommit("a") }},
		{"one late request and replies", func(s *memory.Server) func() {
			s.LoseReply("a", 2)
			return s.HoldCommit("a")
		}},
		{"all replies for a while", func(s *memory.Server) func() {
			heal := s.PartitionOneWay("a", memory.Replies)
			time.AfterFunc(5*time.Second, heal)
			return heal
		}},
		{"the connection for a while", func(s *memory.Server) func() {
			heal := s.Partition("a")
			time.AfterFunc(5*time.Second, heal)
			return heal
		}},
		{"the store for a while", func(s *memory.Server) func() {
			resume := s.Pause()
			time.AfterFunc(5*time.Second, resume)
			return resume
		}},
	}
	for _, c := range applyCases {
		for _, fault := range faults {
			t.Run(c.name+", losing "+fault.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := memory.New()
					reg := registrytest.Client(t, s, "a")
					txn := c.txn(t, reg)
					s.ResetCounts()
					undo := fault.inject(s)
					rev, err := registry.Apply(t.Context(), reg, txn)
					require.NoError(t, err)
					c.done(t, reg, rev)
					undo() // a request that was held back arrives now
					time.Sleep(time.Second)
					c.done(t, reg, rev)
					require.Equal(t, 1, s.Counts("a").Commits)
				})
			})
		}
	}
}

func TestApply_LateRequests(t *testing.T) {
	// A create is refused while its first request is held back; then its condition holds.
	lateCreate := func(t *testing.T, s *memory.Server, reg, other registry.Registry, txn registry.Txn, meanwhile func()) {
		release := s.HoldCommit("a")
		rev := registrytest.Commit(t, other, registry.Create("k", []byte("theirs")))
		_, err := registry.Apply(t.Context(), reg, txn)
		require.ErrorIs(t, err, registry.ErrConflict)
		require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		registrytest.Commit(t, other, registry.Delete("k", rev))
		isAbsent(t, other, "k")
		meanwhile()
		release()
	}

	t.Run("of a create may still be applied", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			reg, other := registrytest.Client(t, s, "a"), registrytest.Client(t, s, "b")
			txn := registry.Txn{ID: registry.NewTxnID(), Then: []registry.Op{registry.Create("k", []byte("ours"))}}
			lateCreate(t, s, reg, other, txn, func() {})
			require.Equal(t, txn.ID, registrytest.Get(t, other, "k").Txn)
		})
	})

	t.Run("of a create guarded by a session are not applied once the session has ended", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			reg, other := registrytest.Client(t, s, "a"), registrytest.Client(t, s, "b")
			x, err := reg.OpenSession(t.Context(), registry.SessionOptions{})
			require.NoError(t, err)
			txn := registry.Txn{
				If:   []registry.Cond{registry.Alive(x.ID())},
				Then: []registry.Op{registry.Create("k", []byte("ours"))},
			}
			lateCreate(t, s, reg, other, txn, func() { require.NoError(t, x.Close(t.Context())) })
			isAbsent(t, other, "k")
		})
	})
}

func TestApply_DefiniteAnswersCostNoReads(t *testing.T) {
	for _, want := range []error{
		registry.ErrConflict, registry.ErrSessionLost, registry.ErrTooLarge, registry.ErrInvalidKey, registry.ErrInvalidTxn,
		registry.ErrPermission, registry.ErrUnauthenticated, registry.ErrQuota, registry.ErrClosed,
	} {
		t.Run(want.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{Registry: client(t), steps: []step{answer(registry.ErrNotApplied), answer(want)}}
				_, err := registry.Apply(t.Context(), s, registry.Txn{Then: []registry.Op{registry.Create("a", nil)}})
				require.Equal(t, want, err)
				require.Len(t, s.sent, 2)
				require.Zero(t, s.read)
			})
		})
	}
}

func TestApply_SettlesByTheStoredEntries(t *testing.T) {
	// The transaction sets a, creates b and deletes c. All other changes are by another writer.
	type world struct {
		reg registry.Registry
		rev registry.Rev // of a and c
	}
	txnOf := func(w world) registry.Txn {
		return registry.Txn{Then: []registry.Op{
			registry.Set("a", w.rev, []byte("ours")), registry.Create("b", []byte("ours")), registry.Delete("c", w.rev),
		}}
	}
	set := func(t *testing.T, w world, key registry.Key) {
		registrytest.Commit(t, w.reg, registry.Set(key, registrytest.Get(t, w.reg, key).Modified, []byte("theirs")))
	}
	remove := func(t *testing.T, w world, key registry.Key) {
		registrytest.Commit(t, w.reg, registry.Delete(key, registrytest.Get(t, w.reg, key).Modified))
	}
	create := func(t *testing.T, w world, key registry.Key) {
		registrytest.Commit(t, w.reg, registry.Create(key, []byte("theirs")))
	}

	const applied, refused, unknown = "applied", "refused", "unknown"
	for _, c := range []struct {
		name  string
		first step
		then  func(t *testing.T, w world)
		want  string
	}{
		{"one key that the transaction wrote", loseReply, func(t *testing.T, w world) { set(t, w, "a"); create(t, w, "c") }, applied},
		{"an unchanged key of a set", loseRequest, func(t *testing.T, w world) { create(t, w, "b"); remove(t, w, "c") }, refused},
		{"a key of a delete that was written but never deleted", loseRequest, func(t *testing.T, w world) { set(t, w, "a"); set(t, w, "c") }, refused},
		{"a key of a delete that was created again", loseRequest, func(t *testing.T, w world) { set(t, w, "a"); remove(t, w, "c"); create(t, w, "c") }, unknown},
		{"overwriting all keys after the commit", loseReply, func(t *testing.T, w world) { set(t, w, "a"); set(t, w, "b") }, unknown},
		{"changing all keys without the commit", loseRequest, func(t *testing.T, w world) { set(t, w, "a"); remove(t, w, "c") }, unknown},
		{"deleting all keys after the commit", loseReply, func(t *testing.T, w world) { remove(t, w, "a"); remove(t, w, "b") }, unknown},
	} {
		t.Run(c.name+": "+c.want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reg := client(t)
				w := world{reg, registrytest.Commit(t, reg, registry.Create("a", nil), registry.Create("c", nil))}
				s := &scripted{Registry: reg, steps: []step{c.first, after(func() { c.then(t, w) }, pass)}}
				rev, err := registry.Apply(t.Context(), s, txnOf(w))
				require.Len(t, s.sent, 2)
				switch c.want {
				case applied:
					require.NoError(t, err)
					require.Equal(t, registrytest.Get(t, reg, "b").Modified, rev)
					require.Equal(t, "ours", string(registrytest.Get(t, reg, "b").Value))
				case refused:
					require.ErrorIs(t, err, registry.ErrConflict)
					require.NotErrorIs(t, err, registry.ErrUnknownOutcome)
				case unknown:
					var conflict *registry.ConflictError
					require.ErrorAs(t, err, &conflict)
					require.ErrorIs(t, err, registry.ErrUnknownOutcome)
				}
			})
		})
	}

	t.Run("a key of a create that has existed throughout: refused", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			reg := client(t)
			registrytest.Commit(t, reg, registry.Create("b", nil))
			rev := registrytest.Commit(t, reg, registry.Create("at", nil))
			s := &scripted{Registry: reg, steps: []step{loseRequest}}
			_, err := registry.Apply(t.Context(), s, registry.Txn{
				If:   []registry.Cond{registry.At("at", rev)},
				Then: []registry.Op{registry.Create("b", nil)},
			})
			require.ErrorIs(t, err, registry.ErrConflict)
			require.NotErrorIs(t, err, registry.ErrUnknownOutcome)
		})
	})

	t.Run("a key of a create that another writer created: unknown", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			reg := client(t)
			s := &scripted{Registry: reg, steps: []step{loseReply, after(func() {
				registrytest.Commit(t, reg, registry.Delete("b", registrytest.Get(t, reg, "b").Modified))
				registrytest.Commit(t, reg, registry.Create("b", nil))
			}, pass)}}
			_, err := registry.Apply(t.Context(), s, registry.Txn{Then: []registry.Op{registry.Create("b", nil)}})
			require.ErrorIs(t, err, registry.ErrConflict)
			require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		})
	})

	t.Run("only deletes, of keys that do not exist: applied, at the zero Rev", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			reg := client(t)
			at := registrytest.Commit(t, reg, registry.Create("a", nil))
			s := &scripted{Registry: reg, steps: []step{loseReply}}
			rev, err := registry.Apply(t.Context(), s, registry.Txn{Then: []registry.Op{registry.Delete("a", at)}})
			require.NoError(t, err)
			require.True(t, rev.IsZero())
		})
	})
}

func TestApply_ChecksRefusalsAfterAnUnknownOutcome(t *testing.T) {
	for _, refusal := range []error{registry.ErrSessionLost, registry.ErrQuota, registry.ErrPermission, registry.ErrClosed} {
		t.Run(refusal.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reg := client(t)
				at := registrytest.Commit(t, reg, registry.Create("a", nil))
				txn := registry.Txn{Then: []registry.Op{registry.Set("a", at, nil)}}

				s := &scripted{Registry: reg, steps: []step{loseRequest, answer(refusal)}}
				_, err := registry.Apply(t.Context(), s, txn)
				require.Equal(t, refusal, err, "the key is unchanged")

				s = &scripted{Registry: reg, steps: []step{loseReply, answer(refusal)}}
				rev, err := registry.Apply(t.Context(), s, txn)
				require.NoError(t, err)
				require.Equal(t, registrytest.Get(t, reg, "a").Modified, rev)
			})
		})
	}

	t.Run("a handle that was closed during the call is not called again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{
				Registry: client(t),
				steps:    []step{answer(fmt.Errorf("%w: %w", registry.ErrUnknownOutcome, registry.ErrClosed))},
				gets:     []error{registry.ErrClosed},
			}
			_, err := registry.Apply(t.Context(), s, registry.Txn{Then: []registry.Op{registry.Create("a", nil)}})
			require.ErrorIs(t, err, registry.ErrUnknownOutcome)
			require.ErrorIs(t, err, registry.ErrClosed)
			require.Len(t, s.sent, 1)
		})
	})

	t.Run("a created key that expired with its session leaves the outcome unknown", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			reg := client(t)
			x, err := reg.OpenSession(t.Context(), registry.SessionOptions{})
			require.NoError(t, err)
			s := &scripted{Registry: reg, steps: []step{loseReply, after(func() {
				require.NoError(t, x.Close(context.Background()))
			}, pass)}}
			_, err = registry.Apply(t.Context(), s, registry.Txn{
				Then: []registry.Op{registry.CreateOwned("~a", nil, x.ID())},
			})
			require.ErrorIs(t, err, registry.ErrSessionLost)
			require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		})
	})

	t.Run("a store that forbids reads leaves the outcome unknown", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{Registry: client(t), steps: []step{loseReply}, gets: []error{registry.ErrPermission}}
			_, err := registry.Apply(t.Context(), s, registry.Txn{Then: []registry.Op{registry.Create("a", nil)}})
			require.ErrorIs(t, err, registry.ErrUnknownOutcome)
			require.ErrorIs(t, err, registry.ErrConflict)
			require.ErrorIs(t, err, registry.ErrPermission)
		})
	})

	t.Run("a read that fails for now is retried", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{
				Registry: client(t), steps: []step{loseReply},
				gets: []error{registry.ErrUnavailable, registry.ErrUnavailable},
			}
			rev, err := registry.Apply(t.Context(), s, registry.Txn{Then: []registry.Op{registry.Create("a", nil)}})
			require.NoError(t, err)
			require.Equal(t, registrytest.Get(t, s, "a").Modified, rev)
		})
	})
}

func TestApply_EndsWithItsContext(t *testing.T) {
	errTimeout := errors.New("bored")
	txn := registry.Txn{Then: []registry.Op{registry.Create("a", nil)}}
	always := func(err error) []step {
		steps := make([]step, 1000)
		for i := range steps {
			steps[i] = answer(err)
		}
		return steps
	}
	within := func(t *testing.T, d time.Duration) context.Context {
		ctx, cancel := context.WithTimeoutCause(t.Context(), d, errTimeout)
		t.Cleanup(cancel)
		return ctx
	}

	t.Run("with ErrNotApplied if no request can have been applied", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{Registry: client(t), steps: always(registry.ErrNotApplied)}
			_, err := registry.Apply(within(t, 10*time.Second), s, txn)
			require.ErrorIs(t, err, registry.ErrNotApplied)
			require.NotErrorIs(t, err, registry.ErrUnknownOutcome)
			require.ErrorIs(t, err, errTimeout)
			require.Less(t, len(s.sent), 60, "half a second between sends")
			require.Greater(t, len(s.sent), 20)
		})
	})

	t.Run("with ErrUnknownOutcome if a request may have been applied", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{Registry: client(t), steps: append([]step{loseRequest}, always(registry.ErrNotApplied)...)}
			_, err := registry.Apply(within(t, time.Second), s, txn)
			require.ErrorIs(t, err, registry.ErrUnknownOutcome)
			require.NotErrorIs(t, err, registry.ErrNotApplied)
			require.ErrorIs(t, err, errTimeout)
		})
	})

	t.Run("with ErrUnknownOutcome if the last answer was ErrUnavailable", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{Registry: client(t), steps: always(registry.ErrUnavailable)}
			_, err := registry.Apply(within(t, time.Second), s, txn)
			require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		})
	})

	t.Run("at once if the context has ended before", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			reg := client(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(errTimeout)
			start := time.Now()
			_, err := registry.Apply(ctx, reg, txn)
			require.ErrorIs(t, err, registry.ErrNotApplied)
			require.ErrorIs(t, err, errTimeout)
			require.Zero(t, time.Since(start))
			isAbsent(t, reg, "a")
		})
	})

	t.Run("with ErrNotApplied if the transaction only checks", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{Registry: client(t), steps: always(registry.ErrUnknownOutcome)}
			_, err := registry.Apply(within(t, time.Second), s, registry.Txn{If: []registry.Cond{registry.Absent("a")}})
			require.ErrorIs(t, err, registry.ErrNotApplied)
			require.NotErrorIs(t, err, registry.ErrUnknownOutcome)
		})
	})
}

func TestApply_RetriesAnUnansweredCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := client(t)
		check := registry.Txn{If: []registry.Cond{registry.Absent("a")}}
		s := &scripted{Registry: reg, steps: []step{loseRequest, loseReply}}
		_, err := registry.Apply(t.Context(), s, check)
		require.NoError(t, err)

		registrytest.Commit(t, reg, registry.Create("a", nil))
		s.steps = []step{loseRequest}
		_, err = registry.Apply(t.Context(), s, check)
		require.ErrorIs(t, err, registry.ErrConflict)
		require.NotErrorIs(t, err, registry.ErrUnknownOutcome)
		require.Zero(t, s.read)
	})
}
