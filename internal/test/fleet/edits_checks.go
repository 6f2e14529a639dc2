package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/internal/test/recordedit"
	"github.com/rota-dev/rota/registry"
)

// awaitWhole waits until the fleet is whole, and returns how long that took since an instant.
func (h *editor) awaitWhole(ctx context.Context, since time.Time, within time.Duration) (time.Duration, error) {
	for {
		if err := h.observeAll(ctx); err != nil {
			return 0, err
		}
		why, err := h.findDefect(ctx, since)
		if err != nil {
			return 0, err
		}
		if why == "" {
			return time.Since(since), nil
		}
		if time.Since(since) > within {
			return 0, fmt.Errorf("not whole after %v: %s", within, why)
		}
		if err := sleepFor(ctx, 50*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

func sleepFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// observeAll judges the new commits of the store and the new reports of processes.
func (h *editor) observeAll(ctx context.Context) error {
	calls, err := h.readReports()
	if err != nil {
		return err
	}
	if err := h.log.Sync(ctx); err != nil {
		return err
	}
	for _, c := range h.log.Take() {
		for _, op := range c.Then {
			if len(op.Value) == 0 || recordedit.IsWrittenValue(op.Value) || !bytes.HasPrefix(op.Value, []byte("{")) {
				continue
			}
			values := append(h.history[op.Key], string(op.Value))
			h.history[op.Key] = values[max(0, len(values)-8):]
		}
	}
	for _, e := range calls {
		h.judgeCall(e)
	}
	for _, p := range h.slots {
		if !p.stopped && p.hasEnded() {
			return fmt.Errorf("%s ended: %w; last lines of its log:\n%s", p.Client, p.proc.Err(), p.lastLog())
		}
	}
	return nil
}

// judgeCall judges a call by the earlier ones.
func (h *editor) judgeCall(e judge.Event) {
	shard := fmt.Sprintf("%s/%d", e.Job, e.Shard)
	calls := h.live[shard]
	if !e.End.IsZero() {
		for i := range calls {
			if calls[i].Call == e.Call {
				calls[i] = e
			}
		}
		return
	}
	h.Judge.Report().Claims++
	h.last[shard] = e.Start
	attempt := fmt.Sprintf("%s fire %v trigger %d attempt %d", shard, e.Fire.UTC(), e.Trigger, e.Attempt)
	if h.begun[attempt] {
		h.addDoubled(e, "begun twice: "+attempt)
	}
	h.begun[attempt] = true
	for _, other := range calls {
		if end := lifeEnd(other); end.IsZero() || end.After(e.Start.Add(time.Millisecond)) {
			h.addDoubled(e, fmt.Sprintf("two live runs: %s by %s, while %s runs fire %v since %v", attempt, e.Client, other.Client, other.Fire.UTC(), other.Start))
		}
	}
	const most = 8
	h.live[shard] = append(calls[max(0, len(calls)-most):], e)
}

// lifeEnd returns when a call's context or the call ended; zero: neither has.
func lifeEnd(e judge.Event) time.Time {
	if !e.Canceled.IsZero() {
		return e.Canceled
	}
	return e.End
}

// addDoubled records a doubled run as a violation, unless a recent edit excuses it.
func (h *editor) addDoubled(e judge.Event, text string) {
	for i, one := range slices.Backward(h.edits) {
		if one.Job == e.Job && e.Start.Sub(one.at) < excusedFor && (one.SeparatesRuns() || h.repeatsTrigger(i, e)) {
			h.rowOf(one).Excused++
			return
		}
	}
	h.broken = append(h.broken, text)
}

// repeatsTrigger reports whether the i-th edit wrote an older intent, which may hold a trigger that has run,
// after an edit dropped the watermarks of the job's triggers.
func (h *editor) repeatsTrigger(i int, e judge.Event) bool {
	return e.Trigger > 0 && h.edits[i].Kind == recordedit.Control && h.edits[i].Change == recordedit.RollBack &&
		slices.ContainsFunc(h.edits[:i], func(o edit) bool { return o.SeparatesRuns() && o.Job == e.Job })
}

// findDefect returns why the fleet is not whole, "" if it is.
func (h *editor) findDefect(ctx context.Context, since time.Time) (string, error) {
	for i := range h.Jobs {
		for s := range h.Shards {
			if shard := fmt.Sprintf("%s/%d", jobName(i), s); !h.last[shard].After(since) {
				return shard + " has not run", nil
			}
		}
	}
	live, err := h.completeIncarnations(ctx)
	if err != nil || len(live) != h.Instances {
		return fmt.Sprintf("%d of %d instances have an instance key and a member record", len(live), h.Instances), err
	}
	for i := range h.Jobs {
		if why, err := h.jobDefect(ctx, jobName(i), live); why != "" || err != nil {
			return why, err
		}
	}
	return h.leaderDefect(ctx)
}

// completeIncarnations returns the incarnations that have an instance key and a member record.
func (h *editor) completeIncarnations(ctx context.Context) (map[string]bool, error) {
	instances, err := h.reg.List(ctx, h.keys.Instances(), registry.ReadOptions{Fresh: true})
	if err != nil {
		return nil, err
	}
	live := map[string]bool{}
	for _, e := range instances.Entries {
		inc := record.Incarnation(strings.TrimPrefix(e.Key.Name(), "~"), e.Owner)
		m, err := h.reg.Get(ctx, h.keys.Member(inc), registry.ReadOptions{})
		if err != nil {
			continue
		}
		if member, err := record.Decode[record.Member](m.Value); err == nil && len(member.Jobs) >= h.Jobs+h.Small+h.Chains*chainJobs {
			live[inc] = true
		}
	}
	return live, nil
}

// jobDefect returns the first defect in the records of a job.
func (h *editor) jobDefect(ctx context.Context, job string, live map[string]bool) (string, error) {
	e, err := h.reg.Get(ctx, h.keys.Plan(job), registry.ReadOptions{})
	if err != nil {
		return missingDefect(err, h.keys.Plan(job))
	}
	p, err := record.DecodePlan(e.Value)
	if err != nil {
		return fmt.Sprintf("%s: %v", e.Key, err), nil
	}
	owned := 0
	for inc, shards := range p.Owners {
		if live[inc] {
			owned += shards.Len()
		}
	}
	if owned != h.Shards || p.Problem != "" {
		return fmt.Sprintf("live instances own %d of %d shards of %s; problem %q", owned, h.Shards, job, p.Problem), nil
	}
	e, err = h.reg.Get(ctx, h.keys.Job(job), registry.ReadOptions{})
	if err != nil {
		return missingDefect(err, h.keys.Job(job))
	}
	if _, _, err := record.DecodeDefinition(e.Value); err != nil {
		return fmt.Sprintf("%s: %v", e.Key, err), nil
	}
	if e, err = h.reg.Get(ctx, h.keys.Control(job), registry.ReadOptions{}); err == nil {
		if c, err := record.DecodeControl(e.Value); err != nil || c.Job != job {
			return fmt.Sprintf("%s is of %q: %v", e.Key, job, err), nil
		}
	}
	return "", nil
}

// missingDefect returns the defect that a record is missing or foreign, or any other error.
func missingDefect(err error, key registry.Key) (string, error) {
	if errors.Is(err, registry.ErrNotFound) || errors.Is(err, registry.ErrForeign) {
		return fmt.Sprintf("%s: %v", key, err), nil
	}
	return "", err
}

// leaderDefect returns the first defect in the records of the election.
func (h *editor) leaderDefect(ctx context.Context) (string, error) {
	e, err := h.reg.Get(ctx, h.keys.Leader(), registry.ReadOptions{})
	if err != nil {
		return missingDefect(err, h.keys.Leader())
	}
	leader, err := record.Decode[record.Leader](e.Value)
	if err != nil {
		return fmt.Sprintf("%s: %v", e.Key, err), nil
	}
	if e, err = h.reg.Get(ctx, h.keys.Seat(), registry.ReadOptions{}); err != nil {
		return missingDefect(err, h.keys.Seat())
	}
	if e.Owner != leader.Session {
		return "another session than the leader's has the seat", nil
	}
	return "", nil
}
