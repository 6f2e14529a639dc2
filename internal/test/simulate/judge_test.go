package simulate

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/registry"
)

// recordHistory simulates a fleet and returns the input of its judge, and the slack.
func recordHistory(t *testing.T) (*history, time.Duration) {
	t.Helper()
	return recordFleet(t, Config{
		Seed: 1, Instances: 4, Jobs: 3, Shards: 4, Every: time.Minute, Takes: 20 * time.Second,
		For: time.Hour, Faults: 5 * time.Minute, Kinds: []Fault{Crash, Leave}, TTL: 10 * time.Second, Drain: 30 * time.Second,
	})
}

// recordOperators simulates a fleet on which operators act.
func recordOperators(t *testing.T) (*history, time.Duration) {
	t.Helper()
	return recordFleet(t, Config{
		Seed: 3, Instances: 4, Jobs: 3, Shards: 4, Every: time.Minute, Takes: 20 * time.Second,
		For: 2 * time.Hour, Faults: time.Minute, Kinds: []Fault{Crash, Leave}, TTL: 10 * time.Second, Drain: 30 * time.Second, Operators: true,
	})
}

func recordFleet(t *testing.T, c Config) (*history, time.Duration) {
	t.Helper()
	h := &history{}
	var slack time.Duration
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(c)
		f.tap = h.add
		require.NoError(t, f.run())
		require.NoError(t, f.report.Err())
		h.original, slack = f.judge, f.slack()
	})
	return h, slack
}

// TestJudge_FindsEachFalsification passes histories to a judge in each of which one fact is changed.
func TestJudge_FindsEachFalsification(t *testing.T) {
	whole, slack := recordHistory(t)
	findEach(t, whole, slack, falsifications)
}

// TestJudge_FindsEachFalsificationOfRequests does the same with the history of a fleet on which operators act.
func TestJudge_FindsEachFalsificationOfRequests(t *testing.T) {
	whole, slack := recordOperators(t)
	findEach(t, whole, slack, requestFalsifications)
}

func findEach(t *testing.T, whole *history, slack time.Duration, all []falsification) {
	t.Helper()
	require.NoError(t, whole.clone().judgeAgain(slack).Err(), "the unchanged history has no violation")
	for _, f := range all {
		t.Run(f.text, func(t *testing.T) {
			h := whole.clone()
			require.True(t, f.apply(h), "the history has no place for the change")
			r := h.judgeAgain(slack)
			assert.Positive(t, r.Broken[f.breaks], "%v", r.Err())
			if f.finds != "" {
				assert.ErrorContains(t, r.Err(), f.finds)
			}
		})
	}
}

func TestJudge_ExcusesAProcessWhoseSessionExpiredByForce(t *testing.T) {
	h, slack := recordHistory(t)
	late := -1 // a run that a crash ended and that was made again
	for i, first := range h.calls {
		again := slices.IndexFunc(h.calls, func(c recordedCall) bool {
			return c.Attempt == 2 && first.Attempt == 1 && c.Job == first.Job && c.Shard == first.Shard && c.Fire.Equal(first.Fire)
		})
		if again < 0 {
			continue
		}
		h = h.clone()
		late = i
		h.calls[i].Start = h.calls[again].Start.Add(time.Millisecond) // the reply to its claim was late
		h.calls[i].end, h.calls[i].canceled = h.calls[i].Start.Add(time.Second), time.Time{}
		break
	}
	require.GreaterOrEqual(t, late, 0)
	r := h.judgeAgain(slack)
	assert.Positive(t, r.Broken[1], "functions overlap")
	assert.Positive(t, r.Broken[6], "a fence goes back")

	h.forced = h.calls[late].Client
	r = h.judgeAgain(slack)
	require.NoError(t, r.Err())
	assert.Positive(t, r.ForcedOverlaps)
}

// falsification is a change of a history. It returns false if the history has no place for it.
type falsification struct {
	text   string
	breaks int
	apply  func(*history) bool
	finds  string // part of the violation's text, if other violations break the same promise
}

var falsifications = []falsification{
	{text: "two members claim a run", breaks: 1, apply: func(h *history) bool {
		return h.eachClaim(func(i int, c *claimsWrite) bool {
			other := h.neighbour(i, c.incarnation)
			if other == "" {
				return false
			}
			twin := h.commits[i]
			twin.Client = h.clientOf(other)
			twin.If = nil
			twin.Then = []registry.Op{registry.Create(h.key("claims", other, c.segment), c.op.Value)}
			h.insert(i+1, twin)
			return true
		})
	}},
	{text: "a member claims a run twice", breaks: 1, apply: func(h *history) bool {
		return h.eachClaim(func(i int, c *claimsWrite) bool {
			end := h.next(i, func(o *claimsWrite) bool {
				return o.incarnation == c.incarnation && o.segment == c.segment && len(o.rec.Running) == 0
			})
			if end < 0 {
				return false
			}
			again := h.commits[i]
			again.Rev.Seq, again.At, again.Then = h.commits[end].Rev.Seq, h.commits[end].At, []registry.Op{c.op}
			h.insert(end+1, again)
			return true
		})
	}},
	{text: "an expired incarnation claims", breaks: 1, apply: func(h *history) bool {
		return h.eachClaim(func(i int, c *claimsWrite) bool {
			h.insert(i, judge.Commit{Rev: h.commits[i].Rev, At: h.commits[i].At, Client: h.commits[i].Client, Ended: sessionOf(c.incarnation)})
			return true
		})
	}},
	{text: "another client writes claims", breaks: 1, apply: func(h *history) bool {
		return h.eachClaim(func(i int, c *claimsWrite) bool {
			h.commits[i].Client = "other"
			return true
		})
	}},
	{text: "a call begins twice", breaks: 1, apply: func(h *history) bool {
		h.calls = append(h.calls, h.calls[7])
		return true
	}},
	{text: "a call begins without a claim", breaks: 1, apply: func(h *history) bool {
		h.calls[7].Attempt = 9
		return true
	}},
	{text: "calls overlap while the context of the first is alive", breaks: 1, apply: func(h *history) bool {
		return h.eachRepeat(func(i, later int) bool {
			h.calls[i].end = h.calls[later].Start.Add(time.Second)
			return true
		})
	}},
	{text: "calls overlap before the context of the first ends", breaks: 1, apply: func(h *history) bool {
		return h.eachRepeat(func(i, later int) bool {
			h.calls[i].end = h.calls[later].Start.Add(time.Second)
			h.calls[i].canceled = h.calls[later].Start.Add(time.Millisecond)
			return true
		})
	}},
	{text: "a fire is claimed early", breaks: 2, apply: func(h *history) bool {
		return h.eachClaim(func(i int, c *claimsWrite) bool {
			h.commits[i].At = h.commits[i].At.Add(-time.Second)
			return true
		})
	}},
	{text: "a fire is passed without a claim", breaks: 2, apply: func(h *history) bool {
		return h.eachClaim(func(i int, c *claimsWrite) bool {
			h.remove(i, c.op.Key)
			return true
		})
	}},
	{text: "a fire that is not in the schedule is claimed", breaks: 2, apply: func(h *history) bool {
		return h.eachClaim(func(i int, c *claimsWrite) bool {
			return h.edit(i, c.op.Key, func(rec map[string]any) bool {
				rec["running"].([]any)[0].(map[string]any)["fire"] = "2000-01-01T00:00:30Z"
				return true
			})
		})
	}},
	{text: "fires are counted as skipped that were not", breaks: 2, apply: func(h *history) bool {
		return h.eachClaim(func(i int, c *claimsWrite) bool {
			return h.edit(i, c.op.Key, func(rec map[string]any) bool {
				rec["counts"].(map[string]any)["skipped"] = 3
				return true
			})
		})
	}},
	{text: "a trigger is not claimed", breaks: 2, apply: func(h *history) bool {
		return h.eachPlan(func(i int, key registry.Key) bool {
			return h.edit(i, key, func(rec map[string]any) bool {
				rec["triggers"] = []any{map[string]any{"number": 1, "epoch": 1}}
				return true
			})
		})
	}},
	{text: "the last claims are missing", breaks: 2, apply: func(h *history) bool {
		h.middle = min(h.middle, len(h.commits))
		h.commits = append(h.commits[:h.middle-40:h.middle-40], h.commits[h.middle:]...)
		h.middle -= 40
		return true
	}},
	{text: "the records count too few claims", breaks: 2, apply: func(h *history) bool {
		for i := len(h.commits) - 1; i >= h.middle; i-- {
			for _, op := range h.commits[i].Then {
				if h.commits[i].Err == nil && strings.Contains(string(op.Key), "/plan/") && h.edit(i, op.Key, func(rec map[string]any) bool {
					counts, ok := rec["counts"].(map[string]any)
					if ok {
						counts["claimed"] = counts["claimed"].(float64) - 1
					}
					return ok
				}) {
					return true
				}
			}
		}
		return false
	}},
	{text: "a failover drops runs in flight", breaks: 3, apply: func(h *history) bool {
		return h.eachPlan(func(i int, key registry.Key) bool {
			return h.edit(i, key, func(rec map[string]any) bool {
				_, ok := rec["reruns"]
				delete(rec, "reruns")
				return ok
			})
		})
	}},
	{text: "too many runs are counted as lost", breaks: 3, apply: func(h *history) bool {
		return h.eachPlan(func(i int, key registry.Key) bool {
			return h.edit(i, key, func(rec map[string]any) bool {
				counts, ok := rec["counts"].(map[string]any)
				if ok {
					counts["lost"] = 99
				}
				return ok
			})
		})
	}},
	{text: "a re-run is never claimed", breaks: 3, apply: func(h *history) bool {
		return h.eachRerun(func(i int, c *claimsWrite) bool {
			h.remove(i, c.op.Key)
			return true
		})
	}},
	{text: "a watermark passes a fire before a pending re-run", breaks: 3, apply: func(h *history) bool {
		return h.eachRerun(func(i int, c *claimsWrite) bool {
			h.insert(i, h.commits[i])
			return h.edit(i, c.op.Key, func(rec map[string]any) bool {
				delete(rec, "running")
				next := h.commits[i].At.UTC().Truncate(time.Minute).Add(time.Minute)
				rec["watermarks"] = []any{map[string]any{"shards": c.rec.Running[0].Shards, "epoch": c.rec.Running[0].Epoch, "fire": next}}
				return true
			})
		})
	}},
	{text: "a run is claimed again although no session ended", breaks: 3, apply: func(h *history) bool {
		return h.eachClaim(func(i int, c *claimsWrite) bool {
			return h.edit(i, c.op.Key, func(rec map[string]any) bool {
				rec["running"].([]any)[0].(map[string]any)["attempt"] = 2
				return true
			})
		})
	}},
	{text: "a running shard moves", breaks: 4, apply: func(h *history) bool {
		return h.eachClaim(func(i int, c *claimsWrite) bool {
			at := h.lastPlan(i, c.segment)
			if at < 0 {
				return false
			}
			move := h.commits[at]
			move.At = h.commits[i].At
			h.insert(i+1, move)
			return h.edit(i+1, h.key("plan", "", c.segment), func(rec map[string]any) bool {
				owners := rec["owners"].(map[string]any)
				owners["other.S99"] = owners[c.incarnation]
				delete(owners, c.incarnation)
				return true
			})
		})
	}},
	{text: "a member claims shards that it does not own", breaks: 4, apply: func(h *history) bool {
		return h.eachClaim(func(i int, c *claimsWrite) bool {
			return h.edit(i, c.op.Key, func(rec map[string]any) bool {
				rec["running"].([]any)[0].(map[string]any)["shards"] = "0-3"
				return true
			})
		})
	}},
	{text: "the shards are assigned unevenly", breaks: 5, apply: func(h *history) bool {
		return h.lastPlans(func(rec map[string]any) {
			for inc := range rec["owners"].(map[string]any) {
				rec["owners"] = map[string]any{inc: "0-3"}
				return
			}
		})
	}},
	{text: "shards are reassigned within the restart grace", breaks: 5, apply: func(h *history) bool {
		for i := range h.commits {
			for _, op := range h.commits[i].Then {
				if strings.Contains(string(op.Key), "/members/") && op.Kind != registry.OpDelete {
					h.edit(i, op.Key, func(rec map[string]any) bool {
						rec["restart_grace"] = "1m"
						return true
					})
				}
			}
		}
		return true
	}},
	{text: "a shard has no owner", breaks: 5, apply: func(h *history) bool {
		return h.lastPlans(func(rec map[string]any) { rec["owners"] = map[string]any{} })
	}},
	{text: "a shard stays frozen", breaks: 5, apply: func(h *history) bool {
		return h.lastPlans(func(rec map[string]any) { rec["frozen"] = "1" })
	}},
	{text: "a served re-run stays in the plan", breaks: 5, apply: func(h *history) bool {
		return h.lastPlans(func(rec map[string]any) {
			rec["reruns"] = []any{map[string]any{"shards": "1", "epoch": 1, "attempt": 2}}
		})
	}},
	{text: "a plan is written without a condition on the term", breaks: 6, apply: func(h *history) bool {
		return h.eachPlan(func(i int, key registry.Key) bool {
			h.commits[i].If = nil
			return true
		})
	}},
	{text: "a plan is written in an earlier term", breaks: 6, apply: func(h *history) bool {
		return h.eachPlan(func(i int, key registry.Key) bool {
			h.commits[i].If = []registry.Cond{registry.At(h.key("election", "", "leader"), registry.Rev{Seq: 1, Aux: 1})}
			return true
		})
	}},
	{text: "a client that does not lead writes a plan", breaks: 6, apply: func(h *history) bool {
		return h.eachPlan(func(i int, key registry.Key) bool {
			h.commits[i].Client = "other"
			return true
		})
	}},
	{text: "a leader that is alive is replaced", breaks: 6, apply: func(h *history) bool {
		for i := range h.commits {
			c := h.commits[i]
			if c.Err != nil || !slices.ContainsFunc(c.Then, func(op registry.Op) bool { return op.Key.Name() == "leader" }) {
				continue
			}
			c.Client = "other"
			h.insert(i+1, c)
			return true
		}
		return false
	}},
	{text: "a fence does not grow", breaks: 6, apply: func(h *history) bool {
		return h.eachClaim(func(i int, c *claimsWrite) bool {
			h.commits[i].Rev.Seq = 1
			return true
		})
	}},
	{text: "a call gets another fence", breaks: 6, apply: func(h *history) bool {
		h.calls[7].Fence++
		return true
	}},
	{text: "a fire is claimed later than it could be", breaks: 7, apply: func(h *history) bool {
		return h.eachClaim(func(i int, c *claimsWrite) bool {
			h.commits[i].At = h.commits[i].At.Add(2 * time.Second)
			return true
		})
	}},
	{text: "a failover is late", breaks: 7, apply: func(h *history) bool {
		return h.eachPlan(func(i int, key registry.Key) bool {
			if !slices.ContainsFunc(h.commits[i].Then, func(op registry.Op) bool {
				return op.Kind == registry.OpDelete && strings.Contains(string(op.Key), "/claims/")
			}) || !strings.Contains(string(h.value(i, key)), "reruns") {
				return false
			}
			h.commits[i].At = h.commits[i].At.Add(2 * time.Second)
			return true
		})
	}},
	{text: "an epoch changes its total", breaks: 8, apply: func(h *history) bool {
		return h.lastPlans(func(rec map[string]any) {
			rec["epochs"].([]any)[0].(map[string]any)["definition"].(map[string]any)["shards"] = 5
		})
	}},
	{text: "a call gets another total", breaks: 8, apply: func(h *history) bool {
		h.calls[7].Shards++
		return true
	}},
	{text: "a disabled shard is claimed", breaks: 9, apply: func(h *history) bool { return h.claimedThough("disabled") }},
	{text: "a frozen shard is claimed", breaks: 9, apply: func(h *history) bool { return h.claimedThough("frozen") }},
	{text: "a plan does not show a disabled shard", breaks: 9, apply: func(h *history) bool {
		return h.lastPlans(func(rec map[string]any) { h.writeControl(rec["job"].(string), `{"disabled_shards":"1"}`) })
	}},
	{text: "a disabled instance owns shards", breaks: 9, apply: func(h *history) bool {
		return h.lastPlans(func(rec map[string]any) {
			for inc := range rec["owners"].(map[string]any) {
				name, _, _ := strings.Cut(inc, ".")
				h.writeControl("-group", `{"disabled_instances":["`+name+`"]}`)
				return
			}
		})
	}},
	{text: "an instance on a disabled host owns shards", breaks: 9, apply: func(h *history) bool {
		h.writeControl("-group", `{"disabled_hosts":["h0"]}`)
		return true
	}},
	{text: "all instances are disabled but the plan names no problem", breaks: 9, apply: func(h *history) bool {
		return h.lastPlans(func(rec map[string]any) {
			h.writeControl(rec["job"].(string), `{"disabled_hosts":["h0","h1"]}`)
			rec["owners"] = map[string]any{}
		})
	}},
	{text: "a shard is assigned to a member that lacks labels", breaks: 10, apply: func(h *history) bool {
		return h.eachPlan(func(i int, key registry.Key) bool { return h.edit(i, key, wantLabels) })
	}},
	{text: "a member that lacks labels owns shards in the end", breaks: 10, apply: func(h *history) bool {
		return h.lastPlans(func(rec map[string]any) { wantLabels(rec) })
	}},
	{text: "no member has the labels but the plan names no problem", breaks: 9, apply: func(h *history) bool {
		return h.lastPlans(func(rec map[string]any) {
			wantLabels(rec)
			rec["owners"] = map[string]any{}
		})
	}},
}

// wantLabels changes a plan's definition to a newer one with labels that no member has.
func wantLabels(rec map[string]any) bool {
	epochs := rec["epochs"].([]any)
	last := epochs[len(epochs)-1].(map[string]any)
	def := last["definition"].(map[string]any)
	def["run_on"], def["revision"] = map[string]any{"zone": "nowhere"}, 99
	return true
}

// claimsWrite is a write of a claims record.
type claimsWrite struct {
	op                   registry.Op
	incarnation, segment string
	rec                  record.Claims
}

// firstEditable is the first commit that is changed: the earlier ones contradict the change.
func (h *history) firstEditable() int { return h.middle / 2 }

// claimsAt returns the writes of claims in commit i.
func (h *history) claimsAt(i int) []*claimsWrite {
	var out []*claimsWrite
	for _, op := range h.commits[i].Then {
		if h.commits[i].Err != nil || !strings.Contains(string(op.Key), "/claims/") || op.Kind == registry.OpDelete {
			continue
		}
		if rec, err := record.DecodeClaims(op.Value); err == nil {
			out = append(out, &claimsWrite{op, op.Key.Dir().Name(), op.Key.Name(), rec})
		}
	}
	return out
}

// eachClaim calls try with writes that claim a fire for the first time until one returns true.
func (h *history) eachClaim(try func(i int, c *claimsWrite) bool) bool { return h.eachAttempt(1, try) }

// eachRerun calls try with writes that claim a run for the second time until one returns true.
func (h *history) eachRerun(try func(i int, c *claimsWrite) bool) bool { return h.eachAttempt(2, try) }

func (h *history) eachAttempt(n int, try func(i int, c *claimsWrite) bool) bool {
	for i := h.firstEditable(); i < h.middle; i++ {
		if len(h.commits[i].If) < 2 {
			continue // without a condition on a plan it only records ends
		}
		for _, c := range h.claimsAt(i) {
			if len(c.rec.Running) != 1 || c.rec.Running[0].Attempt != n {
				continue
			}
			before := slices.Clone(h.commits)
			if try(i, c) {
				return true
			}
			h.commits = before
		}
	}
	return false
}

// next returns the first commit after i with a write of claims that matches, or -1.
func (h *history) next(i int, matches func(*claimsWrite) bool) int {
	for k := i + 1; k < h.middle; k++ {
		if slices.ContainsFunc(h.claimsAt(k), matches) {
			return k
		}
	}
	return -1
}

// eachPlan calls try with commits that change a plan until one returns true.
func (h *history) eachPlan(try func(i int, key registry.Key) bool) bool {
	for i := h.firstEditable(); i < h.middle; i++ {
		for _, op := range h.commits[i].Then {
			if h.commits[i].Err == nil && op.Kind == registry.OpSet && strings.Contains(string(op.Key), "/plan/") {
				before := h.commits[i]
				if try(i, op.Key) {
					return true
				}
				h.commits[i] = before
			}
		}
	}
	return false
}

// lastPlan returns the last commit before i that wrote the plan of a job, or -1.
func (h *history) lastPlan(i int, segment string) int {
	for i--; i >= 0; i-- {
		if h.commits[i].Err == nil && h.value(i, h.key("plan", "", segment)) != nil {
			return i
		}
	}
	return -1
}

// claimedThough adds the claimed shard to a field, disabled or frozen, of the last plan before a claim.
func (h *history) claimedThough(what string) bool {
	return h.eachClaim(func(i int, c *claimsWrite) bool {
		at := h.lastPlan(i, c.segment)
		return at >= 0 && h.edit(at, h.key("plan", "", c.segment), func(rec map[string]any) bool {
			rec[what] = c.rec.Running[0].Shards
			return true
		})
	})
}

// writeControl writes a control record just before the fleet is judged.
func (h *history) writeControl(about, control string) {
	c := h.commits[h.middle-1]
	c.Client, c.If = "console", nil
	c.Then = []registry.Op{registry.Create(h.key("control", "", about), []byte(control))}
	h.insert(h.middle, c)
}

// lastPlans changes the last plan before the fleet is judged.
func (h *history) lastPlans(change func(rec map[string]any)) bool {
	for i := h.middle - 1; i >= 0; i-- {
		for _, op := range h.commits[i].Then {
			if h.commits[i].Err == nil && strings.Contains(string(op.Key), "/plan/") {
				return h.edit(i, op.Key, func(rec map[string]any) bool {
					change(rec)
					return true
				})
			}
		}
	}
	return false
}

// eachRepeat calls try with the indexes of a call and of the next one of its shard until it returns true.
func (h *history) eachRepeat(try func(i, later int) bool) bool {
	for i := len(h.calls) / 2; i < len(h.calls); i++ {
		a := &h.calls[i]
		for k := i + 1; k < len(h.calls); k++ {
			b := &h.calls[k]
			if b.Job == a.Job && b.Shard == a.Shard {
				if b.Client != a.Client && a.canceled.IsZero() && try(i, k) {
					return true
				}
				break
			}
		}
	}
	return false
}

func (h *history) key(kind, inc, name string) registry.Key {
	k := registry.Key(namespace).Join("groups", "default", kind)
	if inc != "" {
		k = k.Join(inc)
	}
	return k.Join(name)
}

// neighbour returns another incarnation that is alive and has claims at commit i.
func (h *history) neighbour(i int, inc string) string {
	over := map[registry.SessionID]bool{}
	for k := i; k >= 0; k-- {
		over[h.commits[k].Ended] = true
		for _, c := range h.claimsAt(k) {
			if c.incarnation != inc && !over[sessionOf(c.incarnation)] {
				return c.incarnation
			}
		}
	}
	return ""
}

func (h *history) clientOf(inc string) string {
	for i := range h.commits {
		if h.commits[i].Opened == sessionOf(inc) {
			return h.commits[i].Client
		}
	}
	return ""
}

func (h *history) insert(i int, c judge.Commit) {
	h.commits = slices.Insert(h.commits, i, c)
	h.middle++
}

// remove removes the write of a key from commit i.
func (h *history) remove(i int, key registry.Key) {
	h.commits[i].Then = slices.DeleteFunc(slices.Clone(h.commits[i].Then), func(op registry.Op) bool { return op.Key == key })
}

// value returns what commit i writes to a key, or nil.
func (h *history) value(i int, key registry.Key) []byte {
	for _, op := range h.commits[i].Then {
		if op.Key == key {
			return op.Value
		}
	}
	return nil
}

// edit changes the record that commit i writes to a key.
func (h *history) edit(i int, key registry.Key, change func(rec map[string]any) bool) bool {
	ops := slices.Clone(h.commits[i].Then)
	for n := range ops {
		if ops[n].Key != key {
			continue
		}
		var rec map[string]any
		if json.Unmarshal(ops[n].Value, &rec) != nil || !change(rec) {
			return false
		}
		value, err := json.Marshal(rec)
		if err != nil {
			return false
		}
		ops[n].Value = value
		h.commits[i].Then = ops
		return true
	}
	return false
}

// sessionOf returns the session of an incarnation.
func sessionOf(inc string) registry.SessionID {
	return registry.SessionID(inc[strings.LastIndexByte(inc, '.')+1:])
}
