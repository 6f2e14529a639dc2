package fleet

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/test/judge"
)

// recordFirstRuns has the first runs that a filter lets pass noted, by shard, until stop.
func (f *Faults) recordFirstRuns(pass func(*judge.Call) bool) (first map[judge.Shard]time.Time, stop func()) {
	first = map[judge.Shard]time.Time{}
	f.began = func(c *judge.Call) {
		s := judge.Shard{Job: c.Job, Number: c.Shard}
		if t, ok := first[s]; pass(c) && (!ok || c.Start.Before(t)) {
			first[s] = c.Start
		}
	}
	return first, func() { f.began = nil }
}

// leaveAndJoin tells a process to leave in good order, and another to join when it has left, and
// measures how long their shards stand still. A shard whose fires are far apart would be
// measured by its schedule: the fleet's has to be dense, its runs short.
func (f *Faults) leaveAndJoin(ctx context.Context) error {
	slot, p, _, err := f.pickProcess()
	if err != nil {
		return err
	}
	var owned []judge.Shard
	err = f.Until(ctx, "one who is to leave has shards", recovery, func() bool {
		owned = f.Judge.OwnedShards(p.Instance)
		return len(owned) == f.share()
	})
	if err != nil {
		return err
	}
	f.noteFault("have %s leave and another join", f.describe(p))
	told := time.Now()
	begun, stop := f.recordFirstRuns(func(c *judge.Call) bool { return c.Client != p.Client && c.Start.After(told) })
	defer stop()
	p.Stop()
	taken := func() bool {
		for _, s := range owned {
			if _, ok := begun[s]; !ok {
				return false
			}
		}
		return true
	}
	if err := f.Until(ctx, "the shards of one who leaves run elsewhere", leaving+recovery, taken); err != nil {
		return err
	}
	for _, s := range owned {
		f.TimesToLeave = append(f.TimesToLeave, begun[s].Sub(told))
	}
	if err := p.Leave(leaving); err != nil {
		return err
	}
	if err := f.awaitWholeOf(ctx, f.Instances-1); err != nil {
		return err
	}
	return f.joinOne(ctx, slot)
}

// joinOne starts a process in a slot, and measures how long it takes from there to its first
// run.
func (f *Faults) joinOne(ctx context.Context, slot int) error {
	if err := f.Replace(slot); err != nil {
		return err
	}
	p := f.Process(slot)
	begun, stop := f.recordFirstRuns(func(c *judge.Call) bool { return c.Client == p.Client })
	defer stop()
	if err := f.Until(ctx, "one who joined runs a shard", recovery, func() bool { return len(begun) > 0 }); err != nil {
		return err
	}
	first := time.Now()
	for _, t := range begun {
		if t.Before(first) {
			first = t
		}
	}
	f.TimesToJoin = append(f.TimesToJoin, first.Sub(p.joined()))
	return f.awaitWhole(ctx)
}

// restartFleet has each process leave in good order and another come in its place, one
// after the other.
func (f *Faults) restartFleet(ctx context.Context) error {
	f.noteFault("restart the fleet's processes")
	for slot := range f.Instances {
		p := f.Process(slot)
		f.addNote("have %s leave", f.describe(p))
		if err := p.Leave(leaving); err != nil {
			return err
		}
		if err := f.Replace(slot); err != nil {
			return err
		}
		if err := f.awaitWhole(ctx); err != nil {
			return err
		}
	}
	return nil
}

// restartNamed has each process end, some in good order and some not, and come back under its
// name, one after the other. No shard goes to another.
func (f *Faults) restartNamed(ctx context.Context) error {
	err := f.Until(ctx, "each process has its share", recovery, func() bool {
		return !slices.ContainsFunc(f.slots, func(p *Process) bool { return len(f.Judge.OwnedShards(p.Instance)) < f.share() })
	})
	if err != nil {
		return err
	}
	f.noteFault("restart the fleet's processes under their names")
	r := f.Judge.Report()
	before := r.Moves + r.Failovers - r.KeptByName
	for slot := range f.Instances {
		p := f.Process(slot)
		id, err := f.liveSession(p)
		if err != nil {
			return err
		}
		if f.Rand.IntN(2) == 0 {
			f.addNote("have %s leave", f.describe(p))
			if err := p.Leave(leaving); err != nil {
				return err
			}
		} else {
			f.suspendPromises()
			f.addNote("kill %s", f.describe(p))
			p.Kill()
		}
		if err := f.Replace(slot); err != nil {
			return err
		}
		if _, err := f.awaitSessionEnd(ctx, id); err != nil { // until then the name is taken
			return err
		}
		if err := f.awaitWhole(ctx); err != nil {
			return err
		}
	}
	if moved := r.Moves + r.Failovers - r.KeptByName - before; moved > 0 {
		return fmt.Errorf("%d shards changed hands", moved)
	}
	return nil
}

// deploy replaces each process, one after the other, in the middle of runs that outlast its
// drain. Their runs are handed back, and none of them counts as failed.
func (f *Faults) deploy(ctx context.Context) error {
	fire := f.sleepUntilFire(5 * time.Millisecond)
	time.Sleep(time.Until(fire) + 100*time.Millisecond + f.drawDuration(300*time.Millisecond))
	if err := f.Observe(ctx); err != nil {
		return err
	}
	returned := f.Judge.Report().HandedBack
	if err := f.restartFleet(ctx); err != nil {
		return err
	}
	err := f.Until(ctx, "the runs that were handed back end", recovery, func() bool { return f.Judge.IsIdle() })
	if err != nil {
		return err
	}
	returned = f.Judge.Report().HandedBack - returned
	f.LastFault = fmt.Sprintf("deploy: %d runs handed back", returned)
	if failed := f.Judge.CountFailed(); returned == 0 || failed > 0 {
		return fmt.Errorf("%d runs were handed back, and %d count as failed", returned, failed)
	}
	return nil
}

// changeTotal changes the total of a job three times while it fires, by processes that each know
// of a new definition alone, and waits until the last total runs.
func (f *Faults) changeTotal(ctx context.Context) error {
	var totals []int
	for range 3 {
		total := 1 + f.Rand.IntN(16)
		for total == f.size.Shards {
			total = 1 + f.Rand.IntN(16)
		}
		totals = append(totals, total)
		f.size = size{Revision: f.size.Revision + 1, Shards: total}
		f.noteFault("change the total to %d", total)
		if err := f.Process(f.Rand.IntN(f.Instances)).resize(f.size); err != nil {
			return err
		}
		if err := f.ObserveFor(ctx, f.drawDuration(8*f.Often)); err != nil {
			return err
		}
	}
	begun, stop := f.recordFirstRuns(func(c *judge.Call) bool { return c.Job == resizedJob && c.Shards == f.size.Shards })
	defer stop()
	all := func() bool { return len(begun) == f.size.Shards }
	if err := f.Until(ctx, "the new total runs", f.TTL+recovery, all); err != nil {
		return err
	}
	f.LastFault = fmt.Sprintf("change the total to %v", totals)
	return f.awaitWhole(ctx)
}
