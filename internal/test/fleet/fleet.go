package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/internal/test/storelog"
	"github.com/rota-dev/rota/operator"
)

// Config configures a fleet. All fields but Often, Small, Chains, Pool, Defines, Base, Grace and Trail are required.
type Config struct {
	Instances int
	Jobs      int
	Shards    int           // of each job
	Every     time.Duration // between fires
	Takes     time.Duration // the longest that a run takes
	Often     time.Duration // between fires of a further job, whose total can be changed; 0: there is none
	Small     int           // further jobs of one shard, which all fire each second
	Chains    int           // of three further jobs, each of which follows the one before
	Pool      int           // the size of a pool of three further jobs, if there is no base, and of some of those that programs define; 0: there is none
	Defines   int           // names that programs define, change and delete as data
	Base      string        // a program of another version, see BuildBase; "": all processes are of this version
	TTL       time.Duration // of sessions
	Drain     time.Duration // how long a leaving process waits for its runs
	Grace     time.Duration // the restart grace
	Dir       string        // for the logs of the workers
	Trail     int           // how many lines to print about the commits before a violation
}

// Fleet is a fleet of processes with some jobs. One goroutine owns it.
type Fleet struct {
	Config
	Server *Server
	Judge  *judge.Judge

	log       storelog.Log
	slots     []*Process // one for each instance
	ofBase    []bool     // for each slot: its process is of the base
	replaced  []*Process // whose last reports may not be read yet
	processes int        // started so far
	size      size       // of the resized job
	began     func(*judge.Call)
	programs  []*Process      // that define jobs
	killed    []*Process      // programs whose last reports may not be read yet
	Deletes   int             // of defined jobs, that have returned
	answers   []time.Duration // how long the store took to answer each observation
}

// maxDelay is the longest delay of an undisturbed claim or failover; on a busy machine a session may be lost.
func (c *Config) maxDelay() time.Duration { return c.TTL + 3*time.Second }

// Start starts a fleet on an empty store. The caller must close it.
func Start(ctx context.Context, s *Server, c Config) (*Fleet, error) {
	log, err := s.Log(ctx, s.Addrs())
	if err != nil {
		return nil, err
	}
	f := &Fleet{
		Config: c, Server: s, log: log, slots: make([]*Process, c.Instances), ofBase: make([]bool, c.Instances),
		Judge: judge.New("fleet", "default", judge.Options{Promptly: c.maxDelay(), LogLag: logLag, LogUnit: time.Millisecond, Trail: c.Trail}),
		size:  size{Revision: 1, Shards: 8},
	}
	if err := f.setPool(ctx); err != nil {
		f.Close()
		return nil, err
	}
	for i := range f.slots {
		if err := f.Replace(i); err != nil {
			f.Close()
			return nil, err
		}
	}
	if err := f.startPrograms(); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// setPool sets the size of the pool.
func (f *Fleet) setPool(ctx context.Context) error {
	if f.Pool == 0 {
		return nil
	}
	reg, err := f.Server.open(ctx)
	if err != nil {
		return err
	}
	defer reg.Close(context.WithoutCancel(ctx))
	op, err := operator.New(reg, "fleet", "default")
	if err != nil {
		return err
	}
	return op.SetPool(ctx, poolName, f.Pool)
}

// Close kills all processes.
func (f *Fleet) Close() {
	for _, p := range slices.Concat(f.programs, f.slots) {
		if p != nil {
			p.Kill()
		}
	}
	f.log.Close()
}

// Replace starts a process in slot i, in place of one that has ended. With a base it is of the other version, so that each fault changes
// which versions the fleet has. The first processes are of the base.
func (f *Fleet) Replace(i int) error { return f.replaceBy(i, f.Base != "" && !f.ofBase[i]) }

// replaceBy is Replace by a process of the base, or of this version.
func (f *Fleet) replaceBy(i int, base bool) error {
	f.ofBase[i] = base
	if old := f.slots[i]; old != nil {
		f.replaced = append(f.replaced, old)
	}
	f.processes++
	f.Judge.Report().Processes++
	client, program := fmt.Sprintf("i%d-%d", i, f.processes), ""
	if base {
		client, program = client+"-base", f.Base
	}
	instance := client
	if f.Grace > 0 {
		instance = fmt.Sprintf("i%d", i)
	}
	var err error
	f.slots[i], err = startProcess(f.Server, assignment{
		Namespace: "fleet", Instance: instance, Client: client, Jobs: f.Jobs, Shards: f.Shards,
		Every: f.Every, Takes: f.Takes, Often: f.Often, Resized: f.size, Small: f.Small, Chains: f.Chains, Pooled: f.hasPooled(), Defines: f.Defines, TTL: f.TTL, Drain: f.Drain, Grace: f.Grace,
	}, program, f.Dir)
	return err
}

// hasPooled reports whether the workers have jobs with a pool. Those of a base have none, so there only defined jobs have it.
func (f *Fleet) hasPooled() bool { return f.Pool > 0 && f.Base == "" }

// Process returns the process in slot i.
func (f *Fleet) Process(i int) *Process { return f.slots[i] }

// share is how many shards each process owns at least after an even assignment.
func (f *Fleet) share() int {
	all := f.Jobs*f.Shards + f.Small + f.Chains*chainShards
	if f.Often > 0 {
		all += f.size.Shards
	}
	if f.hasPooled() {
		all += pooledJobs * pooledShards
	}
	return all / f.Instances
}

// Leader returns the slot of the leader as of the last observation.
func (f *Fleet) Leader() (slot int, ok bool) {
	slot = slices.IndexFunc(f.slots, func(p *Process) bool { return p.Instance == f.Judge.Leader() })
	return slot, slot >= 0
}

// Observe passes all new commits and reports to the judge. It waits for the store to answer.
func (f *Fleet) Observe(ctx context.Context) error {
	events, err := f.readReports() // before the log: the commits of their claims must be in it
	if err != nil {
		return err
	}
	f.judgeDeletions()
	asked := time.Now()
	if err := f.log.Sync(ctx); err != nil {
		return err
	}
	f.answers = append(f.answers, time.Since(asked))
	f.Judge.JudgeCommits(f.log.Take())
	f.Judge.JudgeCalls(events)
	if f.began != nil {
		for _, e := range events {
			if e.End.IsZero() {
				f.began(e.Call)
			}
		}
	}
	for _, p := range slices.Concat(f.programs, f.slots) {
		if !p.stopped && p.hasEnded() {
			return fmt.Errorf("%s ended by itself: %w; last lines of its log:\n%s", p.Client, p.proc.Err(), p.lastLog())
		}
	}
	return nil
}

// readReports returns the new reports of all processes, in order of time.
func (f *Fleet) readReports() ([]judge.Event, error) {
	var all []judge.Event
	var errs []error
	for _, p := range slices.Concat(f.replaced, f.slots) {
		events, err := p.readLines()
		all, errs = append(all, events...), append(errs, err)
	}
	f.replaced = nil
	slices.SortStableFunc(all, func(a, b judge.Event) int { return a.At().Compare(b.At()) })
	return all, errors.Join(errs...)
}

// Until observes repeatedly until ok returns true.
func (f *Fleet) Until(ctx context.Context, what string, within time.Duration, ok func() bool) error {
	end := time.Now().Add(within)
	for {
		if err := f.Observe(ctx); err != nil {
			return err
		}
		if err := f.Judge.Report().Err(); err != nil {
			return err
		}
		if ok() {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: not within %v", what, within)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// ObserveFor observes repeatedly for some time.
func (f *Fleet) ObserveFor(ctx context.Context, d time.Duration) error {
	end := time.Now().Add(d)
	return f.Until(ctx, "time passes", d+time.Minute, func() bool { return time.Now().After(end) })
}

// sleepUntilFire sleeps until just before the next fire, and returns the fire.
func (f *Fleet) sleepUntilFire(before time.Duration) time.Time {
	fire := time.Now().Add(before).Truncate(f.Every).Add(f.Every)
	time.Sleep(time.Until(fire.Add(-before)))
	return fire
}

// claimTime is the age of a fire by which a settled fleet has claimed it.
const claimTime = 500 * time.Millisecond

// cleanupTime is longer than the interval of the leader's regular check, which drops served entries of plans.
const cleanupTime = time.Minute

// Finish waits until the fleet has settled and judges it, then shuts all processes down and judges the counts in
// the records.
func (f *Fleet) Finish(ctx context.Context) error {
	if err := f.stopPrograms(); err != nil {
		return err
	}
	// The fleet goes on, so the verdict is about the instant at which it has settled: a moment later another fire is due.
	now := time.Now()
	for end := now.Add(cleanupTime); now.Before(end) && !f.Judge.IsSettled(now, claimTime); now = time.Now() {
		if err := f.ObserveFor(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	f.Judge.JudgeSettled(now, claimTime)
	if err := f.deleteDefined(ctx); err != nil {
		return err
	}
	var errs []error
	for _, p := range f.slots {
		errs = append(errs, p.Leave(leaving))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := f.Observe(ctx); err != nil {
		return err
	}
	f.Judge.JudgeCounts()
	f.Judge.JudgePools()
	return f.Judge.Report().Err()
}

// leaving bounds the time of a shutdown.
const leaving = 30 * time.Second
