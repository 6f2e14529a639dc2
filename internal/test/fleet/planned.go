package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/test/judge"
)

// recordFirstRuns records, until stop is called, when the first run of each shard began that passes a filter.
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

// leaveAndJoin shuts a process down and starts another when it has left, and measures how long their shards do not
// run. The fleet's schedule must be dense and its runs short, or the schedule would be measured.
func (f *Faults) leaveAndJoin(ctx context.Context) error {
	slot, p, _, err := f.pickProcess()
	if err != nil {
		return err
	}
	var owned []judge.Shard
	err = f.Until(ctx, "the process that is to leave owns its share", recovery, func() bool {
		owned = f.Judge.OwnedShards(p.Instance)
		return len(owned) >= f.share()
	})
	if err != nil {
		return err
	}
	// The schedule of small jobs is not dense.
	owned = slices.DeleteFunc(owned, func(s judge.Shard) bool {
		return strings.HasPrefix(s.Job, smallJobPrefix) || strings.HasPrefix(s.Job, pooledPrefix)
	})
	f.noteFault("%s leaves and another process joins", f.describe(p))
	began := time.Now()
	begun, stop := f.recordFirstRuns(func(c *judge.Call) bool { return c.Client != p.Client && c.Start.After(began) })
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
	if err := f.Until(ctx, "the shards of the leaving process run elsewhere", leaving+recovery, taken); err != nil {
		return err
	}
	for _, s := range owned {
		f.TimesToLeave = append(f.TimesToLeave, begun[s].Sub(began))
	}
	if err := p.Leave(leaving); err != nil {
		return err
	}
	if err := f.awaitWholeOf(ctx, f.Instances-1); err != nil {
		return err
	}
	return f.joinOne(ctx, slot)
}

// joinOne starts a process in a slot, and measures the time to its first run.
func (f *Faults) joinOne(ctx context.Context, slot int) error {
	if err := f.Replace(slot); err != nil {
		return err
	}
	p := f.Process(slot)
	begun, stop := f.recordFirstRuns(func(c *judge.Call) bool {
		return c.Client == p.Client && !strings.HasPrefix(c.Job, smallJobPrefix)
	})
	defer stop()
	if err := f.Until(ctx, "the process that joined runs a shard", recovery, func() bool { return len(begun) > 0 }); err != nil {
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

// restartFleet replaces each process after a drain, one after the other.
func (f *Faults) restartFleet(ctx context.Context) error {
	f.noteFault("restart the fleet's processes")
	for slot := range f.Instances {
		p := f.Process(slot)
		f.addNote("%s leaves", f.describe(p))
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

// restartNamed ends each process, some by a drain and some by a kill, and starts it again under its name, one after
// the other. No shard may move to another instance.
func (f *Faults) restartNamed(ctx context.Context) error {
	err := f.Until(ctx, "each process owns its share", recovery, func() bool {
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
			f.addNote("%s leaves", f.describe(p))
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
		return fmt.Errorf("%d shards moved to other instances", moved)
	}
	return nil
}

// deploy replaces each process, one after the other, during runs that outlast its drain. The runs must be handed
// back, and none of them may count as failed.
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
	// The end of a small job's run is recorded with the next claim, so those are never all idle.
	var lengthy []string
	for i := range f.Jobs {
		lengthy = append(lengthy, jobName(i))
	}
	err := f.Until(ctx, "the handed back runs end", recovery, func() bool { return f.Judge.IsIdle(lengthy...) })
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

// changeTotal changes the total of a job three times while it fires, each time through one process, and waits until
// all shards of the last total run.
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
