package fleet

import (
	"context"
	"fmt"
	"time"
)

// fillStore makes the store refuse writes until sessions of processes that have died are over. Every other time a process is killed
// meanwhile.
func (f *Faults) fillStore(ctx context.Context) error {
	slot, p, id, err := f.pickProcess()
	if err != nil {
		return err
	}
	kills := f.Rand.IntN(2) == 0
	f.suspendPromises()
	fire := f.sleepUntilFire(5 * time.Millisecond)
	time.Sleep(time.Until(fire) + f.drawDuration(30*time.Millisecond))
	f.noteFault("fill the store")
	if err := f.setFull(ctx, true); err != nil {
		return err
	}
	if kills {
		f.noteFault("fill the store, kill %s", f.describe(p))
		p.Kill()
		_, err = f.awaitSessionEnd(ctx, id)
	}
	if err == nil {
		err = f.ObserveFor(ctx, f.TTL+f.drawDuration(f.TTL))
	}
	f.suspendPromises()
	f.addNote("free the store")
	if free := f.setFull(context.WithoutCancel(ctx), false); err == nil {
		err = free
	}
	if err != nil {
		return err
	}
	if kills {
		if err := f.awaitWholeOf(ctx, f.Instances-1); err != nil {
			return err
		}
		if err := f.Replace(slot); err != nil {
			return err
		}
	}
	return f.awaitWhole(ctx)
}

// setFull makes the store refuse writes, or accept them again. It tries again for a while, since a store may be busy.
func (f *Faults) setFull(ctx context.Context, full bool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	for {
		if err = f.Server.SetFull(ctx, full); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("make the store full: %v: %w", full, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
