package rotatest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// Sleep advances the time by d, and returns when everything due at its end has begun.
func (f *Fleet) Sleep(d time.Duration) {
	time.Sleep(d)
	f.wait()
}

// SleepUntil sleeps until the instant t. The test fails if t has passed.
func (f *Fleet) SleepUntil(t time.Time) {
	f.t.Helper()
	if now := time.Now(); t.Before(now) {
		f.t.Fatalf("rotatest: sleep until %s: it is %s", clock(t), clock(now))
	}
	f.Sleep(time.Until(t))
}

// NextFire sleeps until the next fire of a job and returns its instant, in UTC like
// Run.FireTime. When it returns, the handlers of all idle shards have been called. Not included
// are shards whose previous run has not ended, and those of a job that is paused or has no live
// instance. The test fails if the job has no further fire.
func (f *Fleet) NextFire(job string) time.Time {
	f.t.Helper()
	f.wait()
	fire, err := f.model.nextFire(job, time.Now())
	if err != nil {
		f.t.Fatalf("rotatest: next fire of %q: %v", job, err)
	}
	f.Sleep(time.Until(fire))
	f.awaitClaims(job)
	return fire
}

// Trigger triggers a job on an instance that is running and not partitioned, and returns the
// number of the trigger. When it returns, the handlers of all idle shards have been called.
func (f *Fleet) Trigger(job string, t executor.Trigger) uint64 {
	f.t.Helper()
	i := slices.IndexFunc(f.processes, func(p *process) bool { return p.state == up && p.cuts == 0 })
	if i < 0 {
		f.t.Fatalf("rotatest: trigger %q: no process is running and not cut off", job)
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	number, err := f.processes[i].ex.Trigger(ctx, job, t)
	if err != nil {
		f.t.Fatalf("rotatest: %v", err)
	}
	f.awaitClaims(job)
	return number
}

// awaitClaims waits up to assignTime for due runs of a job to be claimed and begun.
func (f *Fleet) awaitClaims(job string) {
	f.await(assignTime, func() bool {
		return !f.hasIdle(due, job) && f.recorder.allBegun(f.model.running(job))
	})
}

// Settle lets time pass until nothing is running, due or moving: all handlers have returned and
// their ends are on record, each fire up to then was claimed or skipped, and each shard of an
// offered job is with its final owner. Earlier crashes, pauses and new definitions have taken
// effect, and instances that are no longer cut off have joined again. Settle does not wait for
// fires that a pause, a disabled shard or the lack of instances holds up, nor for zombies.
//
// Settle waits for the retries of failed runs if Job.Retry bounds them. A retry without a bound may never end: Settle
// waits for the attempt that runs, not for the next one. A daemon, a run of schedule.Always, is at rest while it runs, unless
// a pause, a move, a disabled shard or a new definition is about to end it.
//
// The test fails if the fleet does not settle within a day. A job whose runs take longer than
// the time between its fires never settles.
func (f *Fleet) Settle() {
	f.t.Helper()
	if f.await(settleTime, func() bool { return len(f.unsettled()) == 0 }) {
		return
	}
	all := f.unsettled()
	const most = 20
	if len(all) > most {
		all = append(all[:most], fmt.Sprintf("and %d more", len(all)-most))
	}
	f.t.Fatalf("rotatest: not settled after %v:\n\t%s", settleTime, strings.Join(all, "\n\t"))
}

const settleTime = 24 * time.Hour

// unsettled returns what Settle waits for, in words.
func (f *Fleet) unsettled() []string {
	var all []string
	for _, c := range f.recorder.running(false) {
		if f.model.atRest(c.ID) {
			continue
		}
		all = append(all, fmt.Sprintf("run %s has been running on %s since %s", c.ID, c.process.instance, clock(c.Start)))
	}
	for _, m := range f.pendingItems() {
		if !m.retry {
			all = append(all, m.String())
		}
	}
	return all
}

// pendingItems returns the items of the model that are not at rest.
func (f *Fleet) pendingItems() []pendingItem {
	var all []pendingItem
	for _, p := range f.processes {
		if p.state == up && p.cuts == 0 && f.model.absent(p.machine) {
			all = append(all, pendingItem{kind: moving, what: fmt.Sprintf("%s has not joined the fleet", p.instance)})
		}
	}
	return append(all, f.model.pendingItems(time.Now())...)
}

// hasIdle reports whether there is a pending item of that kind that does not wait for the end
// of a run. An empty job means any job.
func (f *Fleet) hasIdle(k itemKind, job string) bool {
	return len(f.idleItems(k, job, time.Now())) > 0
}

func (f *Fleet) idleItems(k itemKind, job string, due time.Time) []pendingItem {
	var idle []pendingItem
	for _, m := range f.pendingItems() {
		if m.kind != k || job != "" && m.job != job || m.due > record.InstantOf(due) {
			continue
		}
		if rest := m.shards.Minus(f.busyShards(m.job)); m.shards.IsZero() || !rest.IsZero() {
			m.shards = rest
			idle = append(idle, m)
		}
	}
	return idle
}

// busy returns the shards of a job that have a run which has not ended, on record or in
// fact.
func (f *Fleet) busyShards(job string) shardset.Set {
	return f.recorder.busyShards(job).Union(f.model.busyShards(job))
}

// await lets time pass in small steps until ok holds, for as long as it may take.
func (f *Fleet) await(most time.Duration, ok func() bool) bool {
	begin := time.Now()
	for {
		f.wait()
		if ok() {
			return true
		}
		passed := time.Since(begin)
		if passed >= most {
			return false
		}
		time.Sleep(min(max(passed/100, time.Millisecond), 10*time.Second, most-passed))
	}
}

// wait lets everything happen that happens now.
func (f *Fleet) wait() {
	synctest.Wait()
	f.model.apply(f.server.Log())
}

const (
	// callTime is how long a call may take that waits for the registry, or for a name.
	callTime = time.Hour
	// claimTime is how long a fire of an idle shard may stay due at the end of a test: enough
	// for a session to expire, an election, the fail-over and a regular check.
	claimTime = 5 * time.Minute
	// zombieTime is how long handlers may take to return when their processes have ended.
	zombieTime = 24 * time.Hour
	// leaveTime is how long executors may take to leave when their last run has ended.
	leaveTime = time.Minute
)

// close judges and stops the fleet.
func (f *Fleet) close() {
	if f.returned {
		f.judge()
	}
	f.silent.Store(true) // runs that the clean-up cuts short would be logged as failed, below the test's own message
	for _, p := range f.processes {
		if p.state != up {
			continue
		}
		p.state = stopped
		f.stopping.Go(func() {
			if err := p.ex.Shutdown(context.Background()); err != nil && !isAbandoned(err) {
				f.t.Errorf("rotatest: stop %s: %v", p.instance, err)
			}
		})
	}
	f.stopping.Wait()
	if !f.await(zombieTime, func() bool { return len(f.recorder.running(true)) == 0 }) {
		for _, c := range f.recorder.running(true) {
			f.t.Errorf("rotatest: the handler of run %s, called on %s at %s, has not returned though its context has ended (%v)",
				c.ID, c.process.instance, clock(c.Start), context.Cause(c.ctx))
		}
	}
	f.Sleep(leaveTime)
	f.recorder.reportDoubled(f.model.wasReset)
	for _, p := range f.processes {
		p.reg.Close(context.Background()) //nolint:errcheck // the server is about to go
	}
	f.wait()
}

// judge fails the test if something that is due now is not claimed though it could be.
func (f *Fleet) judge() {
	for _, heal := range f.heals {
		heal()
	}
	now := time.Now()
	if f.await(claimTime, func() bool { return len(f.idleItems(due, "", now)) == 0 && !f.hasIdle(moving, "") }) {
		return
	}
	for _, m := range f.idleItems(due, "", now) {
		f.t.Errorf("rotatest: lost: %v, and no instance has claimed it in %v", m, claimTime)
	}
}
