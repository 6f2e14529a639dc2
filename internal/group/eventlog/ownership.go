package eventlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// OwnershipLog logs the shards that an incarnation gains and loses, one line for all jobs of a
// burst, and the loss of plans. A nil OwnershipLog logs nothing.
type OwnershipLog struct {
	collector
	reg   registry.Registry
	to    *slog.Logger
	tasks sync.WaitGroup

	owned     map[string]shardset.Set // by job, as in its latest plan
	before    map[string]shardset.Set // jobs that changed since the last line, as logged then
	lostPlans map[string]bool         // jobs whose plan was deleted or cannot be read while shards were owned
}

// NewOwnershipLog returns a log that writes to to, and reads lost plans from reg.
func NewOwnershipLog(reg registry.Registry, to *slog.Logger) *OwnershipLog {
	o := &OwnershipLog{
		reg: reg, to: to, owned: map[string]shardset.Set{}, before: map[string]shardset.Set{}, lostPlans: map[string]bool{},
	}
	o.take = o.takeChanges
	return o
}

// SetOwned records the shards of a job that its plan assigns to this incarnation.
func (o *OwnershipLog) SetOwned(job string, shards shardset.Set) {
	if o == nil {
		return
	}
	if o.lostPlans[job] {
		delete(o.lostPlans, job)
		o.to.Info("plan can be read again", "job", job, "shards", shorten(shards.String()))
	}
	if shards.Equal(o.owned[job]) {
		return
	}
	o.collect(func() {
		if _, changed := o.before[job]; !changed {
			o.before[job] = o.owned[job]
		}
		if o.owned[job] = shards; shards.IsZero() {
			delete(o.owned, job)
		}
	})
}

// LosePlan records that a plan was deleted, or that err keeps it from being read. Until the job has
// a readable plan again, this incarnation claims none of its shards.
func (o *OwnershipLog) LosePlan(ctx context.Context, job string, key registry.Key, err error) {
	if o == nil || o.lostPlans[job] || o.owned[job].IsZero() {
		return
	}
	o.lostPlans[job] = true
	shards := shorten(o.owned[job].String())
	if err != nil {
		o.logLoss(job, key, shards, err)
		return
	}
	o.tasks.Go(func() { // to a watch, a value that the registry cannot decode looks deleted
		_, err := o.reg.Get(ctx, key, registry.ReadOptions{Fresh: true})
		if ctx.Err() == nil {
			o.logLoss(job, key, shards, err)
		}
	})
}

func (o *OwnershipLog) logLoss(job string, key registry.Key, shards string, err error) {
	attrs := []any{"job", job, "shards", shards, "key", string(key)}
	switch {
	case err == nil:
		o.to.Info("plan was deleted, and stored again", attrs...)
		return
	case errors.Is(err, registry.ErrNotFound): // also by Forget and by Retire; the leader logs a plan that it restores
		o.to.Info("plan was deleted; this instance claims none of the job's shards", attrs...)
		return
	}
	o.to.Error("plan cannot be read; this instance claims none of the job's shards", append(attrs, "error", err,
		"next", "the instance claims again once the plan can be read; runs in progress continue",
		"remedy", "restore the earlier value, or delete the key: the leader then plans the job anew")...)
}

// Close logs the collected changes and waits for the reads of LosePlan, whose context must have
// ended.
func (o *OwnershipLog) Close() {
	if o == nil {
		return
	}
	o.finish()
	o.tasks.Wait()
}

// Total returns the number of owned shards.
func (o *OwnershipLog) Total() (n int) {
	if o == nil {
		return 0
	}
	for _, shards := range o.owned {
		n += shards.Len()
	}
	return n
}

// takeChanges clears the changes since the last line, and returns what logs them.
func (o *OwnershipLog) takeChanges() (log func()) {
	var gained, lost []string
	var gains, losses int
	for _, job := range slices.Sorted(maps.Keys(o.before)) {
		if more := o.owned[job].Minus(o.before[job]); !more.IsZero() {
			gains += more.Len()
			gained = append(gained, fmt.Sprintf("%s %s", job, more))
		}
		if less := o.before[job].Minus(o.owned[job]); !less.IsZero() {
			losses += less.Len()
			lost = append(lost, fmt.Sprintf("%s %s", job, less))
		}
	}
	clear(o.before)
	if gains+losses == 0 {
		return nil // gained and lost within the burst
	}
	attrs := []any{"gained", gains, "lost", losses, "owned", o.Total()}
	if gains > 0 {
		attrs = append(attrs, "gained_shards", joinTexts(gained, "job"))
	}
	if losses > 0 {
		attrs = append(attrs, "lost_shards", joinTexts(lost, "job"))
	}
	return func() { o.to.Info("shards changed", attrs...) }
}
