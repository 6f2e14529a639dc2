package rotatest

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// scribe writes records by hand, as a coordinator would and should not.
type scribe struct {
	t      *testing.T
	server *memory.Server
	client *memory.Client
	keys   record.Keys
	books  *model
	faults []string
	revs   map[registry.Key]registry.Rev
	plan   *record.Plan
	claims map[string]*record.Claims // by incarnation
	begin  record.Instant
}

func newScribe(t *testing.T) *scribe {
	s := &scribe{
		t: t, server: memory.New(), revs: map[registry.Key]registry.Rev{}, claims: map[string]*record.Claims{},
		begin: record.InstantOf(time.Now()),
	}
	s.server.Record()
	s.client = s.server.Client("scribe")
	keys, err := record.NewKeys(Namespace, "default")
	require.NoError(t, err)
	s.keys = keys
	s.books = newModel(func(format string, args ...any) { s.faults = append(s.faults, fmt.Sprintf(format, args...)) })
	s.books.addGroup(keys)
	s.plan = &record.Plan{
		Format: record.Format, Job: "job", Epochs: []record.Epoch{s.epoch(1, 0, 0)},
		Owners: map[string]shardset.Set{"a.1": shardset.Range(0, 2)},
	}
	s.commit(s.put(s.keys.Plan("job"), s.plan))
	return s
}

// at returns an instant so many hours from the beginning.
func (s *scribe) at(hours float64) record.Instant {
	return s.begin.Add(time.Duration(hours * float64(time.Hour)))
}

// epoch returns a span of hours of an hourly job with two shards.
func (s *scribe) epoch(gen int, from, until float64) record.Epoch {
	e, err := record.NewEpoch(gen, s.at(from), json.RawMessage(`{"name":"job","shards":2,"schedule":"every 1h"}`))
	require.NoError(s.t, err)
	if until != 0 {
		e.Until = s.at(until)
	}
	return e
}

func (s *scribe) put(key registry.Key, v any) registry.Op {
	value, err := record.Encode(v)
	require.NoError(s.t, err)
	if rev, ok := s.revs[key]; ok {
		return registry.Set(key, rev, value)
	}
	return registry.Create(key, value)
}

func (s *scribe) commit(ops ...registry.Op) {
	rev, err := s.client.Txn(s.t.Context(), registry.Txn{Then: ops})
	require.NoError(s.t, err)
	for _, op := range ops {
		if s.revs[op.Key] = rev; op.Kind == registry.OpDelete {
			delete(s.revs, op.Key)
		}
	}
	s.books.apply(s.server.Log())
}

// replan writes a changed plan.
func (s *scribe) replan(change func(*record.Plan)) {
	s.plan = s.plan.Clone()
	change(s.plan)
	s.commit(s.put(s.keys.Plan("job"), s.plan))
}

// claim writes a changed record of an incarnation.
func (s *scribe) claim(incarnation string, change func(*record.Claims)) {
	c := record.Claims{Job: "job"}
	if old := s.claims[incarnation]; old != nil {
		c = *old
	}
	change(&c)
	s.claims[incarnation] = &c
	s.commit(s.put(s.keys.Claims(incarnation, "job"), &c))
}

// run claims a run of shards.
func (s *scribe) run(incarnation string, shards shardset.Set, r record.Ref) {
	s.claim(incarnation, func(c *record.Claims) {
		c.Running = c.Running.With(shards, r)
		c.Watermarks = c.Watermarks.Raise(shards, r.Watermark())
	})
}

func (s *scribe) end(incarnation string, shards shardset.Set) {
	s.claim(incarnation, func(c *record.Claims) { c.Running = c.Running.Without(shards) })
}

// fire is the run of a fire by the first definition.
func (s *scribe) fire(hours float64) record.Ref {
	return record.Ref{Epoch: 1, Fire: s.at(hours), Attempt: 1}
}

func TestAudit(t *testing.T) {
	both := shardset.Range(0, 2)
	for _, c := range []struct {
		name string
		do   func(s *scribe)
		want string // part of the only fault; empty: there is none
	}{
		{"fires claimed in turn", func(s *scribe) {
			for hour := range 3 {
				s.run("a.1", both, s.fire(float64(hour)))
				s.end("a.1", shardset.Of(0))
				s.end("a.1", shardset.Of(1))
			}
		}, ""},
		{"shards claimed apart", func(s *scribe) {
			s.run("a.1", shardset.Of(0), s.fire(0))
			s.run("b.1", shardset.Of(1), s.fire(0))
		}, ""},
		{"fires skipped and counted", func(s *scribe) {
			s.claim("a.1", func(c *record.Claims) {
				c.Running = c.Running.With(both, s.fire(3))
				c.Watermarks = c.Watermarks.Raise(both, s.fire(3).Watermark())
				c.Counts.Skipped = 6
			})
			s.claim("a.1", func(c *record.Claims) {
				c.Watermarks = c.Watermarks.Raise(shardset.Of(0), record.Watermark{Epoch: 1, Fire: s.at(5)})
				c.Counts.Skipped += 2
			})
		}, ""},
		{"a fire claimed late for one shard and in time for the other", func(s *scribe) {
			late := s.fire(1)
			late.Missed = true
			s.run("a.1", shardset.Of(1), s.fire(0))
			s.end("a.1", both)
			s.claim("a.1", func(c *record.Claims) {
				c.Running = c.Running.With(shardset.Of(0), late).With(shardset.Of(1), s.fire(1))
				c.Watermarks = c.Watermarks.Raise(both, s.fire(1).Watermark())
				c.Counts.Skipped = 1
			})
		}, ""},
		{"a trigger passes over no fire", func(s *scribe) {
			s.run("a.1", both, record.Ref{Epoch: 1, Fire: s.at(3.5), Trigger: 1, Attempt: 1})
		}, ""},
		{"fires skipped and not all counted", func(s *scribe) {
			s.claim("a.1", func(c *record.Claims) {
				c.Running = c.Running.With(both, s.fire(3))
				c.Watermarks = c.Watermarks.Raise(both, s.fire(3).Watermark())
				c.Counts.Skipped = 5
			})
		}, "job/0-1: lost: 6 fires of these shards were passed over, and 5 counted"},
		{"a fire neither claimed nor counted", func(s *scribe) {
			s.claim("a.1", func(c *record.Claims) { c.Watermarks = c.Watermarks.Raise(shardset.Of(1), s.fire(0).Watermark()) })
		}, "job/1: lost: 1 fires of these shards were passed over, and 0 counted"},
		{"a fire claimed for one shard and passed over for the other", func(s *scribe) {
			s.claim("a.1", func(c *record.Claims) {
				c.Running = c.Running.With(shardset.Of(0), s.fire(0))
				c.Watermarks = c.Watermarks.Raise(both, s.fire(0).Watermark())
			})
		}, "lost: 1 fires of these shards"},
		{"a plan that knows better than the claims", func(s *scribe) {
			s.replan(func(p *record.Plan) { p.Watermarks = p.Watermarks.Raise(shardset.Of(1), s.fire(2).Watermark()) })
		}, "job/1: lost: the plan passes over 3 fires"},
		{"a plan that folds claims in", func(s *scribe) {
			s.run("a.1", both, s.fire(0))
			s.replan(func(p *record.Plan) { p.Watermarks = p.Watermarks.Raise(both, s.fire(0).Watermark()) })
		}, ""},
		{"a fire claimed again", func(s *scribe) {
			s.run("a.1", both, s.fire(0))
			s.end("a.1", both)
			s.run("b.1", shardset.Of(1), s.fire(0))
		}, "job/1: claimed twice: the run for 2000-01-01 00:00:00"},
		{"the next fire claimed beside a run", func(s *scribe) {
			s.run("a.1", both, s.fire(0))
			s.run("b.1", shardset.Of(0), s.fire(1))
		}, "job/0: the run for 2000-01-01 01:00:00 was claimed while a run on a stood on record"},
		{"a crash whose runs are pending", func(s *scribe) {
			s.run("a.1", both, s.fire(0))
			s.bury(func(p *record.Plan) { p.Reruns = p.Reruns.With(both, again(s.fire(0))) })
			s.run("b.1", both, again(s.fire(0)))
			s.replan(func(p *record.Plan) { p.Reruns = nil })
		}, ""},
		{"a crash whose runs are counted", func(s *scribe) {
			s.run("a.1", both, s.fire(0))
			s.bury(func(p *record.Plan) { p.Counts.Lost = 2 })
		}, ""},
		{"a crash whose runs are not all pending", func(s *scribe) {
			s.run("a.1", both, s.fire(0))
			s.bury(func(p *record.Plan) { p.Reruns = p.Reruns.With(shardset.Of(0), again(s.fire(0))) })
		}, "job/1: lost: these were running on a; they are neither to be run again nor counted (0 are)"},
		{"a crash whose runs are not all counted", func(s *scribe) {
			s.run("a.1", both, s.fire(0))
			s.bury(func(p *record.Plan) { p.Counts.Lost = 1 })
		}, "nor counted (1 are)"},
		{"a crash whose runs are pending as they were", func(s *scribe) {
			s.run("a.1", both, s.fire(0))
			s.bury(func(p *record.Plan) { p.Reruns = p.Reruns.With(both, s.fire(0)) })
		}, "neither to be run again"},
		{"a re-run dropped before it was claimed", func(s *scribe) {
			s.run("a.1", both, s.fire(0))
			s.bury(func(p *record.Plan) { p.Reruns = p.Reruns.With(both, again(s.fire(0))) })
			s.run("b.1", shardset.Of(0), again(s.fire(0)))
			s.replan(func(p *record.Plan) { p.Reruns = nil })
		}, "job/1: lost: the plan has dropped the run for 2000-01-01 00:00:00, attempt 2"},
		{"a definition that follows another", func(s *scribe) {
			s.run("a.1", both, s.fire(0))
			s.replan(func(p *record.Plan) { p.Epochs = []record.Epoch{s.epoch(1, 0, 1.5), s.epoch(2, 1.5, 0)} })
			s.end("a.1", both)
			s.run("a.1", both, s.fire(1))
			s.replan(func(p *record.Plan) { p.Epochs = p.Epochs[1:] })
			s.end("a.1", both)
			s.run("a.1", both, record.Ref{Epoch: 2, Fire: s.at(2), Attempt: 1})
		}, ""},
		{"a definition that counts too late", func(s *scribe) {
			s.replan(func(p *record.Plan) { p.Epochs = []record.Epoch{s.epoch(1, 0, 1.5), s.epoch(2, 2.5, 0)} })
		}, "job/0-1: lost: no definition holds for the fire of 2000-01-01 02:00:00"},
		{"a definition that another follows too late", func(s *scribe) {
			s.replan(func(p *record.Plan) { p.Epochs = []record.Epoch{s.epoch(1, 0, 1.5)} })
			s.replan(func(p *record.Plan) { p.Epochs = []record.Epoch{s.epoch(1, 0, 1.5), s.epoch(2, 2.5, 0)} })
		}, "no definition holds for the fire of 2000-01-01 02:00:00"},
		{"a definition that another follows at its end", func(s *scribe) {
			s.replan(func(p *record.Plan) { p.Epochs = []record.Epoch{s.epoch(1, 0, 1.5)} })
			s.replan(func(p *record.Plan) { p.Epochs = []record.Epoch{s.epoch(1, 0, 1.5), s.epoch(2, 1.5, 0)} })
		}, ""},
		{"a pause and a resume", func(s *scribe) {
			s.run("a.1", both, s.fire(0))
			s.replan(func(p *record.Plan) { p.Paused, p.Epochs = true, []record.Epoch{s.epoch(1, 0, 0.5)} })
			s.replan(func(p *record.Plan) {
				p.Paused, p.Epochs = false, []record.Epoch{s.epoch(1, 0, 0.5), s.epoch(2, 7.5, 0)}
			})
			s.end("a.1", both)
			s.run("a.1", both, record.Ref{Epoch: 2, Fire: s.at(8), Attempt: 1})
		}, ""},
		{"a definition dropped while a fire is due", func(s *scribe) {
			s.run("a.1", shardset.Of(0), s.fire(0))
			s.replan(func(p *record.Plan) { p.Epochs = []record.Epoch{s.epoch(1, 0, 0.5), s.epoch(2, 0.5, 0)} })
			s.replan(func(p *record.Plan) { p.Epochs = p.Epochs[1:] })
		}, "job/1: lost: the plan has dropped a definition by which the fire of 2000-01-01 00:00:00 is due"},
		{"the fires of a definition passed over by one of the next", func(s *scribe) {
			s.replan(func(p *record.Plan) { p.Epochs = []record.Epoch{s.epoch(1, 0, 1.5), s.epoch(2, 1.5, 0)} })
			s.run("a.1", both, record.Ref{Epoch: 2, Fire: s.at(2), Attempt: 1})
		}, "lost: 4 fires of these shards were passed over"},
		{"a watermark out of nowhere", func(s *scribe) {
			s.claim("a.1", func(c *record.Claims) { c.Watermarks = c.Watermarks.Raise(shardset.Of(1), record.Watermark{Epoch: 9}) })
		}, "job/1: lost: a watermark of epoch 9, which no plan has had"},
		{"a fire passed over beside the claim of a trigger", func(s *scribe) {
			s.claim("a.1", func(c *record.Claims) {
				c.Running = c.Running.With(both, record.Ref{Epoch: 1, Fire: s.at(0), Trigger: 1, Attempt: 1})
				c.Watermarks = c.Watermarks.Raise(both, record.Watermark{Epoch: 1, Fire: s.at(0), Attempt: 1, Trigger: 1, TriggerAttempt: 1})
			})
		}, "lost: 2 fires of these shards"},
		{"a fire passed over beside the claim of a re-run", func(s *scribe) {
			s.run("a.1", both, s.fire(0))
			s.bury(func(p *record.Plan) { p.Reruns = p.Reruns.With(both, again(s.fire(0))) })
			s.claim("b.1", func(c *record.Claims) {
				c.Running = c.Running.With(both, again(s.fire(0)))
				c.Watermarks = c.Watermarks.Raise(both, s.fire(1).Watermark())
			})
		}, "lost: 2 fires of these shards"},
		{"a crash that adds to no count", func(s *scribe) {
			s.replan(func(p *record.Plan) { p.Counts.Lost = 2 })
			s.run("a.1", both, s.fire(0))
			s.bury(func(*record.Plan) {})
		}, "nor counted (0 are)"},
		{"a crash that leaves untold what has ended, and counts it as unknown", func(s *scribe) {
			s.trackClaims()
			s.run("a.1", both, s.fire(0))
			s.bury(func(p *record.Plan) { p.Counts.Unknown = 2 })
		}, ""},
		{"a crash that leaves untold what has ended, and does not count it all", func(s *scribe) {
			s.trackClaims()
			s.run("a.1", both, s.fire(0))
			s.bury(func(p *record.Plan) { p.Counts.Unknown = 1 })
		}, "job/0-1: lost: these were claimed by a, and their ends are not tracked; they are not counted as unknown (1 are)"},
		{"a crash whose runs are counted as unknown though their ends are tracked", func(s *scribe) {
			s.run("a.1", both, s.fire(0))
			s.bury(func(p *record.Plan) { p.Counts.Unknown = 2 })
		}, "neither to be run again nor counted (0 are)"},
		{"what was refused", func(s *scribe) {
			p := s.plan.Clone()
			p.Watermarks = p.Watermarks.Raise(both, s.fire(0).Watermark())
			_, err := s.client.Txn(s.t.Context(), registry.Txn{
				If:   []registry.Cond{registry.Absent(s.keys.Plan("job"))},
				Then: []registry.Op{s.put(s.keys.Plan("job"), p)},
			})
			require.ErrorIs(s.t, err, registry.ErrConflict)
			s.books.apply(s.server.Log())
		}, ""},
		{"a record that cannot be read", func(s *scribe) {
			s.commit(registry.Create(s.keys.Plan("other"), []byte("{")))
		}, "scribe wrote rotatest/groups/default/plan/other at 2000-01-01 00:00:00, which cannot be read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScribe(t)
				c.do(s)
				if c.want == "" {
					assert.Empty(t, s.faults)
					return
				}
				if assert.Len(t, s.faults, 1) {
					assert.Contains(t, s.faults[0], c.want)
				}
			})
		})
	}
}

// trackClaims makes the job one of which only claims are tracked.
func (s *scribe) trackClaims() {
	s.replan(func(p *record.Plan) {
		e, err := record.NewEpoch(1, s.at(0), json.RawMessage(`{"name":"job","shards":2,"schedule":"every 1h","tracking":"claims"}`))
		require.NoError(s.t, err)
		p.Epochs = []record.Epoch{e}
	})
}

// bury removes a.1, with a change of the plan in the same commit.
func (s *scribe) bury(change func(*record.Plan)) {
	s.plan = s.plan.Clone()
	s.plan.Watermarks = s.plan.Watermarks.Fold(s.claims["a.1"].Watermarks, everyShard())
	s.plan.Owners = map[string]shardset.Set{"b.1": shardset.Range(0, 2)}
	change(s.plan)
	key := s.keys.Claims("a.1", "job")
	s.commit(registry.Delete(key, s.revs[key]), s.put(s.keys.Plan("job"), s.plan))
}

func again(r record.Ref) record.Ref {
	r.Attempt++
	return r
}

func TestAudit_FiresThatCountFromEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScribe(t)
		s.replan(func(p *record.Plan) {
			e, err := record.NewEpoch(1, s.at(0), json.RawMessage(`{"name":"job","shards":2,"schedule":"fixed delay 1h"}`))
			require.NoError(t, err)
			p.Epochs = []record.Epoch{e}
		})
		first := record.Ref{Epoch: 1, Fire: s.at(1), Attempt: 1}
		s.claim("a.1", func(c *record.Claims) {
			c.Running = record.Runs{{Shards: shardset.Range(0, 2), Ref: first}}
			c.Watermarks = c.Watermarks.Raise(shardset.Range(0, 2), first.Watermark())
		})
		s.claim("a.1", func(c *record.Claims) {
			c.Running = nil
			c.Watermarks = c.Watermarks.Raise(shardset.Range(0, 2), record.Watermark{Epoch: 1, Fire: s.at(9)})
		})
		require.Empty(t, s.faults, "the end of a run passes over nothing, however long the run was")
		s.claim("a.1", func(c *record.Claims) {
			c.Watermarks = c.Watermarks.Raise(shardset.Of(1), record.Watermark{Epoch: 1, Fire: s.at(20)})
		})
		require.Len(t, s.faults, 1, "a free shard must not pass over the fire that it has")
		assert.Contains(t, s.faults[0], "lost: 1 fires")
	})
}
