package executor

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/mutex"
)

// outcome is the state of a run, for the log.
type outcome int

const (
	runSucceeded outcome = iota
	runFailed
	runRetried // it failed or panicked, and is made again
	runPanicked
	runLost       // it returned an error after its session was lost; another instance makes it again
	runHandedBack // its process shuts down; another instance makes it again
	runCancelled  // an operator cancelled it, and it returned an error
	runOverdue    // its handler has not returned after its time-out
	runReturned   // its handler returned late, after it was logged as overdue
	runBlocked    // a transaction that may end it is open
	runDoneBefore // a transaction of an earlier run has ended it
)

// outcomes defines the log lines. The first run of a job, or of a kind of defined jobs, in an interval is logged with message.
// The others are counted and logged with more when the interval ends. If more is empty, each
// run is logged.
var outcomes = [...]struct {
	level         slog.Level
	message, more string
}{
	runSucceeded:  {slog.LevelDebug, "run succeeded", ""},
	runFailed:     {slog.LevelWarn, "run failed", "more runs failed"},
	runRetried:    {slog.LevelWarn, "run failed; it is made again after a delay", "more runs failed that are made again"},
	runLost:       {slog.LevelInfo, "run ended with its session", "more runs ended with their session"},
	runPanicked:   {slog.LevelWarn, "run panicked", "more runs panicked"},
	runHandedBack: {slog.LevelInfo, "run handed back: another instance makes it again", "more runs handed back"},
	runCancelled:  {slog.LevelInfo, "run cancelled by an operator", "more runs cancelled by an operator"},
	runOverdue:    {slog.LevelWarn, "handler ignores its time-out", "more handlers ignore their time-outs"},
	runReturned:   {slog.LevelInfo, "handler returned after its time-out", "more handlers returned after their time-outs"},
	runBlocked:    {slog.LevelWarn, "run waits for an open transaction of an earlier attempt", "more runs wait for open transactions of earlier attempts"},
	runDoneBefore: {slog.LevelInfo, "run was completed by a transaction of an earlier run", "more runs were completed by transactions of earlier runs"},
}

// outcomeOf returns the outcome of a run with context ctx that ended with err.
func outcomeOf(ctx context.Context, p *program, err error) outcome {
	if _, ok := asRetry(err); ok {
		return runRetried
	}
	switch {
	case err == nil:
		return runSucceeded
	case isPanic(err):
		return runPanicked
	case errors.Is(err, claimer.ErrHandedBack) && p.handsBack():
		return runHandedBack
	case errors.Is(context.Cause(ctx), ErrSessionLost):
		return runLost
	case errors.Is(context.Cause(ctx), ErrCancelled):
		return runCancelled
	}
	return runFailed
}

const (
	// logInterval is how long runs of a job, or of a kind, with one outcome are counted after the first.
	logInterval = 10 * time.Second
	// overdueAfter is how long after its time-out a handler that has not returned is logged.
	// The time until the next line triples, up to overdueAtMost.
	overdueAfter  = 5 * time.Second
	overdueAtMost = 10 * time.Minute
)

// runLog logs the outcomes of runs. It bounds the lines: a job of 10,000 shards that fail every
// second is logged with two lines per interval, as is a kind of 10,000 jobs. It has an entry and a timer for each job or
// kind and outcome of the present interval.
type runLog struct {
	log *slog.Logger

	mu     mutex.Mutex
	bursts map[burstOf]*burst
}

// burstOf names runs that are counted together: those of a registered job, or of all defined jobs of a kind, of which there
// may be any number.
type burstOf struct {
	kind string // of defined jobs
	job  string // registered; empty for a kind
	how  outcome
}

// newBurstOf names the runs together with which a run is counted.
func newBurstOf(r *Run, how outcome) burstOf {
	if r.Kind != "" {
		return burstOf{kind: r.Kind, how: how}
	}
	return burstOf{job: r.Job, how: how}
}

// attr returns the attribute that names the job or the kind.
func (o burstOf) attr() slog.Attr {
	if o.kind != "" {
		return slog.String("kind", o.kind)
	}
	return slog.String("job", o.job)
}

// burst is the runs of a job or kind with one outcome since the first of them was logged.
type burst struct {
	began time.Time
	timer *time.Timer
	more  int    // runs after the first
	run   string // the last of them
	err   error  // of the last
}

// logs reports whether runs with an outcome are logged.
func (l *runLog) logs(how outcome) bool {
	return l.log.Enabled(context.Background(), outcomes[how].level)
}

// logEnd logs the end of a run whose handler was called at an instant.
func (l *runLog) logEnd(r *Run, began time.Time, how outcome, err error) {
	attrs := []slog.Attr{slog.Int("attempt", r.Attempt), slog.Duration("took", time.Since(began).Round(time.Microsecond))}
	if retry, ok := asRetry(err); ok {
		attrs = append(attrs, slog.Duration("retry_in", retry.In.Round(time.Millisecond)))
	}
	if panicked, ok := errors.AsType[*PanicError](err); ok {
		attrs = append(attrs, slog.String("stack", string(panicked.Stack)))
	}
	l.logOrCount(r, how, err, attrs...)
}

// logOrCount logs a run in full, or counts it.
func (l *runLog) logOrCount(r *Run, how outcome, err error, attrs ...slog.Attr) {
	ctx, o := context.Background(), outcomes[how]
	if !l.logs(how) || o.more != "" && !l.beginsInterval(r, how, err) {
		return
	}
	of := []slog.Attr{slog.String("job", r.Job), slog.String("run", r.ID)}
	if r.Kind != "" {
		of = append(of, slog.String("kind", r.Kind))
	}
	attrs = append(of, attrs...)
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	l.log.LogAttrs(ctx, o.level, o.message, attrs...)
}

// beginsInterval reports whether a run is the first with its outcome in an interval, which then begins.
// Others are counted.
func (l *runLog) beginsInterval(r *Run, how outcome, err error) bool {
	of := newBurstOf(r, how)
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.bursts[of]; b != nil {
		b.more, b.run, b.err = b.more+1, r.ID, err
		return false
	}
	if l.bursts == nil {
		l.bursts = map[burstOf]*burst{}
	}
	b := &burst{began: time.Now()}
	l.bursts[of] = b
	b.timer = time.AfterFunc(logInterval, func() { l.endInterval(of, b) })
	return true
}

// endInterval logs how many runs were counted. flush may have done so before.
func (l *runLog) endInterval(of burstOf, b *burst) {
	l.mu.Lock()
	present := l.bursts[of] == b
	if present {
		delete(l.bursts, of)
	}
	l.mu.Unlock()
	if present {
		l.logCount(of, b)
	}
}

// flush ends all intervals now.
func (l *runLog) flush() {
	l.mu.Lock()
	all := l.bursts
	l.bursts = nil
	l.mu.Unlock()
	order := make([]burstOf, 0, len(all))
	for of, b := range all {
		b.timer.Stop()
		order = append(order, of)
	}
	slices.SortFunc(order, func(a, b burstOf) int { return cmp.Or(strings.Compare(a.job, b.job), strings.Compare(a.kind, b.kind)) })
	for _, of := range order {
		l.logCount(of, all[of])
	}
}

func (l *runLog) logCount(of burstOf, b *burst) {
	if b.more == 0 {
		return
	}
	o := outcomes[of.how]
	attrs := []slog.Attr{
		of.attr(), slog.Int("count", b.more),
		slog.Duration("within", time.Since(b.began).Round(time.Millisecond)), slog.String("last", b.run),
	}
	if b.err != nil {
		attrs = append(attrs, slog.Any("error", b.err))
	}
	l.log.LogAttrs(context.Background(), o.level, o.more, attrs...)
}

// watchTimeout logs repeatedly, from overdueAfter past the time-out, that a handler which
// begins now has not returned, until returned is called.
func (l *runLog) watchTimeout(r *Run, timeout time.Duration) (returned func()) {
	began, wait, over, logged := time.Now(), overdueAfter, false, false
	var mu mutex.Mutex
	var timer *time.Timer
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(timeout+wait, func() {
		mu.Lock()
		due := !over
		logged = logged || due
		mu.Unlock()
		if !due {
			return
		}
		l.logOrCount(r, runOverdue, nil, slog.Time("since", began), slog.Duration("timeout", timeout),
			slog.String("next", "the shard runs nothing else, and does not move, until the handler returns"),
			slog.String("remedy", "have the handler return when its context ends"))
		mu.Lock()
		defer mu.Unlock()
		if wait = min(3*wait, overdueAtMost); !over {
			timer.Reset(wait)
		}
	})
	return func() {
		mu.Lock()
		over = true
		timer.Stop()
		mu.Unlock()
		if logged {
			l.logOrCount(r, runReturned, nil, slog.Time("since", began), slog.Duration("took", time.Since(began).Round(time.Millisecond)))
		}
	}
}
