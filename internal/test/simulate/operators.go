package simulate

import (
	"context"
	"strings"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
)

// answer is the result of an operator's call.
type answer struct {
	job       string
	number    uint64 // of an accepted trigger
	requested time.Time
}

// operateOnce lets an operator act, and schedules the next action.
func (f *fleet) operateOnce() error {
	if !time.Now().Before(f.until) {
		return nil
	}
	f.schedule(time.Duration(float64(f.Faults)*(0.34+1.36*f.rng.Float64())), f.operateOnce)
	s, spec, what := f.slots[f.rng.IntN(len(f.slots))], f.specs[f.rng.IntN(len(f.specs))], f.rng.IntN(22)
	shards, every := 1+f.rng.IntN(2*f.Shards), f.Every/time.Duration(1+f.rng.IntN(3))
	pause := time.Duration(f.rng.Float64() * float64(5*f.Every))
	scope := f.drawScope(s, spec)
	p := s.process
	drawn := f.drawRequest(spec)
	if p == nil || spec.withdrawn {
		return nil
	}
	switch what {
	case 15, 16:
		f.cancelSoon(spec, drawn)
	case 17, 18:
		f.retryFailed(p, spec, drawn)
	case 19:
		f.backfill(p, spec, drawn)
	case 20:
		f.override(p, spec, drawn)
	case 21:
		f.forget(spec, drawn)
	case 0, 1:
		f.report.Actions["definition revised"]++
		f.revise(spec, shards, every)
	case 2:
		f.pauseOrStop(p.clientName, p.executor, spec.name, pause%2 == 0)
		f.schedule(pause, func() error {
			f.resume(spec.name)
			return nil
		})
	case 14:
		f.report.Actions["job reset"]++
		f.addNote("%s resets %s", p.clientName, spec.name)
		f.callAsync(func(ctx context.Context) { p.executor.Operator().Reset(ctx, spec.name) })
	case 3, 4, 5, 6, 7, 8:
		f.addNote("%s disables %+v", p.clientName, scope)
		f.callAsync(func(ctx context.Context) { p.executor.Operator().Disable(ctx, scope) })
		f.schedule(2*pause, func() error {
			f.addNote("%+v are enabled", scope)
			f.callAsync(func(ctx context.Context) { f.operator.Enable(ctx, scope) })
			return nil
		})
	default:
		f.report.Actions["job triggered"]++
		f.addNote("%s triggers %s", p.clientName, spec.name)
		requested := time.Now()
		f.callAsync(func(ctx context.Context) {
			if n, err := p.executor.Trigger(ctx, spec.name, executor.Trigger{}); err == nil {
				f.answers <- answer{spec.name, n, requested}
			}
		})
	}
	return nil
}

// pauseOrStop pauses a job, or stops only its schedule.
func (f *fleet) pauseOrStop(machine string, ex *executor.Executor, job string, all bool) {
	what, call := "schedule stopped", ex.Operator().StopSchedule
	if all {
		what, call = "job paused", ex.Operator().Pause
	}
	f.report.Actions[what]++
	f.addNote("%s: %s by %s", job, what, machine)
	f.callAsync(func(ctx context.Context) { call(ctx, job) })
}

// revise rolls out a new definition, to one process after another.
func (f *fleet) revise(spec *jobSpec, shards int, every time.Duration) {
	spec.revision++
	spec.shards, spec.every = shards, every
	if f.Zones {
		spec.zone = []string{"", "z0", "z1"}[f.rng.IntN(3)]
	}
	if f.Levels && spec.revision%3 == 0 {
		spec.crash = executor.CountAsFailed + executor.RerunElsewhere - spec.crash
	}
	if f.Levels && spec.revision%2 == 0 {
		spec.tracking, spec.other = spec.other, spec.tracking
	}
	f.addNote("%s has revision %d: %d shards every %v in zone %q, tracking %v", spec.name, spec.revision, shards, every, spec.zone, spec.tracking)
	for i, s := range f.slots {
		revision := spec.revision
		f.schedule(time.Duration(i)*time.Second, func() error {
			if s.process == nil || spec.revision != revision || spec.withdrawn {
				return nil
			}
			return s.process.executor.Register(spec.withHandlerOf(s.process))
		})
	}
}

// drawScope draws what to disable: mostly shards, otherwise the instance of a slot or its host, for one job or
// for all.
func (f *fleet) drawScope(s *slot, spec *jobSpec) operator.Scope {
	what, all, shard, run := f.rng.IntN(4), f.rng.IntN(2) == 0, f.rng.IntN(spec.shards), 1+f.rng.IntN(2)
	scope := operator.Scope{Job: spec.name}
	if what < 2 || s.process == nil {
		for n := shard; n < min(shard+run, spec.shards); n++ {
			scope.Shards = append(scope.Shards, n)
		}
		return scope
	}
	if all {
		scope.Job = ""
	}
	if what == 2 {
		scope.Instances = []string{s.process.instance}
	} else {
		scope.Hosts = []string{hostOf(s.number)}
	}
	return scope
}

// disableLast disables a shard, and some but not all instances, until the fleet has been judged.
func (f *fleet) disableLast() {
	if !f.Operators {
		return
	}
	s, spec := f.slots[f.rng.IntN(len(f.slots))], f.specs[f.rng.IntN(len(f.specs))]
	scopes := []operator.Scope{
		{Job: spec.name, Shards: []int{f.rng.IntN(spec.shards)}},
		{Hosts: []string{hostOf(s.number)}},
		{Job: spec.name, Instances: []string{s.process.instance}},
	}
	for _, scope := range scopes {
		if f.rng.IntN(2) == 0 {
			f.addNote("%+v stay disabled", scope)
			f.callAsync(func(ctx context.Context) { f.operator.Disable(ctx, scope) })
		}
	}
}

// resume resumes a job, through each process.
func (f *fleet) resume(job string) {
	for _, s := range f.slots {
		if p := s.process; p != nil {
			f.addNote("%s resumes %s", p.clientName, job)
			f.callAsync(func(ctx context.Context) { p.executor.Operator().Resume(ctx, job) })
		}
	}
}

// resumeAll resumes all jobs, and enables all that is disabled.
func (f *fleet) resumeAll() {
	f.resumeDefined()
	if !f.Operators {
		return
	}
	f.enableAll("")
	for _, spec := range f.specs {
		f.resume(spec.name)
		f.enableAll(spec.name)
	}
}

// resetWaiting resets all jobs whose problem recommends a reset, because a wrong clock raised watermarks.
func (f *fleet) resetWaiting() {
	for _, spec := range f.specs {
		f.callAsync(func(ctx context.Context) {
			if st, err := f.operator.Status(ctx, spec.name); err == nil && strings.Contains(st.Problem, "a reset starts the job afresh") {
				f.operator.Reset(ctx, spec.name)
			}
		})
	}
}

// enableAll enables all that is disabled of a job, or of all.
func (f *fleet) enableAll(job string) {
	f.callAsync(func(ctx context.Context) {
		intent, err := f.operator.Intent(ctx, job)
		if d := intent.Disabled; err == nil && len(d.Shards)+len(d.Instances)+len(d.Hosts) > 0 {
			f.operator.Enable(ctx, d)
		}
	})
}

// callAsync makes a call in a goroutine, since it may take long.
func (f *fleet) callAsync(call func(context.Context)) {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), f.TTL)
		defer cancel()
		call(ctx)
	}()
}

// judgeAccepted judges that each accepted trigger reached the plan.
func (f *fleet) judgeAccepted() {
	for {
		select {
		case a := <-f.answers:
			f.judge.JudgeAcceptedTrigger(a.job, a.number, a.requested)
		default:
			return
		}
	}
}
