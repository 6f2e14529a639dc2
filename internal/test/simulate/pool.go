package simulate

import (
	"context"
	"time"
)

// poolName is the pool of all jobs that have one.
const poolName = "db"

// openPool sets the size of the pool, and schedules changes of it.
func (f *fleet) openPool() error {
	if f.Pool == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), f.TTL)
	defer cancel()
	f.schedule(2*f.Every, f.changePool)
	return f.operator.SetPool(ctx, poolName, f.Pool)
}

// changePool lets an operator change the size of the pool for a while, or delete it, and schedules the next change.
func (f *fleet) changePool() error {
	if !time.Now().Before(f.until) {
		return nil
	}
	f.schedule(time.Duration((2+6*f.rng.Float64())*float64(f.Every)), f.changePool)
	size, last := f.rng.IntN(f.Pool+3)-1, time.Duration((0.2+f.rng.Float64())*float64(f.Every))
	f.setPool(size)
	f.schedule(last, func() error {
		f.setPool(f.Pool)
		return nil
	})
	return nil
}

// setPool sets the size of the pool. A negative one deletes it.
func (f *fleet) setPool(size int) {
	f.report.Actions["pool resized"]++
	f.addNote("the pool has size %d", size)
	f.callAsync(func(ctx context.Context) {
		if size < 0 {
			_ = f.operator.DeletePool(ctx, poolName)
		} else {
			_ = f.operator.SetPool(ctx, poolName, size)
		}
	})
}

// settlePool makes the pool so large that the runs that are owed do not wait for each other for long.
func (f *fleet) settlePool() {
	if f.Pool > 0 {
		f.setPool(f.Pool + 4*f.Jobs*f.Shards + 4*f.Defined)
	}
}

// restorePool makes the pool as small as it was in a fleet that no fault disturbs any more, which runs so for a while.
func (f *fleet) restorePool() error {
	if f.Pool == 0 {
		return nil
	}
	f.setPool(f.Pool)
	return f.advance(time.Now().Add(5 * f.Every))
}
