package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rota-dev/rota/internal/tcpproxy"
	"github.com/rota-dev/rota/registry"
)

// Faults strikes a fleet, and counts what came of it.
type Faults struct {
	*Fleet
	Rand *rand.Rand

	Kills, Pauses, Cuts, Restarts int
	Late                          int64           // bytes of dead sessions' requests that reached the store
	Gone                          []time.Duration // from a kill to the end of the session
	Again                         []time.Duration // from there to the claims of what was running
}

// recovery is how long a fleet may take to be whole again, apart from sessions' ends.
const recovery = 20 * time.Second

// whole waits until the fleet is whole.
func (f *Faults) whole(ctx context.Context) error {
	return f.Until(ctx, "the fleet is whole", f.TTL+recovery, func() bool { return f.Judge.Whole(f.Instances) })
}

// disturb tells the judge that for a while nothing needs to be in time.
func (f *Faults) disturb() { f.Judge.Disturb("", 2*f.TTL+recovery) }

func (f *Faults) note(format string, args ...any) {
	f.Judge.Report().Note(time.Now(), fmt.Sprintf(format, args...))
}

// gone waits until a session has ended, and returns when it did.
func (f *Faults) gone(ctx context.Context, id registry.SessionID) (at time.Time, err error) {
	err = f.Until(ctx, fmt.Sprintf("session %s ends", id), f.TTL+recovery, func() (ok bool) {
		at, ok = f.Judge.End(id)
		return ok
	})
	return at, err
}

// session returns the live session of a process.
func (f *Faults) session(p *Process) (registry.SessionID, error) {
	id, ok := f.Judge.Session(p.Instance)
	if !ok {
		return "", fmt.Errorf("%s has no session", p.Client)
	}
	return id, nil
}

// KillLeader kills the leader while claims of its are on their way: their requests have
// been sent, and no reply has reached it.
func (f *Faults) KillLeader(ctx context.Context) error {
	slot, ok := f.Leader()
	if !ok {
		return fmt.Errorf("nobody leads")
	}
	p := f.Process(slot)
	id, err := f.session(p)
	if err != nil {
		return err
	}
	f.disturb()
	fire := f.untilFire(5 * time.Millisecond)
	p.Hold(tcpproxy.ToClient)
	time.Sleep(time.Until(fire) + time.Duration(f.Rand.IntN(30_000))*time.Microsecond)
	f.note("kill %s, which leads", p.Client)
	killed := time.Now()
	p.Kill()
	f.Kills++
	before := len(f.Judge.Report().Rerun)
	at, err := f.gone(ctx, id)
	if err != nil {
		return err
	}
	f.Gone = append(f.Gone, at.Sub(killed))
	if err := f.Until(ctx, "what it ran is claimed by others", recovery, func() bool { return f.Judge.Whole(f.Instances - 1) }); err != nil {
		return err
	}
	f.Again = append(f.Again, f.Judge.Report().Rerun[before:]...)
	if err := f.Replace(slot); err != nil {
		return err
	}
	return f.whole(ctx)
}

// PauseLong stops a process for longer than its session lasts, with claims on their way
// that reach the store only when the session has ended, and then lets it go on.
func (f *Faults) PauseLong(ctx context.Context) error {
	p := f.Process(f.Rand.IntN(f.Instances))
	id, err := f.session(p)
	if err != nil {
		return err
	}
	f.disturb()
	f.Judge.Force(p.Instance) // it cannot be told in time
	fire := f.untilFire(5 * time.Millisecond)
	release := p.Hold(tcpproxy.ToServer)
	defer release()
	time.Sleep(time.Until(fire) + time.Duration(5_000+f.Rand.IntN(30_000))*time.Microsecond)
	f.note("pause %s", p.Client)
	if err := p.Pause(); err != nil {
		return err
	}
	f.Pauses++
	_, err = f.gone(ctx, id)
	if err == nil {
		sent := p.Sent()
		release()
		err = f.Pass(ctx, 200*time.Millisecond)
		f.Late += p.Sent() - sent
	}
	f.note("resume %s", p.Client)
	if rerr := p.Resume(); err == nil {
		err = rerr
	}
	if err != nil {
		return err
	}
	return f.whole(ctx)
}

// CutShort cuts a process off for a quarter of what its session lasts. Nothing may come of
// it.
func (f *Faults) CutShort(ctx context.Context) error {
	p := f.Process(f.Rand.IntN(f.Instances))
	id, err := f.session(p)
	if err != nil {
		return err
	}
	before := *f.Judge.Report()
	f.disturb()
	f.note("cut %s off", p.Client)
	heal := p.CutOff()
	time.Sleep(f.TTL / 4)
	heal()
	f.note("heal %s", p.Client)
	f.Cuts++
	if err := f.Pass(ctx, f.TTL); err != nil {
		return err
	}
	after := f.Judge.Report()
	_, ended := f.Judge.End(id)
	failovers, terms := after.Failovers-before.Failovers, after.Terms-before.Terms
	if ended || failovers > 0 || terms > 0 {
		return fmt.Errorf("a cut of %s shorter than its TTL led to %d failovers and %d elections; session lost: %v; it logged last:\n%s",
			p.Client, failovers, terms, ended, p.lastLog())
	}
	return f.whole(ctx)
}

// RestartServer restarts the store with its data.
func (f *Faults) RestartServer(ctx context.Context) error {
	f.disturb()
	f.note("restart the store")
	if err := f.Server.Restart(ctx); err != nil {
		return err
	}
	f.Restarts++
	// A process that gave its session up meanwhile lives on in the store for that long.
	if err := f.Pass(ctx, f.TTL+time.Second); err != nil {
		return err
	}
	return f.whole(ctx)
}

// Any does one of the above.
func (f *Faults) Any(ctx context.Context) error {
	return []func(context.Context) error{f.KillLeader, f.PauseLong, f.CutShort, f.RestartServer}[f.Rand.IntN(4)](ctx)
}
