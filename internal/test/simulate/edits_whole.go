package simulate

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/test/recordedit"
	"github.com/rota-dev/rota/registry"
)

// awaitWhole waits until all records of the fleet are whole and each shard has run since an instant. It returns how
// long the records took.
func (h *editedFleet) awaitWhole(since time.Time, within time.Duration) (time.Duration, error) {
	records := time.Duration(-1)
	for {
		if err := h.passTime(time.Second); err != nil {
			return 0, err
		}
		why := h.recordDefect()
		if why != "" {
			records = -1
		} else if records < 0 {
			records = time.Since(since)
		}
		if why = cmp.Or(why, h.missingRun(since)); why == "" {
			return records, nil
		}
		if time.Since(since) > within {
			return 0, fmt.Errorf("not whole after %v: %s", within, why)
		}
	}
}

// missingRun names a shard that has not run since an instant, "" if each has.
func (h *editedFleet) missingRun(since time.Time) string {
	for _, spec := range h.specs {
		for n := range spec.shards {
			if shard := shardName(spec.name, n); !h.last[shard].After(since) {
				return shard + " has not run"
			}
		}
	}
	return ""
}

// recordDefect returns the first defect in the records of the fleet, "" if there is none.
func (h *editedFleet) recordDefect() string {
	for _, s := range h.slots {
		if s.process == nil {
			return fmt.Sprintf("slot %d is empty", s.number)
		}
	}
	all := map[registry.Key]registry.Entry{}
	for _, e := range h.server.Dump() {
		all[e.Key] = e
	}
	live := h.completeIncarnations(all)
	if len(live) != len(h.slots) {
		return fmt.Sprintf("%d of %d instances have an instance key and a member record", len(live), len(h.slots))
	}
	for _, spec := range h.specs {
		if why := h.jobDefect(all, spec, live); why != "" {
			return why
		}
	}
	if e, ok := all[h.keys.GroupControl()]; ok {
		if _, err := record.DecodeGroupControl(e.Value); err != nil {
			return fmt.Sprintf("%s: %v", e.Key, err)
		}
	}
	return h.leaderDefect(all)
}

// completeIncarnations returns the incarnations that have an instance key and a member record.
func (h *editedFleet) completeIncarnations(all map[registry.Key]registry.Entry) map[string]bool {
	live := map[string]bool{}
	for _, s := range h.slots {
		e, ok := all[h.keys.Instance(s.process.instance)]
		if !ok {
			continue
		}
		inc := record.Incarnation(s.process.instance, e.Owner)
		if m, err := record.Decode[record.Member](all[h.keys.Member(inc)].Value); err == nil && len(m.Jobs) == len(h.specs) && m.Session == e.Owner {
			live[inc] = true
		}
	}
	return live
}

// jobDefect returns the first defect in the records of a job.
func (h *editedFleet) jobDefect(all map[registry.Key]registry.Entry, spec *jobSpec, live map[string]bool) string {
	key := h.keys.Plan(spec.name)
	p, err := record.DecodePlan(all[key].Value)
	if err != nil {
		return fmt.Sprintf("%s: %v", key, err)
	}
	owned := 0
	for inc, shards := range p.Owners {
		if live[inc] {
			owned += shards.Len()
		}
	}
	if owned != spec.shards || p.Problem != "" || p.Last().Job().Revision != spec.revision {
		return fmt.Sprintf("live instances own %d of %d shards of %s; revision %d; problem %q", owned, spec.shards, spec.name, p.Last().Job().Revision, p.Problem)
	}
	key = h.keys.Job(spec.name)
	if _, d, err := record.DecodeDefinition(all[key].Value); err != nil || d.Revision != spec.revision {
		return fmt.Sprintf("%s: revision %d, %v", key, d.Revision, err)
	}
	if e, ok := all[h.keys.Control(spec.name)]; ok {
		if c, err := record.DecodeControl(e.Value); err != nil || c.Job != spec.name {
			return fmt.Sprintf("%s: %v", e.Key, err)
		}
	}
	for inc := range p.Owners {
		if e, ok := all[h.keys.Claims(inc, spec.name)]; ok {
			if c, err := record.DecodeClaims(e.Value); err != nil || c.Job != spec.name {
				return fmt.Sprintf("%s: %v", e.Key, err)
			}
		}
	}
	return ""
}

// leaderDefect returns the first defect in the records of the election.
func (h *editedFleet) leaderDefect(all map[registry.Key]registry.Entry) string {
	leader, err := record.Decode[record.Leader](all[h.keys.Leader()].Value)
	if err != nil {
		return fmt.Sprintf("%s: %v", h.keys.Leader(), err)
	}
	if all[h.keys.Seat()].Owner != leader.Session || strings.HasPrefix(leader.Incarnation, recordedit.InvalidInstance+".") {
		return "another session than the leader's has the seat"
	}
	return ""
}
