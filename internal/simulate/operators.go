package simulate

import (
	"context"
	"time"

	"github.com/rota-dev/rota/executor"
)

// answer is what became of an operator's call.
type answer struct {
	job    string
	number uint64 // of an accepted trigger
}

// operate has an operator do something, and sees to the next.
func (f *fleet) operate() error {
	if !time.Now().Before(f.until) {
		return nil
	}
	f.in(time.Duration(float64(f.Faults)*(0.5+2*f.rng.Float64())), f.operate)
	s, spec, what := f.slots[f.rng.IntN(len(f.slots))], f.specs[f.rng.IntN(len(f.specs))], f.rng.IntN(8)
	shards, every := 1+f.rng.IntN(2*f.Shards), f.Every/time.Duration(1+f.rng.IntN(3))
	pause := time.Duration(f.rng.Float64() * float64(5*f.Every))
	p := s.process
	if p == nil {
		return nil
	}
	switch what {
	case 0, 1:
		f.revise(spec, shards, every)
	case 2:
		f.note("%s pauses %s", p.machine, spec.name)
		f.ask(func(ctx context.Context) { p.ex.Pause(ctx, spec.name) })
		f.in(pause, func() error {
			f.resume(spec.name)
			return nil
		})
	default:
		f.note("%s triggers %s", p.machine, spec.name)
		f.ask(func(ctx context.Context) {
			if n, err := p.ex.Trigger(ctx, spec.name, executor.Trigger{}); err == nil {
				f.answers <- answer{spec.name, n}
			}
		})
	}
	return nil
}

// revise rolls out a new definition: one process after another has it.
func (f *fleet) revise(spec *jobSpec, shards int, every time.Duration) {
	spec.revision++
	spec.shards, spec.every = shards, every
	f.note("%s has revision %d: %d shards every %v", spec.name, spec.revision, shards, every)
	for i, s := range f.slots {
		revision := spec.revision
		f.in(time.Duration(i)*time.Second, func() error {
			if s.process == nil || spec.revision != revision {
				return nil
			}
			return s.process.ex.Register(spec.job(s.process))
		})
	}
}

// resume resumes a job by somebody's hand.
func (f *fleet) resume(job string) {
	for _, s := range f.slots {
		if p := s.process; p != nil {
			f.note("%s resumes %s", p.machine, job)
			f.ask(func(ctx context.Context) { p.ex.Resume(ctx, job) })
		}
	}
}

// resumeAll resumes all jobs.
func (f *fleet) resumeAll() {
	if !f.Operators {
		return
	}
	for _, spec := range f.specs {
		f.resume(spec.name)
	}
}

// ask has a call made that may take long.
func (f *fleet) ask(call func(context.Context)) {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), f.TTL)
		defer cancel()
		call(ctx)
	}()
}

// accepted judges that each trigger that was accepted has come into the plan.
func (f *fleet) accepted() {
	for {
		select {
		case a := <-f.answers:
			f.judge.Accepted(a.job, a.number)
		default:
			return
		}
	}
}
