package claimer

import (
	"maps"

	"github.com/rota-dev/rota/internal/mutex"
	"github.com/rota-dev/rota/internal/shardset"
)

// BlockedShards are the shards of a process whose functions have not returned, across
// incarnations. A shard that an earlier incarnation still runs is blocked: it must not start
// here again before the function has returned.
type BlockedShards struct {
	mu          mutex.Mutex
	Running     map[string]*shardset.Set // by job, of all incarnations; none is empty
	Old         map[string]shardset.Set  // by job, of earlier incarnations; a set is never changed in place
	OnUnblocked func()                   // called after a removal from Old; must not block
}

// BeginIncarnation blocks all shards that run.
func (b *BlockedShards) BeginIncarnation() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Old = map[string]shardset.Set{}
	for job, shards := range b.Running {
		b.Old[job] = shards.Clone()
	}
}

// addRunning records that the functions of shards are called.
func (b *BlockedShards) addRunning(job string, shards shardset.Set) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.Running == nil {
		b.Running = map[string]*shardset.Set{}
	}
	if running := b.Running[job]; running != nil {
		shards = running.Union(shards)
	} else {
		shards = shards.Clone()
	}
	b.Running[job] = &shards
}

// removeRunning records that the function of a shard has returned.
func (b *BlockedShards) removeRunning(job string, shard int) {
	b.mu.Lock()
	shards := b.Running[job]
	if shards.Remove(shard); shards.IsZero() {
		delete(b.Running, job)
	}
	unblocked := b.Old[job].Has(shard)
	if unblocked {
		b.Old[job] = b.Old[job].Minus(shardset.Of(shard))
		if b.Old[job].IsZero() {
			delete(b.Old, job)
		}
	}
	b.mu.Unlock()
	if unblocked {
		b.OnUnblocked()
	}
}

// getBlocked returns the blocked shards of a job.
func (b *BlockedShards) getBlocked(job string) shardset.Set {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Old[job]
}

// CopyBlocked returns the blocked shards by job, nil if there are none.
func (b *BlockedShards) CopyBlocked() map[string]shardset.Set {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.Old) == 0 {
		return nil
	}
	return maps.Clone(b.Old)
}
