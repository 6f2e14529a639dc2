package simulate

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/schedule"
)

// jobSpec is the current definition of a job; operators raise its revision.
type jobSpec struct {
	name     string
	revision int
	shards   int
	every    time.Duration
	misfire  executor.MisfirePolicy
	crash    executor.CrashPolicy
	zone     string // to which it is restricted; "" for none
	tracking executor.Tracking
	other    executor.Tracking // the level that alternates with tracking
	retry    executor.Retry    // unless the job tracks claims
	overlap  executor.OverlapPolicy
	window   time.Duration // for catching up
	delay    time.Duration // of fixed delay; 0: the job fires every
	after    *jobSpec      // the job that it follows; nil: none
	outcome  int           // of the fires that it follows: 0 success, 1 any, 2 failure
	followed bool          // another job follows it
	pool     string

	withdrawn bool // no process offers it, until it has been forgotten
	forgotten bool // an operator has tried to forget it
}

// specs returns the jobs of a fleet: they have all misfire policies, and some make no re-runs.
func specs(c Config) []*jobSpec {
	out := make([]*jobSpec, c.Jobs)
	for i := range out {
		s := &jobSpec{name: fmt.Sprintf("job-%02d", i), shards: c.Shards, every: c.Every}
		switch i % 4 {
		case 1:
			s.misfire = executor.RunAll(1000)
		case 2:
			s.misfire = executor.RunAll(3)
		case 3:
			s.misfire = executor.SkipMissed
		}
		if i%8 == 5 {
			s.crash = executor.CountAsFailed
		}
		if c.Policies && i%5 == 0 {
			s.retry = executor.Retry{Max: 2, Initial: 100 * time.Millisecond, MaxInterval: 200 * time.Millisecond}
		}
		if c.Policies {
			s.overlap = []executor.OverlapPolicy{executor.WaitForRun, executor.SkipOverlapping, executor.CancelRunning}[(uint64(i)+c.Seed)%3]
			if s.overlap == executor.CancelRunning && s.misfire > 0 {
				s.overlap = executor.WaitForRun
			}
			if (uint64(i)+c.Seed)%4 == 0 {
				s.window = 30 * time.Second
			}
		}
		if c.Policies && i == 2 && c.Seed%3 == 0 {
			s.delay = c.Every / 4
		}
		if c.Levels && (uint64(i)+c.Seed)%3 == 0 {
			s.tracking = executor.TrackClaims
		}
		if parent := max(i-1, 0); c.Policies && i > 0 && i < 12 && (uint64(i)+c.Seed)%6 < 2 && out[parent].delay == 0 && s.delay == 0 {
			s.after, s.outcome = out[parent], int(c.Seed/6%3)
			s.after.tracking, s.after.followed = executor.TrackRuns, true
			s.tracking = executor.TrackRuns
		}
		if c.Pool > 0 && (uint64(i)+c.Seed)%3 > 0 {
			s.pool = poolName
		}
		out[i] = s
	}
	return out
}

// schedule returns the schedule of a job.
func (s *jobSpec) schedule() schedule.Schedule {
	switch {
	case s.delay > 0:
		return schedule.FixedDelay(s.delay)
	case s.after == nil:
		return schedule.Every(s.every)
	case s.outcome == 1:
		return schedule.AfterJob(s.after.name).OnEnd()
	case s.outcome == 2:
		return schedule.AfterJob(s.after.name).OnFailure()
	}
	return schedule.AfterJob(s.after.name)
}

// withHandlerOf returns the job with the handler of a process.
func (s *jobSpec) withHandlerOf(p *process) executor.Job {
	var runOn map[string]string
	if s.zone != "" {
		runOn = map[string]string{"zone": s.zone}
	}
	retry := s.retry
	if s.tracking == executor.TrackClaims {
		retry = executor.Retry{}
	}
	if s.delay > 0 {
		return executor.Job{
			Name: s.name, RunOn: runOn, Schedule: s.schedule(), Shards: s.shards, Revision: s.revision, Pool: s.pool,
			OnCrash: s.crash, Retry: retry, Handler: executor.HandlerFunc(p.handle),
		}
	}
	return executor.Job{
		Name: s.name, RunOn: runOn, Schedule: s.schedule(), Shards: s.shards, Revision: s.revision, Pool: s.pool,
		OnMisfire: s.misfire, OnCrash: s.crash, Tracking: s.tracking, Retry: retry, OnOverlap: s.overlap, CatchupWindow: s.window, Handler: executor.HandlerFunc(p.handle),
	}
}

// stubborn is the longest time that a short run ignores the end of its context.
const stubborn = 20 * time.Second

// conduct is the behaviour of a run. It depends only on the seed and the run.
type conduct struct {
	takes    time.Duration
	stubborn time.Duration // for how long it ignores the end of its context
	fails    bool
}

// attemptName names an attempt without the random token of a trigger, so that a seed has the same runs each time.
func attemptName(r *executor.Run) string {
	which := r.FireTime.UTC().Format(time.RFC3339Nano)
	if r.Trigger > 0 {
		which = fmt.Sprint("#", r.Trigger)
	}
	return fmt.Sprintf("%s/%d/%s/%d", r.Job, r.Shard, which, r.Attempt)
}

func conductOf(seed uint64, longest, grain, long time.Duration, r *executor.Run) conduct {
	h := fnv.New64a()
	h.Write([]byte(attemptName(r)))
	n := (h.Sum64() ^ seed) * 0x9e3779b97f4a7c15
	n ^= n >> 32
	c := conduct{takes: longest/8 + time.Duration(n%1000)*(longest-longest/8)/1000}
	switch n >> 10 % 64 {
	case 0:
		c.fails = true
	case 1, 2:
		c.stubborn = 3 * time.Second
	case 3:
		c.stubborn = stubborn
	}
	if grain > 0 {
		c.takes = (c.takes/grain + 1) * grain
	}
	if long > 0 && n>>16%16 == 0 {
		c.takes = long
		if n>>20%2 == 0 {
			c.stubborn = long / 3
		}
	}
	return c
}

func (f *fleet) conductOf(r *executor.Run) conduct {
	long := f.Long
	if time.Now().After(f.calm) {
		long = 0
	}
	return conductOf(f.Seed, f.Takes, f.Grain, long, r)
}

// handle is the handler of all jobs.
func (p *process) handle(ctx context.Context, r *executor.Run) (err error) {
	var canceled time.Time
	f := p.fleet.calls.addBegin(p.clientName, r)
	defer func() { p.fleet.calls.addEnd(f, canceled, err != nil) }()
	c := p.fleet.conductOf(r)
	timer := time.NewTimer(c.takes)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.crashed:
		return context.Canceled
	case <-ctx.Done():
		canceled = time.Now()
		if c.stubborn > 0 && !errors.Is(context.Cause(ctx), executor.ErrOverlap) { // or fires would wait for it in fleets at rest
			timer.Reset(c.stubborn)
			select {
			case <-timer.C:
			case <-p.crashed:
			}
		}
		return context.Cause(ctx)
	}
	if c.fails {
		return fmt.Errorf("run %s fails", r.ID)
	}
	return nil
}
