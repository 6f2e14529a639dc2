package simulate

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/rota-dev/rota/internal/heap"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry/memory"
)

const namespace = "sim"

// Config configures a simulation.
type Config struct {
	Seed      uint64
	Instances int
	Jobs      int
	Shards    int           // of each job
	Every     time.Duration // between fires
	Takes     time.Duration // the longest that a run takes; all take an eighth of it at least
	Grain     time.Duration // the length of each run is a multiple of it, so that some end together; 0: any length
	Long      time.Duration // the length of one run in 16 while there are faults, if not 0
	For       time.Duration // how long faults are injected
	Faults    time.Duration // between faults, on average
	Kinds     []Fault       // all if nil
	TTL       time.Duration // of sessions
	Drain     time.Duration // DrainTimeout
	Grace     time.Duration // RestartGrace
	Skew      time.Duration // MaxClockSkew
	Clocks    time.Duration // the largest difference of a process's clock from the right time; at most half of Skew
	Outages   bool          // Outage is injected
	Wrong     time.Duration // the difference that WrongClock sets; 0: it is not injected
	Latency   time.Duration // of each message
	Jitter    time.Duration // the largest random delay of a request, reply or event
	Operators bool          // definitions change, and operators make all their calls
	Zones     bool          // instances are in zones, and new definitions restrict jobs to a zone, or not
	Levels    bool          // some jobs track claims only, and new definitions change that
	Policies  bool          // some jobs retry failed runs, skip or cancel overlapping ones, and bound catching up
	Weights   bool          // instances differ in weight
	Defined   int           // names that two programs define, change and delete as data
	Pool      int           // the size of a pool that some jobs have, and that operators change; 0: none has one
	Logger    *slog.Logger  // of the fleet; nil: it logs nothing
	Trail     int           // how many lines to print about the commits before a violation

	Transcript io.Writer // receives all commits and calls, if not nil
}

// fleet is a running simulation. One goroutine owns it; state shared with processes has its own locks.
type fleet struct {
	Config
	server        *memory.Server
	judge         *judge.Judge
	report        *judge.Report
	calls         callLog
	rng           *rand.Rand
	specs         []*jobSpec
	slots         []*slot
	processes     []*process // that have not ended
	agenda        heap.Heap[action, byTime]
	actions       int
	endings       map[int]func() // undo the faults in progress, by number
	faultsStarted int
	until         time.Time          // the end of faults
	calm          time.Time          // since when there are no faults
	answers       chan answer        // of operators' calls
	console       *memory.Client     // of an operator outside of the fleet
	operator      *operator.Operator // with that client
	definers      []*definer
	deletions     deletions
	kindRevision  int
	tap           func(log []judge.Commit, said []judge.Event, judged bool) // receives the input of the judge, if not nil
}

// slot is a place for an instance.
type slot struct {
	number  int
	process *process // nil while it is down
	lives   int
}

// Run simulates a fleet. It must be called in a synctest bubble, in which it leaves no goroutine. The error is
// the reason why the simulation could not run; violations are in the Report.
func Run(c Config) (*judge.Report, error) {
	f := newFleet(c)
	return f.report, f.run()
}

func newFleet(c Config) *fleet {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	j := judge.New(namespace, "default", judge.Options{Promptly: 250*time.Millisecond + 20*(c.Latency+c.Jitter/2), Clocks: max(c.Clocks, c.Wrong), WrongClocks: c.Wrong > 0, Trail: c.Trail})
	j.Report().Seed = c.Seed
	f := &fleet{
		Config: c, server: memory.New(), judge: j, report: j.Report(),
		rng: rand.New(rand.NewPCG(c.Seed, 0)), specs: specs(c), endings: map[int]func(){},
		answers: make(chan answer, 1024),
	}
	f.server.Record()
	return f
}

// openConsole connects an operator outside of the fleet.
func (f *fleet) openConsole() (err error) {
	f.console = f.server.Client("console")
	if f.operator, err = operator.New(f.connect(f.console, "console"), namespace, ""); err == nil {
		f.operator = f.operator.WithCompiler(executor.Compile)
	}
	return err
}

func (f *fleet) run() error {
	f.until = time.Now().Add(f.For)
	f.calm = f.until
	if err := f.openConsole(); err != nil {
		return err
	}
	if err := f.openDefiners(); err != nil {
		return err
	}
	if err := f.openPool(); err != nil {
		return err
	}
	for i := range f.Instances {
		s := &slot{number: i}
		f.slots = append(f.slots, s)
		if err := f.fillSlot(s); err != nil {
			return err
		}
	}
	f.schedule(observeEvery, f.check)
	f.schedule(f.Every, f.injectFault)
	if f.Operators {
		f.schedule(f.Every, f.operateOnce)
	}
	if err := f.advance(f.until); err != nil {
		return err
	}
	f.endFaults()
	if err := f.settleAndJudge(); err != nil {
		return err
	}
	return f.shutDownAndJudge()
}

// observeEvery is the interval between observations.
const observeEvery = time.Minute

// fillSlot starts a process in a slot.
func (f *fleet) fillSlot(s *slot) error {
	if s.lives == 0 || f.rng.IntN(2) == 0 { // otherwise it keeps its name
		s.lives++
	}
	var err error
	s.process, err = f.startProcess(fmt.Sprintf("i%d-%d", s.number, s.lives), s.number)
	return err
}

// check observes the fleet, replaces ended processes, and schedules the next check.
func (f *fleet) check() error {
	f.observe()
	if err := f.replaceEnded(); err != nil {
		return err
	}
	f.schedule(observeEvery, f.check)
	return nil
}

func (f *fleet) observe() {
	said := f.calls.drain() // before the log: the commits of their claims must be in it
	raw := f.server.Log()
	if f.Transcript != nil {
		writeTranscript(f.Transcript, raw, said)
	}
	log := judgeCommits(raw)
	if f.tap != nil {
		f.tap(log, said, false)
	}
	for _, d := range f.deletions.take() {
		f.judge.JudgeDelete(d.job, d.called, d.returned)
	}
	f.judge.JudgeCommits(log)
	f.judge.JudgeCalls(said)
}

// judgeCommits converts the server's log for the judge.
func judgeCommits(log []memory.Commit) []judge.Commit {
	out := make([]judge.Commit, len(log))
	for i := range log {
		c := &log[i]
		out[i] = judge.Commit{
			Rev: c.Rev, At: c.At, Client: c.Client, Opened: c.Opened, Ended: c.Ended, If: c.If, Then: c.Then, Err: c.Err,
		}
	}
	return out
}

// stopTime bounds the time, in addition to the drain, in which a stopped or crashed process ends.
const stopTime = 3 * time.Minute

// replaceEnded judges processes that have ended, and replaces those that were not stopped.
func (f *fleet) replaceEnded() error {
	rest := f.processes[:0]
	for _, p := range f.processes {
		switch {
		case p.hasEnded():
			p.judgeEnd()
			p.client.Close(context.Background())
		case !p.stopped.IsZero() && time.Since(p.stopped) > f.Drain+stopTime:
			return fmt.Errorf("seed %d: %s was stopped at %s and has not ended", f.Seed, p.clientName, p.stopped)
		default:
			rest = append(rest, p)
		}
	}
	f.processes = rest
	for _, s := range f.slots {
		if s.process != nil && s.process.stopped.IsZero() && s.process.hasEnded() {
			f.addNote("%s ended: %v", s.process.clientName, s.process.err)
			if err := f.fillSlot(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// endFaults ends all faults.
func (f *fleet) endFaults() {
	for n := range f.faultsStarted {
		f.endFault(n)
	}
	f.until = time.Now()
}

// settleAndJudge gives the fleet time to settle, and judges it between two fires, when nothing runs.
func (f *fleet) settleAndJudge() error {
	if err := f.advance(time.Now().Add(f.settleTime())); err != nil {
		return err
	}
	f.observe()
	f.judge.JudgeProblems(time.Now(), far)
	f.registerForgotten()
	f.resumeAll()
	f.settlePool()
	if err := f.advance(time.Now().Add(f.settleTime())); err != nil {
		return err
	}
	if err := f.settleClocks(); err != nil {
		return err
	}
	f.disableLast()
	if err := f.advance(time.Now().Add(f.settleTime())); err != nil {
		return err
	}
	middle := time.Now().Truncate(f.Every).Add(f.Every + f.Every - time.Second)
	if err := f.advance(middle); err != nil {
		return err
	}
	f.observe()
	if f.tap != nil {
		f.tap(nil, nil, true)
	}
	f.judge.JudgeSettled(time.Now(), f.slack())
	f.judgeAccepted()
	if err := f.restorePool(); err != nil {
		return err
	}
	return f.deleteAllDefined()
}

// settleClocks ends the waiting of shards whose watermarks a wrong clock has raised: operators reset their jobs,
// or the time of the watermarks passes.
func (f *fleet) settleClocks() error {
	if f.Wrong == 0 {
		return nil
	}
	if f.Operators && f.rng.IntN(2) == 0 {
		f.resetWaiting()
		return f.advance(time.Now().Add(f.settleTime()))
	}
	return f.advance(time.Now().Add(f.Wrong))
}

// slack is how long a fire may have been due without a claim when the fleet is judged.
func (f *fleet) slack() time.Duration {
	return f.Every/4 + 4*f.Jitter + 2*f.Clocks
}

// far is how far ahead a shard's watermark may be without a problem in the plan.
const far = 20 * time.Second

// settleTime is long enough to elect leaders, assign shards, observe triggers and resumed jobs, and run missed
// fires, of which there are fewer after a short time with faults. Jobs with short intervals make idle time dear.
func (f *fleet) settleTime() time.Duration {
	return min(10*time.Minute, max(10*f.Every, f.For/2, 90*time.Second))
}

// shutDownAndJudge shuts all processes down and judges the counts in the records.
func (f *fleet) shutDownAndJudge() error {
	for _, p := range f.processes {
		if p.stopped.IsZero() {
			p.leave()
		}
	}
	for _, p := range f.processes {
		<-p.done
		p.judgeEnd()
	}
	time.Sleep(max(stubborn, f.Long)) // handlers that ignore the drain return, and their processes leave
	for _, p := range f.processes {
		if err := p.client.Close(context.Background()); err != nil {
			return fmt.Errorf("close %s: %w", p.clientName, err)
		}
	}
	if err := f.console.Close(context.Background()); err != nil {
		return fmt.Errorf("close the operator's client: %w", err)
	}
	if err := f.closeDefiners(); err != nil {
		return err
	}
	f.observe()
	f.judge.JudgeCounts()
	f.judge.JudgePools()
	return nil
}

// schedule adds an action to the agenda, a while from now.
func (f *fleet) schedule(d time.Duration, do func() error) {
	f.actions++
	f.agenda.Push(action{time.Now().Add(d), f.actions, do})
}

// advance performs the actions on the agenda until an instant.
func (f *fleet) advance(until time.Time) error {
	for f.agenda.Len() > 0 && f.agenda.First().at.Before(until) {
		a := f.agenda.Pop()
		time.Sleep(time.Until(a.at))
		if err := a.do(); err != nil {
			return err
		}
	}
	time.Sleep(time.Until(until))
	return nil
}

// action is an entry of the agenda.
type action struct {
	at    time.Time
	order int
	do    func() error
}

type byTime struct{}

func (byTime) Before(a, b action) bool {
	return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.order, b.order)) < 0
}

func (byTime) Place(action) *int { return nil }
