package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/internal/test/storelog"
)

// Config says what a fleet is made of. All fields are required but Often, Grace and Trail.
type Config struct {
	Instances int
	Jobs      int
	Shards    int           // of each job
	Every     time.Duration // between fires
	Takes     time.Duration // the longest that a run takes
	Often     time.Duration // between fires of one more job, whose total can be changed; 0: there is none
	TTL       time.Duration // of sessions
	Drain     time.Duration // how long a process that leaves lets its runs go on
	Grace     time.Duration // for which shards wait for a process of the name of the one that had them
	Dir       string        // for the logs of the workers
	Trail     int           // how many lines to tell of what came before a violation
}

// Fleet is processes that share the work of some jobs. One goroutine owns it.
type Fleet struct {
	Config
	Server *Server
	Judge  *judge.Judge

	log       storelog.Log
	slots     []*Process // one for each instance
	replaced  []*Process // that may have said something that was not heard yet
	processes int        // that there ever were
	size      size       // of the resized job
	began     func(*judge.Call)
	answers   []time.Duration // how long the store took each time to tell what it has committed
}

// maxDelay is how late something may be that nothing has held up but that, on a busy
// machine, a session was lost.
func (c *Config) maxDelay() time.Duration { return c.TTL + 3*time.Second }

// Start starts a fleet on a store that is empty. It is to be closed.
func Start(ctx context.Context, s *Server, c Config) (*Fleet, error) {
	log, err := s.log(ctx, s.Addrs())
	if err != nil {
		return nil, err
	}
	f := &Fleet{
		Config: c, Server: s, log: log, slots: make([]*Process, c.Instances),
		Judge: judge.New("fleet", "default", judge.Options{Promptly: c.maxDelay(), Trail: c.Trail}),
		size:  size{Revision: 1, Shards: 8},
	}
	for i := range f.slots {
		if err := f.Replace(i); err != nil {
			f.Close()
			return nil, err
		}
	}
	return f, nil
}

// Close kills what still runs.
func (f *Fleet) Close() {
	for _, p := range f.slots {
		if p != nil {
			p.Kill()
		}
	}
	f.log.Close()
}

// Replace starts a process in slot i, in place of one that has ended.
func (f *Fleet) Replace(i int) error {
	if old := f.slots[i]; old != nil {
		f.replaced = append(f.replaced, old)
	}
	f.processes++
	f.Judge.Report().Processes++
	client := fmt.Sprintf("i%d-%d", i, f.processes)
	instance := client
	if f.Grace > 0 {
		instance = fmt.Sprintf("i%d", i)
	}
	var err error
	f.slots[i], err = startProcess(f.Server, assignment{
		Namespace: "fleet", Instance: instance, Client: client, Jobs: f.Jobs, Shards: f.Shards,
		Every: f.Every, Takes: f.Takes, Often: f.Often, Resized: f.size, TTL: f.TTL, Drain: f.Drain, Grace: f.Grace,
	}, f.Dir)
	return err
}

// Process returns the process in slot i.
func (f *Fleet) Process(i int) *Process { return f.slots[i] }

// share is how many shards each process comes to have, where they can be dealt evenly.
func (f *Fleet) share() int {
	all := f.Jobs * f.Shards
	if f.Often > 0 {
		all += f.size.Shards
	}
	return all / f.Instances
}

// Leader returns the slot of the process that leads, as far as has been observed.
func (f *Fleet) Leader() (slot int, ok bool) {
	slot = slices.IndexFunc(f.slots, func(p *Process) bool { return p.Instance == f.Judge.Leader() })
	return slot, slot >= 0
}

// Observe has the judge hear all that has happened. The store has to answer.
func (f *Fleet) Observe(ctx context.Context) error {
	said, err := f.readReports() // before the commits that it followed from are read
	if err != nil {
		return err
	}
	asked := time.Now()
	if err := f.log.Sync(ctx); err != nil {
		return err
	}
	f.answers = append(f.answers, time.Since(asked))
	f.Judge.JudgeCommits(f.log.Take())
	f.Judge.JudgeCalls(said)
	if f.began != nil {
		for _, e := range said {
			if e.End.IsZero() {
				f.began(e.Call)
			}
		}
	}
	for _, p := range f.slots {
		if !p.stopped && p.hasEnded() {
			return fmt.Errorf("%s gave up: %w; it logged last:\n%s", p.Client, p.proc.Err(), p.lastLog())
		}
	}
	return nil
}

// readReports returns what the processes have said, in order of time.
func (f *Fleet) readReports() ([]judge.Event, error) {
	var all []judge.Event
	var errs []error
	for _, p := range slices.Concat(f.replaced, f.slots) {
		said, err := p.readLines()
		all, errs = append(all, said...), append(errs, err)
	}
	f.replaced = nil
	slices.SortStableFunc(all, func(a, b judge.Event) int { return a.At().Compare(b.At()) })
	return all, errors.Join(errs...)
}

// Until observes again and again until ok says so.
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

// ObserveFor lets some time pass, while it observes.
func (f *Fleet) ObserveFor(ctx context.Context, d time.Duration) error {
	end := time.Now().Add(d)
	return f.Until(ctx, "time passes", d+time.Minute, func() bool { return time.Now().After(end) })
}

// sleepUntilFire sleeps until just before the next fire, and returns that.
func (f *Fleet) sleepUntilFire(before time.Duration) time.Time {
	fire := time.Now().Add(before).Truncate(f.Every).Add(f.Every)
	time.Sleep(time.Until(fire.Add(-before)))
	return fire
}

// claiming is how old a fire is that has to have been claimed by a fleet at rest.
const claimTime = 500 * time.Millisecond

// clearing is longer than it takes a leader to come by, on its slow tick, and clear away
// what has been served.
const cleanupTime = time.Minute

// Finish lets the fleet come to rest and judges it, then has everybody leave and judges
// what they leave.
func (f *Fleet) Finish(ctx context.Context) error {
	for end := time.Now().Add(cleanupTime); time.Now().Before(end) && !f.Judge.IsSettled(time.Now(), claimTime); {
		if err := f.ObserveFor(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	f.Judge.JudgeSettled(time.Now(), claimTime)
	var left []error
	for _, p := range f.slots {
		left = append(left, p.Leave(leaving))
	}
	if err := errors.Join(left...); err != nil {
		return err
	}
	if err := f.Observe(ctx); err != nil {
		return err
	}
	f.Judge.JudgeCounts()
	return f.Judge.Report().Err()
}

// leaving is how long a process may take to go in good order.
const leaving = 30 * time.Second
