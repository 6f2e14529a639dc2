package simulate

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/registry"
)

// requestFalsifications are changes of what operators have asked for.
var requestFalsifications = []falsification{
	{text: "a cancelled run is claimed", breaks: 11, apply: func(h *history) bool {
		return h.eachClaim(func(i int, c *claimsWrite) bool {
			at := h.lastPlan(i, c.segment)
			return at >= 0 && h.edit(at, h.key("plan", "", c.segment), func(rec map[string]any) bool {
				rec["cancels"] = []any{runOf(&c.rec.Running[0])}
				return true
			})
		})
	}},
	{text: "the context of a cancelled run does not end", breaks: 11, apply: func(h *history) bool {
		return h.eachCancelled(func(_ int, c *recordedCall) bool {
			c.end, c.canceled = c.end.Add(10*time.Second), time.Time{}
			return true
		})
	}, finds: "the context of its call had not ended"},
	{text: "the context of a cancelled run ends late", breaks: 11, apply: func(h *history) bool {
		return h.eachCancelled(func(_ int, c *recordedCall) bool {
			c.canceled = c.canceled.Add(2 * time.Second)
			c.end = c.canceled
			return true
		})
	}, finds: "the context of its call had not ended"},
	{text: "a cancellation stays in the plan", breaks: 11, apply: func(h *history) bool {
		return h.lastPlans(func(rec map[string]any) {
			rec["cancels"] = []any{map[string]any{"shards": "0", "epoch": 1, "fire": "2000-01-01T00:01:00Z"}}
		})
	}, finds: "the plan still cancels"},
	{text: "a cancellation never reaches the plan", breaks: 11, apply: func(h *history) bool {
		return h.lastPlans(func(rec map[string]any) {
			h.changeControl(rec["job"].(string), "cancels", []any{map[string]any{"shards": "0", "epoch": 1, "fire": "2000-01-01T00:01:00Z"}})
		})
	}, finds: "never reached the plan"},
	{text: "a failed run is counted as succeeded", breaks: 2, apply: func(h *history) bool {
		for i := h.middle - 1; i < len(h.commits); i++ {
			for _, op := range h.commits[i].Then {
				if h.commits[i].Err == nil && strings.Contains(string(op.Key), "/plan/") {
					h.edit(i, op.Key, func(rec map[string]any) bool {
						counts, ok := rec["counts"].(map[string]any)
						if failed, has := counts["failed"].(float64); ok && has {
							counts["succeeded"] = counts["succeeded"].(float64) + failed
							delete(counts, "failed")
						}
						return true
					})
				}
			}
		}
		return true
	}, finds: "calls failed whose ends are on record"},
	{text: "a trigger is claimed for another fire", breaks: 12, apply: func(h *history) bool {
		return h.eachTriggered(func(i int, c *claimsWrite) bool {
			return h.edit(i, c.op.Key, func(rec map[string]any) bool {
				rec["running"].([]any)[0].(map[string]any)["fire"] = "2000-01-01T00:00:30Z"
				return true
			})
		})
	}, finds: "but the trigger is for"},
	{text: "a call of a trigger gets another fire", breaks: 12, apply: func(h *history) bool {
		i := slices.IndexFunc(h.calls, func(c recordedCall) bool { return c.Trigger > 0 })
		h.calls[i].Fire = h.calls[i].Fire.Add(time.Minute)
		return true
	}, finds: "but its call got"},
	{text: "a trigger that no plan has is claimed", breaks: 2, apply: func(h *history) bool {
		return h.eachTriggered(func(i int, c *claimsWrite) bool {
			return h.edit(i, c.op.Key, func(rec map[string]any) bool {
				rec["running"].([]any)[0].(map[string]any)["trigger"] = 99
				return true
			})
		})
	}, finds: "no plan has such a trigger"},
	{text: "a run that succeeded is retried", breaks: 12, apply: func(h *history) bool {
		return h.eachNewTrigger("retry", func(i int, key registry.Key, t, _ map[string]any) bool {
			if h.isForgotten(i, key.Name()) {
				return false // the judge does not know the ends of calls then
			}
			ok := slices.IndexFunc(h.calls, func(c recordedCall) bool {
				return c.Job == key.Name() && !c.failed && !c.end.IsZero() && c.Trigger == 0 && c.Shard == 0 && c.end.Before(h.commits[i].At) &&
					c.end.After(h.commits[i].At.Add(-10*time.Minute))
			})
			if ok < 0 {
				return false
			}
			t["fire"], t["shards"] = h.calls[ok].Fire, "0"
			return true
		})
	}, finds: "of which no run of it failed"},
	{text: "a fire of a backfill runs that is not the next one", breaks: 12, apply: func(h *history) bool {
		return h.eachNewTrigger("backfill", func(_ int, _ registry.Key, t, _ map[string]any) bool {
			t["fire"] = "2000-01-01T00:00:30Z"
			return true
		})
	}, finds: "which is not the next one"},
	{text: "a fire of a backfill runs twice", breaks: 12, apply: func(h *history) bool {
		return h.eachNewTrigger("backfill", func(_ int, _ registry.Key, t, plan map[string]any) bool {
			twin := maps.Clone(t)
			twin["number"] = 99
			plan["triggers"] = append(plan["triggers"].([]any), twin)
			return true
		})
	}, finds: "which is not the next one"},
	{text: "too many fires of a backfill are in flight", breaks: 12, apply: func(h *history) bool {
		for i := range h.middle {
			for _, op := range h.commits[i].Then {
				if h.commits[i].Err == nil && strings.Contains(string(op.Key), "/control/") {
					h.edit(i, op.Key, func(rec map[string]any) bool {
						all, ok := rec["backfills"].([]any)
						for _, b := range all {
							b.(map[string]any)["parallel"] = 0
						}
						return ok
					})
				}
			}
		}
		return true
	}, finds: "which allows 0"},
	{text: "a fire of a backfill never begins", breaks: 12, apply: func(h *history) bool {
		return h.lastPlans(func(rec map[string]any) {
			h.changeControl(rec["job"].(string), "backfills", []any{map[string]any{"number": 99, "parallel": 1, "fires": []any{"2000-01-01T00:01:00Z"}}})
		})
	}, finds: "have not begun"},
	{text: "an epoch has a definition that nobody stored", breaks: 13, apply: func(h *history) bool {
		return h.eachPlan(func(i int, key registry.Key) bool {
			return h.edit(i, key, func(rec map[string]any) bool {
				epochs := rec["epochs"].([]any)
				last := epochs[len(epochs)-1].(map[string]any)
				last["number"] = 99
				last["definition"].(map[string]any)["max_attempts"] = 9
				return true
			})
		})
	}},
	{text: "an override is not in force", breaks: 13, apply: func(h *history) bool {
		return h.lastPlans(func(rec map[string]any) {
			h.changeControl(rec["job"].(string), "override", map[string]any{"max_attempts": 9})
		})
	}, finds: "the stored one with the override is"},
	{text: "a job is forgotten whose owners live", breaks: 14, apply: func(h *history) bool {
		return h.eachPlan(func(i int, key registry.Key) bool {
			h.forget(i, key.Name())
			return true
		})
	}, finds: "whose session is alive, owns shards of it"},
	{text: "the claims of the owners of a forgotten job stay", breaks: 14, apply: func(h *history) bool {
		return h.eachClaim(func(i int, c *claimsWrite) bool {
			h.forget(i, c.segment)
			return true
		})
	}, finds: "but not the claims of its owner"},
	{text: "the definition of a forgotten job stays", breaks: 14, apply: func(h *history) bool {
		return h.eachForget(func(i int, segment string) bool {
			h.remove(i, h.key("jobs", "", segment))
			return true
		})
	}, finds: "but not jobs"},
	{text: "a job that is offered again gets no plan", breaks: 14, apply: func(h *history) bool {
		return h.eachForget(func(i int, segment string) bool {
			for k := i + 1; k < len(h.commits); k++ {
				h.commits[k].Then = slices.DeleteFunc(slices.Clone(h.commits[k].Then), func(op registry.Op) bool { return op.Key.Name() == segment })
			}
			return true
		})
	}},
}

// runOf returns the run that a cancellation in a plan names.
func runOf(g *record.RunGroup) map[string]any {
	return map[string]any{"shards": g.Shards, "epoch": g.Epoch, "fire": g.Fire, "trigger": g.Trigger}
}

// eachCancelled calls try with calls whose run a plan names as cancelled and whose context ended, until one returns true.
func (h *history) eachCancelled(try func(i int, c *recordedCall) bool) bool {
	for i := range h.middle {
		for _, op := range h.commits[i].Then {
			if h.commits[i].Err != nil || !strings.Contains(string(op.Key), "/plan/") || !strings.Contains(string(op.Value), `"cancels"`) {
				continue
			}
			p, err := record.DecodePlan(op.Value)
			if err != nil || len(p.Cancels) == 0 {
				continue
			}
			g := p.Cancels[0]
			for k := range h.calls {
				c := &h.calls[k]
				if c.Job == p.Job && g.Shards.Has(c.Shard) && c.Fire.Equal(g.Fire.Time()) && c.Trigger == g.Trigger &&
					c.Start.Before(h.commits[i].At) && !c.canceled.IsZero() && !c.canceled.Before(h.commits[i].At) && try(i, c) {
					return true
				}
			}
		}
	}
	return false
}

// eachTriggered calls try with writes that claim a trigger for the first time until one returns true.
func (h *history) eachTriggered(try func(i int, c *claimsWrite) bool) bool {
	return h.eachAttempt(1, func(i int, c *claimsWrite) bool { return c.rec.Running[0].Trigger > 0 && try(i, c) })
}

// eachNewTrigger calls try with triggers that a plan has first and whose reason is as given, until one returns true, and
// writes the changed plan.
func (h *history) eachNewTrigger(reason string, try func(i int, key registry.Key, t, plan map[string]any) bool) bool {
	for i := range h.middle {
		for _, op := range h.commits[i].Then {
			if h.commits[i].Err != nil || !strings.Contains(string(op.Key), "/plan/") || !strings.Contains(string(op.Value), reason) {
				continue
			}
			before := h.commits[i]
			if h.edit(i, op.Key, func(rec map[string]any) bool {
				all, _ := rec["triggers"].([]any)
				if len(all) == 0 {
					return false
				}
				changed := all[len(all)-1].(map[string]any)
				return changed["reason"] == reason && try(i, op.Key, changed, rec)
			}) {
				return true
			}
			h.commits[i] = before
		}
	}
	return false
}

// eachForget calls try with commits that delete the plan of a job until one returns true.
func (h *history) eachForget(try func(i int, segment string) bool) bool {
	for i := range h.middle {
		for _, op := range h.commits[i].Then {
			if h.commits[i].Err == nil && op.Kind == registry.OpDelete && strings.Contains(string(op.Key), "/plan/") && try(i, op.Key.Name()) {
				return true
			}
		}
	}
	return false
}

// isForgotten reports whether a commit after i deletes the plan of a job.
func (h *history) isForgotten(i int, segment string) bool {
	return slices.ContainsFunc(h.commits[i:h.middle], func(c judge.Commit) bool {
		return c.Err == nil && slices.ContainsFunc(c.Then, func(op registry.Op) bool {
			return op.Kind == registry.OpDelete && op.Key == h.key("plan", "", segment)
		})
	})
}

// forget inserts the deletion of a job's records after commit i, without those of its claims.
func (h *history) forget(i int, segment string) {
	c := h.commits[i]
	c.Client, c.If, c.Then = "console", nil, nil
	for _, kind := range []string{"jobs", "plan", "control"} {
		c.Then = append(c.Then, registry.Delete(h.key(kind, "", segment), registry.Rev{}))
	}
	h.insert(i+1, c)
}

// changeControl changes a field of the last control record of a job before the fleet is judged.
func (h *history) changeControl(job, field string, value any) {
	rec := map[string]any{"job": job}
	for i := h.middle - 1; i >= 0; i-- {
		if v := h.value(i, h.key("control", "", job)); h.commits[i].Err == nil && v != nil {
			_ = json.Unmarshal(v, &rec)
			break
		}
	}
	rec[field] = value
	text, _ := json.Marshal(rec)
	h.writeControl(job, string(text))
}
