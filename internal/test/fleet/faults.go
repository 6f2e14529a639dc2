package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/test/tcpproxy"
	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/registry"
)

// Faults strikes a fleet, and measures what comes of it.
type Faults struct {
	*Fleet
	Rand *rand.Rand

	LastFault     string          // the last fault
	LateBytes     int64           // bytes of dead sessions' requests that reached the store
	TimesToExpire []time.Duration // from a kill to the end of the session
	TimesToRerun  []time.Duration // from the end of a session, with nothing wrong with the store, to the claim of what it ran
	TimesToLeave  []time.Duration // from telling a process to leave to a run elsewhere, for each of its shards
	TimesToJoin   []time.Duration // from when a process was about to join to its first run
}

// recovery is how long a fleet may take to be whole again, apart from sessions' ends, on a
// busy machine.
const recovery = time.Minute

// awaitWhole waits until the fleet is whole.
func (f *Faults) awaitWhole(ctx context.Context) error { return f.awaitWholeOf(ctx, f.Instances) }

// awaitWholeOf waits until so many processes have all that there is.
func (f *Faults) awaitWholeOf(ctx context.Context, instances int) error {
	what := fmt.Sprintf("%d processes make a whole fleet", instances)
	return f.Until(ctx, what, f.TTL+recovery, func() bool { return f.Judge.IsWhole(instances) })
}

// suspendPromises tells the judge that for a while nothing needs to be in time.
func (f *Faults) suspendPromises() { f.Judge.Disturb("", 2*f.TTL+20*time.Second) }

func (f *Faults) addNote(format string, args ...any) {
	f.Judge.Report().AddNote(time.Now(), fmt.Sprintf(format, args...))
}

// noteFault is note for what is about to befall the fleet.
func (f *Faults) noteFault(format string, args ...any) {
	f.LastFault = fmt.Sprintf(format, args...)
	f.addNote("%s", f.LastFault)
}

// awaitSessionEnd waits until a session has ended, and returns when it did.
func (f *Faults) awaitSessionEnd(ctx context.Context, id registry.SessionID) (at time.Time, err error) {
	err = f.Until(ctx, fmt.Sprintf("session %s ends", id), f.TTL+recovery, func() (ok bool) {
		at, ok = f.Judge.SessionEnd(id)
		return ok
	})
	return at, err
}

// pickProcess returns any process, and its session.
func (f *Faults) pickProcess() (slot int, p *Process, id registry.SessionID, err error) {
	slot = f.Rand.IntN(f.Instances)
	p = f.Process(slot)
	id, err = f.liveSession(p)
	return slot, p, id, err
}

// liveSession returns the session of a process.
func (f *Faults) liveSession(p *Process) (registry.SessionID, error) {
	id, ok := f.Judge.LiveSession(p.Instance)
	if !ok {
		return "", fmt.Errorf("%s has no session", p.Client)
	}
	return id, nil
}

// describe tells of a process whether it leads.
func (f *Faults) describe(p *Process) string {
	if p.Instance == f.Judge.Leader() {
		return p.Client + " (the leader)"
	}
	return p.Client
}

// drawDuration returns a time of less than d.
func (f *Faults) drawDuration(d time.Duration) time.Duration {
	return time.Duration(f.Rand.Int64N(int64(d)))
}

// killOne kills a process (SIGKILL) while it runs what it has claimed or, every other time,
// with claims of its on their way: their requests have been sent, and no reply has reached
// it.
func (f *Faults) killOne(ctx context.Context) error {
	slot, p, id, err := f.pickProcess()
	if err != nil {
		return err
	}
	f.suspendPromises()
	fire := f.sleepUntilFire(5 * time.Millisecond)
	what := ""
	if f.Rand.IntN(2) == 0 {
		what = " with replies on their way"
		p.Hold(tcpproxy.ToClient)
	}
	time.Sleep(time.Until(fire) + f.drawDuration(30*time.Millisecond))
	f.noteFault("kill %s%s", f.describe(p), what)
	killed := time.Now()
	p.Kill()
	at, err := f.awaitSessionEnd(ctx, id)
	if err != nil {
		return err
	}
	f.TimesToExpire = append(f.TimesToExpire, at.Sub(killed))
	if err := f.awaitWholeOf(ctx, f.Instances-1); err != nil {
		return err
	}
	if err := f.Replace(slot); err != nil {
		return err
	}
	return f.awaitWhole(ctx)
}

// pauseOne stops a process (SIGSTOP) for longer than its session lasts, while it runs what it
// has claimed or, every other time, with claims on their way that reach the store only when
// the session has ended. Then it lets it go on.
func (f *Faults) pauseOne(ctx context.Context) error {
	_, p, id, err := f.pickProcess()
	if err != nil {
		return err
	}
	f.suspendPromises()
	f.Judge.ExpectForcedExpiry(p.Instance) // it cannot be told in time
	fire := f.sleepUntilFire(5 * time.Millisecond)
	what, release := "", func() {}
	if f.Rand.IntN(2) == 0 {
		what, release = " with claims on their way", p.Hold(tcpproxy.ToServer)
	}
	defer release()
	time.Sleep(time.Until(fire) + 5*time.Millisecond + f.drawDuration(30*time.Millisecond))
	f.noteFault("pause %s%s", f.describe(p), what)
	if err := p.Pause(); err != nil {
		return err
	}
	_, err = f.awaitSessionEnd(ctx, id)
	if err == nil {
		sent := p.Sent()
		release()
		err = f.ObserveFor(ctx, 200*time.Millisecond)
		f.LateBytes += p.Sent() - sent
	}
	f.addNote("resume %s", p.Client)
	if rerr := p.Resume(); err == nil {
		err = rerr
	}
	if err != nil {
		return err
	}
	return f.awaitWhole(ctx)
}

// cuts are what a cut may hold.
var cuts = []struct {
	what string
	hold func(*Process) (release func())
}{
	{"both ways", (*Process).CutOff},
	{"on the way to the store", func(p *Process) func() { return p.Hold(tcpproxy.ToServer) }},
	{"on the way back", func(p *Process) func() { return p.Hold(tcpproxy.ToClient) }},
}

// cutOff cuts a process off, both ways or one way, for longer than its session lasts.
func (f *Faults) cutOff(ctx context.Context) error {
	_, p, id, err := f.pickProcess()
	if err != nil {
		return err
	}
	f.suspendPromises()
	c := cuts[f.Rand.IntN(len(cuts))]
	fire := f.sleepUntilFire(5 * time.Millisecond)
	time.Sleep(time.Until(fire) + f.drawDuration(30*time.Millisecond))
	f.noteFault("cut %s off %s", f.describe(p), c.what)
	heal := c.hold(p)
	defer heal()
	if _, err := f.awaitSessionEnd(ctx, id); err != nil {
		return err
	}
	if err := f.ObserveFor(ctx, f.drawDuration(f.TTL/2)); err != nil {
		return err
	}
	f.addNote("heal %s", p.Client)
	heal()
	return f.awaitWhole(ctx)
}

// cutOffShortly cuts a process off for a quarter of what its session lasts. Nothing may come of
// it, unless the machine itself stands still for as long.
func (f *Faults) cutOffShortly(ctx context.Context) error {
	_, p, id, err := f.pickProcess()
	if err != nil {
		return err
	}
	before, answers := *f.Judge.Report(), len(f.answers)
	f.suspendPromises()
	f.noteFault("cut %s off for %v", f.describe(p), f.TTL/4)
	heal := p.CutOff()
	time.Sleep(f.TTL / 4)
	heal()
	f.addNote("heal %s", p.Client)
	if err := f.ObserveFor(ctx, f.TTL); err != nil {
		return err
	}
	after := f.Judge.Report()
	_, ended := f.Judge.SessionEnd(id)
	failovers, terms := after.Failovers-before.Failovers, after.Terms-before.Terms
	if (ended || failovers > 0 || terms > 0) && slices.Max(f.answers[answers:]) < f.TTL/4 {
		return fmt.Errorf("a cut of %s shorter than its TTL led to %d failovers and %d elections; session lost: %v; it logged last:\n%s",
			p.Client, failovers, terms, ended, p.lastLog())
	}
	return f.awaitWhole(ctx)
}

// killMember kills a member of the store, its leader or another, and starts it again when the
// fleet has gone on for a while without it.
func (f *Faults) killMember(ctx context.Context) error {
	finding, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	leader, err := f.Server.Leader(finding)
	if err != nil {
		return err
	}
	members := f.Server.Members()
	i := f.Rand.IntN(len(members))
	what := "a follower"
	if f.Rand.IntN(2) == 0 {
		what = "the leader"
	}
	for (members[i] == leader) != (what == "the leader") {
		i = (i + 1) % len(members)
	}
	f.suspendPromises()
	f.noteFault("kill member %d of the store, %s", i+1, what)
	members[i].Kill()
	if err := f.ObserveFor(ctx, f.TTL+f.drawDuration(f.TTL)); err != nil {
		return err
	}
	if err := f.awaitWhole(ctx); err != nil {
		return err
	}
	f.addNote("start member %d", i+1)
	if err := f.restartMember(ctx, members[i]); err != nil {
		return err
	}
	return f.awaitExpiries(ctx)
}

// restartServers restarts the members of the store with their data, one after the other.
func (f *Faults) restartServers(ctx context.Context) error {
	f.noteFault("restart the store's members")
	for i, m := range f.Server.Members() {
		f.addNote("restart member %d", i+1)
		if err := f.restartMember(ctx, m); err != nil {
			return err
		}
	}
	return f.awaitExpiries(ctx)
}

// restartMember restarts a member, and returns when the fleet is whole.
func (f *Faults) restartMember(ctx context.Context, m *testserver.Member) error {
	f.suspendPromises()
	starting, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	if err := m.Restart(starting); err != nil {
		return err
	}
	return f.awaitWhole(ctx)
}

// awaitExpiries waits until the fleet is whole without sessions that were given up while the
// store did not answer, and which it takes for alive that long.
func (f *Faults) awaitExpiries(ctx context.Context) error {
	if err := f.ObserveFor(ctx, f.TTL+time.Second); err != nil {
		return err
	}
	return f.awaitWhole(ctx)
}
