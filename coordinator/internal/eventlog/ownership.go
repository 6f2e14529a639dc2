package eventlog

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// OwnershipLog logs which shards an incarnation gains and loses, in one line for all jobs that
// a change of the fleet concerns, and plans that cannot be read. A nil one logs nothing.
type OwnershipLog struct {
	collector
	reg   registry.Registry
	to    *slog.Logger
	tasks sync.WaitGroup

	owned     map[string]shardset.Set // by job, as in the latest plan
	before    map[string]shardset.Set // of the jobs that have changed, as logged last
	lostPlans map[string]bool         // jobs whose plan cannot be read or is gone, of which shards were owned
}

func NewOwnershipLog(reg registry.Registry, to *slog.Logger) *OwnershipLog {
	o := &OwnershipLog{
		reg: reg, to: to, owned: map[string]shardset.Set{}, before: map[string]shardset.Set{}, lostPlans: map[string]bool{},
	}
	o.collector.log = o.logChanges
	return o
}

// Set records the shards of a job that its plan gives to this incarnation.
func (o *OwnershipLog) SetOwned(job string, shards shardset.Set) {
	if o == nil {
		return
	}
	if o.lostPlans[job] {
		delete(o.lostPlans, job)
		o.to.Info("plan can be read again", "job", job, "shards", Shorten(shards.String()))
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

// Lose records that a plan is gone, or that it cannot be read because of err. The shards that
// this incarnation owned by it are not claimed until there is another plan.
func (o *OwnershipLog) LosePlan(ctx context.Context, job string, key registry.Key, err error) {
	if o == nil || o.lostPlans[job] || o.owned[job].IsZero() {
		return
	}
	o.lostPlans[job] = true
	shards := Shorten(o.owned[job].String())
	if err != nil {
		o.logLoss(job, key, shards, err)
		return
	}
	o.tasks.Go(func() { // a registry leaves out keys that it cannot decode, as if they had gone
		_, err := o.reg.Get(ctx, key, registry.ReadOptions{Fresh: true})
		if ctx.Err() == nil {
			o.logLoss(job, key, shards, err)
		}
	})
}

func (o *OwnershipLog) logLoss(job string, key registry.Key, shards string, err error) {
	attrs := []any{"job", job, "shards", shards, "key", string(key)}
	if err == nil {
		o.to.Warn("plan was deleted by another hand and is there again", attrs...)
		return
	}
	o.to.Error("plan cannot be read: the job's shards stand still here", append(attrs, "error", err,
		"next", "nothing of the job is claimed until its plan can be read; runs that have begun go on",
		"remedy", "write the record back as it was, or delete the key: then the leader plans the job anew")...)
}

// Close logs the remaining changes and waits for the reads that lose has begun. The context
// given to lose has ended.
func (o *OwnershipLog) Close() {
	if o == nil {
		return
	}
	o.Flush()
	o.tasks.Wait()
}

// Total returns how many shards are owned.
func (o *OwnershipLog) Total() (n int) {
	if o == nil {
		return 0
	}
	for _, shards := range o.owned {
		n += shards.Len()
	}
	return n
}

// report logs the changes since the last report.
func (o *OwnershipLog) logChanges() {
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
		return // gained and lost again
	}
	attrs := []any{"gained", gains, "lost", losses, "owned", o.Total()}
	if gains > 0 {
		attrs = append(attrs, "gained_shards", JoinTexts(gained, "jobs"))
	}
	if losses > 0 {
		attrs = append(attrs, "lost_shards", JoinTexts(lost, "jobs"))
	}
	o.to.Info("shards changed", attrs...)
}
