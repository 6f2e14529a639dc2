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

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// applyCase is a transaction on what before left behind.
type applyCase struct {
	name string
	txn  func(t *testing.T, reg registry.Registry) registry.Txn
	done func(t *testing.T, reg registry.Registry, rev registry.Rev) // that it is applied, at rev
}

var applyCases = []applyCase{
	{
		name: "create",
		txn: func(*testing.T, registry.Registry) registry.Txn {
			return registry.Txn{Then: []registry.Op{registry.Create("new", []byte("v"))}}
		},
		done: func(t *testing.T, reg registry.Registry, rev registry.Rev) {
			assert.Equal(t, rev, get(t, reg, "new").Created)
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
			assert.Equal(t, rev, get(t, reg, "~new").Created)
		},
	},
	{
		name: "set",
		txn: func(t *testing.T, reg registry.Registry) registry.Txn {
			rev := commit(t, reg, registry.Create("old", []byte("0")))
			return registry.Txn{Then: []registry.Op{registry.Set("old", rev, []byte("1"))}}
		},
		done: func(t *testing.T, reg registry.Registry, rev registry.Rev) {
			e := get(t, reg, "old")
			assert.Equal(t, rev, e.Modified)
			assert.Equal(t, "1", string(e.Value))
		},
	},
	{
		name: "delete",
		txn: func(t *testing.T, reg registry.Registry) registry.Txn {
			rev := commit(t, reg, registry.Create("old", nil), registry.Create("other", nil))
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
			rev := commit(t, reg, registry.Create("gone", nil), registry.Create("old", nil))
			return registry.Txn{
				If: []registry.Cond{registry.Absent("never")},
				Then: []registry.Op{
					registry.Delete("gone", rev), registry.Set("old", rev, nil), registry.Create("new", nil),
				},
			}
		},
		done: func(t *testing.T, reg registry.Registry, rev registry.Rev) {
			isAbsent(t, reg, "gone")
			assert.Equal(t, rev, get(t, reg, "old").Modified)
			assert.Equal(t, rev, get(t, reg, "new").Created)
		},
	},
}

func TestApply_LearnsTheOutcome(t *testing.T) {
	faults := []struct {
		name  string
		steps []step
	}{
		{"of a request that passed", []step{pass}},
		{"of a lost request", []step{loseRequest}},
		{"of a lost reply", []step{loseReply}},
		{"of many lost requests", []step{loseRequest, loseRequest, loseRequest, loseRequest}},
		{"of many lost replies", []step{loseReply, loseReply, loseReply}},
		{"of both", []step{loseRequest, loseReply, loseRequest}},
		{"after refusals", []step{
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

func TestApply_CommitsOnceWhateverGetsLost(t *testing.T) {
	faults := []struct {
		name string
		pull func(s *memory.Server) (undo func())
	}{
		{"replies", func(s *memory.Server) func() { s.LoseReply("a", 3); return func() {} }},
		{"requests", func(s *memory.Server) func() { s.LoseRequest("a", 3); return func() {} }},
		{"requests, then replies", func(s *memory.Server) func() {
			s.LoseRequest("a", 2)
			s.LoseReply("a", 2)
			return func() {}
		}},
		{"nothing, but one request is late", func(s *memory.Server) func() { return s.HoldCommit("a") }},
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
					reg := clientOf(t, s, "a")
					txn := c.txn(t, reg)
					s.ResetCounts()
					undo := fault.pull(s)
					rev, err := registry.Apply(t.Context(), reg, txn)
					require.NoError(t, err)
					c.done(t, reg, rev)
					undo() // a request that was held up arrives now
					time.Sleep(time.Second)
					c.done(t, reg, rev)
					require.Equal(t, 1, s.Counts("a").Commits)
				})
			})
		}
	}
}

func TestApply_LateRequests(t *testing.T) {
	// A create is refused while a first request of it is held up; then it could be done.
	lateCreate := func(t *testing.T, s *memory.Server, reg, other registry.Registry, txn registry.Txn, meanwhile func()) {
		release := s.HoldCommit("a")
		rev := commit(t, other, registry.Create("k", []byte("theirs")))
		_, err := registry.Apply(t.Context(), reg, txn)
		require.ErrorIs(t, err, registry.ErrConflict)
		require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		commit(t, other, registry.Delete("k", rev))
		isAbsent(t, other, "k")
		meanwhile()
		release()
	}

	t.Run("of a create may still be applied", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			reg, other := clientOf(t, s, "a"), clientOf(t, s, "b")
			txn := registry.Txn{ID: registry.NewTxnID(), Then: []registry.Op{registry.Create("k", []byte("ours"))}}
			lateCreate(t, s, reg, other, txn, func() {})
			require.Equal(t, txn.ID, get(t, other, "k").Txn)
		})
	})

	t.Run("of a create guarded by a session are not, once that has ended", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			reg, other := clientOf(t, s, "a"), clientOf(t, s, "b")
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

func TestApply_SettlesByWhatIsStored(t *testing.T) {
	// The transaction sets a, creates b and deletes c; all the rest is somebody else's hand.
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
		commit(t, w.reg, registry.Set(key, get(t, w.reg, key).Modified, []byte("theirs")))
	}
	remove := func(t *testing.T, w world, key registry.Key) {
		commit(t, w.reg, registry.Delete(key, get(t, w.reg, key).Modified))
	}
	create := func(t *testing.T, w world, key registry.Key) {
		commit(t, w.reg, registry.Create(key, []byte("theirs")))
	}

	const applied, refused, untold = "applied", "refused", "untold"
	for _, c := range []struct {
		name  string
		first step
		then  func(t *testing.T, w world)
		want  string
	}{
		{"one key that it wrote is enough", loseReply, func(t *testing.T, w world) { set(t, w, "a"); create(t, w, "c") }, applied},
		{"a key of a set that still stands", loseRequest, func(t *testing.T, w world) { create(t, w, "b"); remove(t, w, "c") }, refused},
		{"a key of a delete that was written but never gone", loseRequest, func(t *testing.T, w world) { set(t, w, "a"); set(t, w, "c") }, refused},
		{"a key of a delete that came anew", loseRequest, func(t *testing.T, w world) { set(t, w, "a"); remove(t, w, "c"); create(t, w, "c") }, untold},
		{"everything overwritten after it was applied", loseReply, func(t *testing.T, w world) { set(t, w, "a"); set(t, w, "b") }, untold},
		{"everything written when it was not applied", loseRequest, func(t *testing.T, w world) { set(t, w, "a"); remove(t, w, "c") }, untold},
		{"everything deleted after it was applied", loseReply, func(t *testing.T, w world) { remove(t, w, "a"); remove(t, w, "b") }, untold},
	} {
		t.Run(c.name+" is "+c.want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reg := client(t)
				w := world{reg, commit(t, reg, registry.Create("a", nil), registry.Create("c", nil))}
				s := &scripted{Registry: reg, steps: []step{c.first, after(func() { c.then(t, w) }, pass)}}
				rev, err := registry.Apply(t.Context(), s, txnOf(w))
				require.Len(t, s.sent, 2)
				switch c.want {
				case applied:
					require.NoError(t, err)
					require.Equal(t, get(t, reg, "b").Modified, rev)
					require.Equal(t, "ours", string(get(t, reg, "b").Value))
				case refused:
					require.ErrorIs(t, err, registry.ErrConflict)
					require.NotErrorIs(t, err, registry.ErrUnknownOutcome)
				case untold:
					var conflict *registry.ConflictError
					require.ErrorAs(t, err, &conflict)
					require.ErrorIs(t, err, registry.ErrUnknownOutcome)
				}
			})
		})
	}

	t.Run("a key of a create that was there all along is refused", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			reg := client(t)
			commit(t, reg, registry.Create("b", nil))
			rev := commit(t, reg, registry.Create("at", nil))
			s := &scripted{Registry: reg, steps: []step{loseRequest}}
			_, err := registry.Apply(t.Context(), s, registry.Txn{
				If:   []registry.Cond{registry.At("at", rev)},
				Then: []registry.Op{registry.Create("b", nil)},
			})
			require.ErrorIs(t, err, registry.ErrConflict)
			require.NotErrorIs(t, err, registry.ErrUnknownOutcome)
		})
	})

	t.Run("a key of a create made by another is untold", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			reg := client(t)
			s := &scripted{Registry: reg, steps: []step{loseReply, after(func() {
				commit(t, reg, registry.Delete("b", get(t, reg, "b").Modified))
				commit(t, reg, registry.Create("b", nil))
			}, pass)}}
			_, err := registry.Apply(t.Context(), s, registry.Txn{Then: []registry.Op{registry.Create("b", nil)}})
			require.ErrorIs(t, err, registry.ErrConflict)
			require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		})
	})

	t.Run("a delete whose keys are gone counts as applied at no rev", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			reg := client(t)
			at := commit(t, reg, registry.Create("a", nil))
			s := &scripted{Registry: reg, steps: []step{loseReply}}
			rev, err := registry.Apply(t.Context(), s, registry.Txn{Then: []registry.Op{registry.Delete("a", at)}})
			require.NoError(t, err)
			require.True(t, rev.IsZero())
		})
	})
}

func TestApply_RefusalsAfterAnUnknownOutcomeAreNotTakenAtTheirWord(t *testing.T) {
	for _, refusal := range []error{registry.ErrSessionLost, registry.ErrQuota, registry.ErrPermission, registry.ErrClosed} {
		t.Run(refusal.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reg := client(t)
				at := commit(t, reg, registry.Create("a", nil))
				txn := registry.Txn{Then: []registry.Op{registry.Set("a", at, nil)}}

				s := &scripted{Registry: reg, steps: []step{loseRequest, answer(refusal)}}
				_, err := registry.Apply(t.Context(), s, txn)
				require.Equal(t, refusal, err, "the key still stands")

				s = &scripted{Registry: reg, steps: []step{loseReply, answer(refusal)}}
				rev, err := registry.Apply(t.Context(), s, txn)
				require.NoError(t, err)
				require.Equal(t, get(t, reg, "a").Modified, rev)
			})
		})
	}

	t.Run("a handle that was closed during the call is not asked again", func(t *testing.T) {
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

	t.Run("a session that ended took the proof along", func(t *testing.T) {
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

	t.Run("a store that may not be read leaves it unknown", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{Registry: client(t), steps: []step{loseReply}, gets: []error{registry.ErrPermission}}
			_, err := registry.Apply(t.Context(), s, registry.Txn{Then: []registry.Op{registry.Create("a", nil)}})
			require.ErrorIs(t, err, registry.ErrUnknownOutcome)
			require.ErrorIs(t, err, registry.ErrConflict)
			require.ErrorIs(t, err, registry.ErrPermission)
		})
	})

	t.Run("a store that cannot be read now is asked again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{
				Registry: client(t), steps: []step{loseReply},
				gets: []error{registry.ErrUnavailable, registry.ErrUnavailable},
			}
			rev, err := registry.Apply(t.Context(), s, registry.Txn{Then: []registry.Op{registry.Create("a", nil)}})
			require.NoError(t, err)
			require.Equal(t, get(t, s, "a").Modified, rev)
		})
	})
}

func TestApply_EndsWithItsContext(t *testing.T) {
	errBored := errors.New("bored")
	txn := registry.Txn{Then: []registry.Op{registry.Create("a", nil)}}
	always := func(err error) []step {
		steps := make([]step, 1000)
		for i := range steps {
			steps[i] = answer(err)
		}
		return steps
	}
	within := func(t *testing.T, d time.Duration) context.Context {
		ctx, cancel := context.WithTimeoutCause(t.Context(), d, errBored)
		t.Cleanup(cancel)
		return ctx
	}

	t.Run("not applied if nothing can have been", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{Registry: client(t), steps: always(registry.ErrNotApplied)}
			_, err := registry.Apply(within(t, 10*time.Second), s, txn)
			require.ErrorIs(t, err, registry.ErrNotApplied)
			require.NotErrorIs(t, err, registry.ErrUnknownOutcome)
			require.ErrorIs(t, err, errBored)
			require.Less(t, len(s.sent), 60, "half a second between sends")
			require.Greater(t, len(s.sent), 20)
		})
	})

	t.Run("unknown if something may have been", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{Registry: client(t), steps: append([]step{loseRequest}, always(registry.ErrNotApplied)...)}
			_, err := registry.Apply(within(t, time.Second), s, txn)
			require.ErrorIs(t, err, registry.ErrUnknownOutcome)
			require.NotErrorIs(t, err, registry.ErrNotApplied)
			require.ErrorIs(t, err, errBored)
		})
	})

	t.Run("unknown if what was said of it is not that it was not applied", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{Registry: client(t), steps: always(registry.ErrUnavailable)}
			_, err := registry.Apply(within(t, time.Second), s, txn)
			require.ErrorIs(t, err, registry.ErrUnknownOutcome)
		})
	})

	t.Run("at once if it had ended before", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			reg := client(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(errBored)
			start := time.Now()
			_, err := registry.Apply(ctx, reg, txn)
			require.ErrorIs(t, err, registry.ErrNotApplied)
			require.ErrorIs(t, err, errBored)
			require.Zero(t, time.Since(start))
			isAbsent(t, reg, "a")
		})
	})

	t.Run("a check alone leaves nothing unknown", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{Registry: client(t), steps: always(registry.ErrUnknownOutcome)}
			_, err := registry.Apply(within(t, time.Second), s, registry.Txn{If: []registry.Cond{registry.Absent("a")}})
			require.ErrorIs(t, err, registry.ErrNotApplied)
			require.NotErrorIs(t, err, registry.ErrUnknownOutcome)
		})
	})
}

func TestApply_RepeatsAnUnansweredCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := client(t)
		check := registry.Txn{If: []registry.Cond{registry.Absent("a")}}
		s := &scripted{Registry: reg, steps: []step{loseRequest, loseReply}}
		_, err := registry.Apply(t.Context(), s, check)
		require.NoError(t, err)

		commit(t, reg, registry.Create("a", nil))
		s.steps = []step{loseRequest}
		_, err = registry.Apply(t.Context(), s, check)
		require.ErrorIs(t, err, registry.ErrConflict)
		require.NotErrorIs(t, err, registry.ErrUnknownOutcome)
		require.Zero(t, s.read)
	})
}
