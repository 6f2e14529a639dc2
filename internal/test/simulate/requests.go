package simulate

import (
	"context"
	"slices"
	"time"

	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/schedule"
)

// request holds what an operator's request for runs, or for another definition, depends on. It is drawn for each
// action, so that the draws of a seed do not depend on the kinds of actions.
type request struct {
	shards   []int // nil for all
	during   time.Duration
	fires    int
	parallel int
	back     int // which failure, from the latest
	override operator.Override
	lasts    time.Duration
}

func (f *fleet) drawRequest(spec *jobSpec) request {
	r := request{
		during: time.Duration(f.rng.Float64() * float64(f.Takes)),
		fires:  1 + f.rng.IntN(5), parallel: 1 + f.rng.IntN(3), back: f.rng.IntN(3),
		lasts: time.Duration((0.5 + f.rng.Float64()) * float64(2*f.Every)),
	}
	for n := range spec.shards {
		if f.rng.IntN(2) == 0 {
			r.shards = append(r.shards, n)
		}
	}
	if f.rng.IntN(2) == 0 {
		r.shards = nil
	}
	fields := 1 + f.rng.IntN(7)
	if shards := 1 + f.rng.IntN(2*f.Shards); fields&1 != 0 {
		r.override.Shards = shards
	}
	if every := f.Every / time.Duration(1+f.rng.IntN(3)); fields&2 != 0 && spec.isPeriodic() {
		r.override.Schedule = schedule.Every(every).String()
	}
	if crash := []string{"rerun elsewhere", "count as failed"}[f.rng.IntN(2)]; fields&4 != 0 {
		r.override.Policies = map[string]any{"on_crash": crash}
	}
	return r
}

// isPeriodic reports whether the fires of a job are known in advance.
func (s *jobSpec) isPeriodic() bool { return s.delay == 0 && s.after == nil }

// cancelSoon cancels runs of a job while some are in progress: shortly after a fire.
func (f *fleet) cancelSoon(spec *jobSpec, r request) {
	at := time.Now().Truncate(spec.every).Add(spec.every + r.during)
	f.schedule(time.Until(at), func() error {
		p := f.anyProcess()
		if p == nil {
			return nil
		}
		f.report.Actions["runs cancelled"]++
		f.addNote("%s cancels runs of %s, shards %v", p.clientName, spec.name, r.shards)
		f.callAsync(func(ctx context.Context) { p.executor.Operator().Cancel(ctx, spec.name, r.shards...) })
		return nil
	})
}

// anyProcess draws a process, nil if its slot is empty.
func (f *fleet) anyProcess() *process { return f.slots[f.rng.IntN(len(f.slots))].process }

// retryFailed retries one of the fires of a job whose failures are on record.
func (f *fleet) retryFailed(p *process, spec *jobSpec, r request) {
	f.report.Actions["fire retried"]++
	f.addNote("%s retries a fire of %s", p.clientName, spec.name)
	requested := time.Now()
	f.callAsync(func(ctx context.Context) {
		op := p.executor.Operator()
		st, err := op.Status(ctx, spec.name)
		failures := slices.DeleteFunc(st.Failures, func(f operator.Failure) bool { return f.Again })
		if err != nil || len(failures) == 0 {
			return
		}
		fire := failures[max(len(failures)-1-r.back, 0)].Fire
		if runs, err := op.Retry(ctx, spec.name, fire, operator.RetryOptions{}); err == nil {
			f.answers <- answer{spec.name, runs.Trigger, requested}
		}
	})
}

// backfill runs past fires of a job.
func (f *fleet) backfill(p *process, spec *jobSpec, r request) {
	if !spec.isPeriodic() {
		return
	}
	f.report.Actions["fires backfilled"]++
	to := time.Now()
	from := to.Add(-time.Duration(r.fires) * spec.every)
	f.addNote("%s backfills %s from %s, %d at a time", p.clientName, spec.name, formatTime(from), r.parallel)
	f.callAsync(func(ctx context.Context) { p.executor.Operator().Backfill(ctx, spec.name, from, to, r.parallel) })
}

// override replaces fields of a definition, and mostly takes that back later.
func (f *fleet) override(p *process, spec *jobSpec, r request) {
	f.report.Actions["definition overridden"]++
	f.addNote("%s overrides %+v of %s", p.clientName, r.override, spec.name)
	f.callAsync(func(ctx context.Context) { p.executor.Operator().Override(ctx, spec.name, r.override) })
	if r.back == 0 {
		return
	}
	f.schedule(2*r.lasts, func() error {
		f.addNote("the override of %s is taken back", spec.name)
		f.callAsync(func(ctx context.Context) { f.operator.Override(ctx, spec.name, operator.Override{}) })
		return nil
	})
}

// forget withdraws a job everywhere, tries to forget it, and registers it again, with one process after another. The
// last attempt to forget it may come too late.
func (f *fleet) forget(spec *jobSpec, r request) {
	if spec.after != nil || spec.followed {
		return // the fires of a chain would have to begin anew together
	}
	spec.withdrawn, spec.forgotten = true, true
	if r.back == 0 {
		f.retire(spec, r)
		return
	}
	f.report.Actions["job forgotten"]++
	f.addNote("%s is withdrawn", spec.name)
	for _, s := range f.slots {
		if p := s.process; p != nil {
			f.callAsync(func(ctx context.Context) { p.executor.Withdraw(ctx, spec.name) })
		}
	}
	for i := range 3 {
		f.schedule(r.lasts*time.Duration(i+1)/2, func() error {
			f.addNote("%s is to be forgotten", spec.name)
			f.callAsync(func(ctx context.Context) { f.operator.Forget(ctx, spec.name) })
			return nil
		})
	}
	f.schedule(r.lasts*3/2+r.during, func() error {
		spec.withdrawn = false
		f.register(spec)
		return nil
	})
}

// retire retires a job, withdraws it in one process after another, and registers it again, mostly after its deletion.
func (f *fleet) retire(spec *jobSpec, r request) {
	f.report.Actions["job retired"]++
	f.addNote("%s is retired", spec.name)
	f.callAsync(func(ctx context.Context) { f.operator.Retire(ctx, spec.name) })
	for i, s := range f.slots {
		f.schedule(time.Duration(i)*r.during/4, func() error {
			if p := s.process; p != nil && spec.withdrawn {
				f.callAsync(func(ctx context.Context) { p.executor.Withdraw(ctx, spec.name) })
			}
			return nil
		})
	}
	f.schedule(r.lasts+r.during, func() error {
		spec.withdrawn = false
		f.addNote("%s is not to be retired any more", spec.name)
		f.callAsync(func(ctx context.Context) { f.operator.Unretire(ctx, spec.name) })
		f.register(spec)
		return nil
	})
}

// register registers a job with one process after another.
func (f *fleet) register(spec *jobSpec) {
	f.addNote("%s is registered again", spec.name)
	for i, s := range f.slots {
		f.schedule(time.Duration(i)*time.Second, func() error {
			if s.process == nil || spec.withdrawn {
				return nil
			}
			return s.process.executor.Register(spec.withHandlerOf(s.process))
		})
	}
}

// registerForgotten registers jobs again that were forgotten: an instance that joined meanwhile may offer one that is not
// on record any more.
func (f *fleet) registerForgotten() {
	for _, spec := range f.specs {
		if spec.forgotten {
			f.callAsync(func(ctx context.Context) { f.operator.Unretire(ctx, spec.name) })
			f.register(spec)
		}
	}
}
