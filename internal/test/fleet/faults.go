package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rota-dev/rota/conformance/tcpproxy"
	"github.com/rota-dev/rota/registry"
)

// Faults injects faults into a fleet, and measures the effects.
type Faults struct {
	*Fleet
	Rand *rand.Rand

	LastFault     string          // the last fault, for messages
	LateBytes     int64           // bytes of requests that reached the store after their session expired
	TimesToExpire []time.Duration // from a kill to the end of the session
	TimesToRerun  []time.Duration // from the end of a session to the claim of its runs, without faults of the store
	TimesToLeave  []time.Duration // from the signal to leave to a run elsewhere, for each shard of the process
	TimesToJoin   []time.Duration // from the start of a process's joining to its first run
}

// recovery bounds the time in which a fleet becomes whole again on a busy machine, in addition to the TTL.
const recovery = time.Minute

// awaitWhole waits until the fleet is whole.
func (f *Faults) awaitWhole(ctx context.Context) error { return f.awaitWholeOf(ctx, f.Instances) }

// awaitWholeOf waits until the fleet is whole with the given number of processes.
func (f *Faults) awaitWholeOf(ctx context.Context, instances int) error {
	what := fmt.Sprintf("a fleet of %d processes becomes whole", instances)
	return f.Until(ctx, what, f.TTL+recovery, func() bool { return f.Judge.IsWhole(instances) })
}

// suspendPromises suspends the promises about time for as long as a fault may have effects.
func (f *Faults) suspendPromises() { f.Judge.Disturb("", 2*f.TTL+20*time.Second) }

func (f *Faults) addNote(format string, args ...any) {
	f.Judge.Report().AddNote(time.Now(), fmt.Sprintf(format, args...))
}

// noteFault notes a fault that is about to be injected.
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

// describe returns the client name of a process, and whether it leads.
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

// killOne kills a process (SIGKILL) during its runs. Every other time the replies to its claims are held back
// before, so that their outcome is unknown to it.
func (f *Faults) killOne(ctx context.Context) error {
	slot, p, id, err := f.pickProcess()
	if err != nil {
		return err
	}
	f.suspendPromises()
	fire := f.sleepUntilFire(5 * time.Millisecond)
	what := ""
	if f.Rand.IntN(2) == 0 {
		what = " with replies in flight"
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

// pauseOne stops a process (SIGSTOP) during its runs until its session has expired, and continues it. Every other
// time claims are in flight meanwhile, which reach the store after the end of the session.
func (f *Faults) pauseOne(ctx context.Context) error {
	_, p, id, err := f.pickProcess()
	if err != nil {
		return err
	}
	f.suspendPromises()
	f.Judge.ExpectForcedExpiry(p.Instance) // a stopped process cannot end its contexts in time
	fire := f.sleepUntilFire(5 * time.Millisecond)
	what, release := "", func() {}
	if f.Rand.IntN(2) == 0 {
		what, release = " with claims in flight", p.Hold(tcpproxy.ToServer)
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

// cuts are the kinds of cuts.
var cuts = []struct {
	what string
	hold func(*Process) (release func())
}{
	{"both ways", (*Process).CutOff},
	{"on the way to the store", func(p *Process) func() { return p.Hold(tcpproxy.ToServer) }},
	{"on the way back", func(p *Process) func() { return p.Hold(tcpproxy.ToClient) }},
}

// cutOff cuts a process off, both ways or one way, until after its session has expired.
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

// cutOffShortly cuts a process off for a quarter of the TTL. That must have no effect, unless the machine itself
// stalls for as long.
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
		return fmt.Errorf("a cut of %s for a quarter of the TTL led to %d failovers and %d elections; session ended: %v; last lines of its log:\n%s",
			p.Client, failovers, terms, ended, p.lastLog())
	}
	return f.awaitWhole(ctx)
}

// killMember kills a member of the store, its leader or a follower, and starts it again after a while.
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

// restartMember restarts a member and waits until the fleet is whole.
func (f *Faults) restartMember(ctx context.Context, m Member) error {
	f.suspendPromises()
	starting, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	if err := m.Restart(starting); err != nil {
		return err
	}
	return f.awaitWhole(ctx)
}

// awaitExpiries waits until the store has expired the sessions that were lost while it did not answer, and the
// fleet is whole without them.
func (f *Faults) awaitExpiries(ctx context.Context) error {
	if err := f.ObserveFor(ctx, f.TTL+time.Second); err != nil {
		return err
	}
	return f.awaitWhole(ctx)
}
