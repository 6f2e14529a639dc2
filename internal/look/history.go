package look

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
)

// FiresQuery selects fires of a job.
type FiresQuery struct {
	Job    string
	Age    time.Duration // of the oldest
	Failed bool          // only fires with a run that did not succeed
	Limit  int           // of the fires that are read
}

// Fires returns fires of a job from the history. Known reports whether the history has anything of the job.
func Fires(ctx context.Context, r history.Reader, q FiresQuery) (v view.Fires, known bool, err error) {
	now := time.Now()
	fires, err := r.Fires(ctx, history.FiresQuery{Job: q.Job, Since: now.Add(-q.Age), Limit: q.Limit})
	known = len(fires) > 0
	if err == nil && !known {
		known, err = isKnown(ctx, r, q.Job)
	}
	if q.Failed {
		fires = slices.DeleteFunc(fires, func(f history.Fire) bool { return f.Failed+f.Crashed+f.Unfinished == 0 })
	}
	return view.FiresOf(q.Job, fires, now), known, err
}

// RunsQuery selects runs of a job: those of a fire, those that failed, the slowest, or else the last of each shard.
type RunsQuery struct {
	Job     string
	OfFire  bool
	Fire    time.Time
	Trigger uint64 // with OfFire: only the runs of this trigger, unless it is zero
	Failed  bool
	Slowest bool
	Shards  []int         // only these, unless it is nil
	Age     time.Duration // with Failed and Slowest: of the oldest
	Limit   int           // with Failed and Slowest: of the runs that are read
}

// Runs returns runs of a job from the history. Known reports whether the history has anything of the job.
func Runs(ctx context.Context, r history.Reader, q RunsQuery) (v view.HistoryRuns, known bool, err error) {
	now := time.Now()
	recent := history.RunsQuery{Job: q.Job, Since: now.Add(-q.Age), Limit: q.Limit}
	var runs []history.Run
	var skips []history.Fire
	switch {
	case q.OfFire:
		if runs, err = r.RunsOfFire(ctx, q.Job, q.Fire); q.Trigger != 0 {
			runs = slices.DeleteFunc(runs, func(r history.Run) bool { return r.Trigger != q.Trigger })
		}
		if err == nil && q.Trigger == 0 {
			skips, err = r.Fires(ctx, history.FiresQuery{Job: q.Job, Covering: q.Fire})
		}
	case q.Failed:
		runs, err = r.Failures(ctx, recent)
	case q.Slowest:
		runs, err = r.Slowest(ctx, recent)
	default:
		runs, err = r.Last(ctx, q.Job)
	}
	if q.Shards != nil {
		runs = slices.DeleteFunc(runs, func(r history.Run) bool { return !slices.Contains(q.Shards, r.Shard) })
	}
	known = len(runs)+len(skips) > 0
	if err == nil && !known {
		known, err = isKnown(ctx, r, q.Job)
	}
	return view.HistoryRunsOf(q.Job, runs, skips, now), known, err
}

// isKnown reports whether the history has anything of a job.
func isKnown(ctx context.Context, r history.Reader, job string) (bool, error) {
	fires, err := r.Fires(ctx, history.FiresQuery{Job: job, Limit: 1})
	if err != nil || len(fires) > 0 {
		return len(fires) > 0, err
	}
	runs, err := r.Last(ctx, job)
	return len(runs) > 0, err
}

// LastRuns returns the last of the runs of a fire for each shard, by their fences.
func LastRuns(runs []history.Run) map[int]*history.Run {
	last := map[int]*history.Run{}
	for i := range runs {
		if run := &runs[i]; last[run.Shard] == nil || run.Fence >= last[run.Shard].Fence {
			last[run.Shard] = run
		}
	}
	return last
}

// Explain explains a fire of a job by the records and, if r is not nil and they lack a fact, by the history. If the history does not
// answer, the explanation is by the records alone, with the error of the history.
func Explain(ctx context.Context, op *operator.Operator, r history.Reader, job string, shard int, fire time.Time) (v view.Explanation, ofHistory, err error) {
	e, err := op.Explain(ctx, job, shard, fire)
	switch {
	case err != nil:
		return v, nil, err
	case !e.Known:
		return v, nil, fmt.Errorf("explain %q: %w", job, operator.ErrUnknownJob)
	}
	if r != nil && NeedsHistory(&e) {
		completed, err := AddHistory(ctx, r, e)
		if ofHistory = err; err == nil {
			e = completed
		}
	}
	return view.ExplanationOf(e, view.UnnamedHistory), ofHistory, nil
}

// NeedsHistory reports whether an answer lacks a fact that the history may have.
func NeedsHistory(e *operator.Explanation) bool {
	return slices.ContainsFunc(e.Answers, func(a operator.Answer) bool { return needsHistory(&a) })
}

// AddHistory completes an explanation by the history.
func AddHistory(ctx context.Context, r history.Reader, e operator.Explanation) (operator.Explanation, error) {
	of := map[time.Time]pastFire{}
	for i := range e.Answers {
		fire := e.Answers[i].Fire
		if _, read := of[fire]; read || !needsHistory(&e.Answers[i]) {
			continue
		}
		runs, err := r.RunsOfFire(ctx, e.Job, fire)
		if err != nil {
			return e, err
		}
		fires, err := r.Fires(ctx, history.FiresQuery{Job: e.Job, Covering: fire})
		if err != nil {
			return e, err
		}
		of[fire] = pastFire{runs, fires}
	}
	return addOutcomes(e, of), nil
}

// ParseAge parses a duration that may also be in days, as 7d.
func ParseAge(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil || n < 0 || n > 10_000 {
			return 0, fmt.Errorf("%q is not a duration, as 90m or 7d", text)
		}
		return time.Duration(n) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = errors.New("negative")
	}
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration, as 90m or 7d", text)
	}
	return d, nil
}
