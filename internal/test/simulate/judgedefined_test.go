package simulate

import (
	"strings"
	"testing"
	"time"

	"github.com/rota-dev/rota/registry"
)

// recordDefined simulates a fleet while two programs define, change and delete jobs.
func recordDefined(t *testing.T) (*history, time.Duration) {
	t.Helper()
	return recordFleet(t, Config{
		Seed: 5, Instances: 3, Jobs: 1, Shards: 2, Every: time.Minute, Takes: 8 * time.Second, Defined: 4,
		For: time.Hour, Faults: 40 * time.Second, Kinds: []Fault{Crash, Leave}, TTL: 10 * time.Second, Drain: 10 * time.Second,
	})
}

// TestJudge_FindsEachFalsificationOfDefinitions does the same with the history of a fleet with defined jobs.
func TestJudge_FindsEachFalsificationOfDefinitions(t *testing.T) {
	whole, slack := recordDefined(t)
	findEach(t, whole, slack, definedFalsifications)
}

var definedFalsifications = []falsification{
	{text: "a run is claimed after Delete has returned", breaks: 15, finds: "after a Delete of", apply: func(h *history) bool {
		return h.eachAttempt(1, func(i int, c *claimsWrite) bool {
			at := h.commits[i].At.Add(-time.Nanosecond)
			h.deletes = append(h.deletes, returnedDelete{c.segment, at, at})
			return strings.HasPrefix(c.segment, "defined-")
		})
	}},
	{text: "a job is put to rest before a fire that is due", breaks: 2, finds: "put to rest before", apply: func(h *history) bool {
		return h.eachDefined(func(i int, key registry.Key) bool {
			return h.edit(i, key, func(rec map[string]any) bool {
				rest, ok := rec["rest"].(map[string]any)
				if ok = ok && h.deletesPlan(i, key) && strings.HasPrefix(scheduleIn(rec), "every"); ok {
					rest["from"] = h.commits[i].At.Add(time.Hour).Format(time.RFC3339Nano)
				}
				return ok
			})
		})
	}},
	{text: "a rest forgets the next fire", breaks: 2, finds: "its next fire is to be", apply: func(h *history) bool {
		return h.eachDefined(func(i int, key registry.Key) bool {
			return h.edit(i, key, func(rec map[string]any) bool {
				ok := h.deletesPlan(i, key) && rec["next"] != nil
				delete(rec, "next")
				return ok
			})
		})
	}},
	{text: "a rest miscounts", breaks: 2, finds: "with the counts", apply: func(h *history) bool {
		return h.eachDefined(func(i int, key registry.Key) bool {
			return h.edit(i, key, func(rec map[string]any) bool {
				rest, ok := rec["rest"].(map[string]any)
				if ok = ok && h.deletesPlan(i, key); ok {
					rest["counts"] = map[string]any{"claimed": 77}
				}
				return ok
			})
		})
	}},
	{text: "a job that wakes leaves fires out", breaks: 2, finds: "fires after", apply: func(h *history) bool {
		return h.eachFirstPlan(func(i int, key registry.Key) bool {
			return h.edit(i, key, func(rec map[string]any) bool {
				e := rec["epochs"].([]any)[0].(map[string]any)
				from, err := time.Parse(time.RFC3339Nano, e["from"].(string))
				e["from"] = from.Add(time.Hour).Format(time.RFC3339Nano)
				return err == nil && rec["paused"] == nil && strings.HasPrefix(scheduleIn(e), "every")
			})
		})
	}},
	{text: "a plan is of an earlier life", breaks: 15, finds: "a plan of life", apply: func(h *history) bool {
		return h.eachFirstPlan(func(i int, key registry.Key) bool {
			return h.edit(i, key, func(rec map[string]any) bool {
				rec["life"] = "other.0"
				return true
			})
		})
	}},
	{text: "a definition comes again after its deletion", breaks: 15, finds: "comes again", apply: func(h *history) bool {
		return h.eachDefined(func(i int, key registry.Key) bool {
			first := h.value(i, key)
			for k := i + 1; k < h.middle; k++ {
				if v := h.value(k, key); h.commits[k].Err == nil && v != nil && strings.Contains(string(v), `"gone"`) && !strings.Contains(string(first), `"gone"`) {
					again := h.commits[i]
					again.Rev, again.At, again.Then = h.commits[k].Rev, h.commits[k].At, []registry.Op{registry.Create(key, first)}
					h.insert(k+1, again)
					return true
				}
			}
			return false
		})
	}},
	{text: "a change is lost", breaks: 15, finds: "follows", apply: func(h *history) bool {
		return h.eachDefined(func(i int, key registry.Key) bool {
			return h.edit(i, key, func(rec map[string]any) bool {
				n, ok := rec["revision"].(float64)
				rec["revision"] = n - 1
				return ok && n > 1 && rec["created"] != nil && !h.deletesPlan(i, key) && h.commits[i].Then[0].Kind == registry.OpSet
			})
		})
	}},
	{text: "a tombstone stays", breaks: 15, finds: "its tombstone stays", apply: func(h *history) bool {
		last := map[registry.Key]int{} // commits
		for i := range h.middle {
			for _, op := range h.commits[i].Then {
				if h.commits[i].Err == nil && strings.Contains(string(op.Key), "/defined/") {
					if delete(last, op.Key); op.Kind == registry.OpDelete {
						last[op.Key] = i
					}
				}
			}
		}
		for key, i := range last {
			h.remove(i, key)
			return true
		}
		return false
	}},
	{text: "work of two creations has one key", breaks: 15, finds: "the key of", apply: func(h *history) bool {
		first := map[string]int{}
		for i := range h.calls {
			c := &h.calls[i]
			if !strings.HasPrefix(c.Job, "defined-") {
				continue
			}
			if k, ok := first[c.Job]; ok && h.calls[k].Key != c.Key && h.calls[k].Shard == c.Shard {
				c.Key = h.calls[k].Key
				return true
			}
			if _, ok := first[c.Job]; !ok {
				first[c.Job] = i
			}
		}
		return false
	}},
}

// scheduleIn returns the schedule of the definition in a record.
func scheduleIn(rec map[string]any) string {
	def, _ := rec["definition"].(map[string]any)
	text, _ := def["schedule"].(string)
	return text
}

// eachDefined calls try with commits that write the record of a defined job until one returns true.
func (h *history) eachDefined(try func(i int, key registry.Key) bool) bool {
	return h.eachWrite("/defined/", func(op registry.Op) bool { return op.Kind != registry.OpDelete }, try)
}

// eachFirstPlan calls try with commits that create the plan of a defined job until one returns true.
func (h *history) eachFirstPlan(try func(i int, key registry.Key) bool) bool {
	return h.eachWrite("/plan/defined-", func(op registry.Op) bool { return op.Kind == registry.OpCreate }, try)
}

func (h *history) eachWrite(part string, is func(registry.Op) bool, try func(i int, key registry.Key) bool) bool {
	for i := h.firstEditable(); i < h.middle; i++ {
		for _, op := range h.commits[i].Then {
			if h.commits[i].Err != nil || !is(op) || !strings.Contains(string(op.Key), part) {
				continue
			}
			before := h.commits[i]
			if try(i, op.Key) {
				return true
			}
			h.commits[i] = before
		}
	}
	return false
}

// deletesPlan reports whether commit i deletes the plan of the job of a key: it is put to rest, or deleted.
func (h *history) deletesPlan(i int, key registry.Key) bool {
	for _, op := range h.commits[i].Then {
		if op.Kind == registry.OpDelete && op.Key.Name() == key.Name() && strings.Contains(string(op.Key), "/plan/") {
			return true
		}
	}
	return false
}
