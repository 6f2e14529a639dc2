package member

import (
	"maps"
	"sync"

	"github.com/rota-dev/rota/internal/shardset"
)

// BlockedShards is the shards of a process whose function has not returned, across
// incarnations. Those of an earlier incarnation must not start again here before it has.
type BlockedShards struct {
	mu          sync.Mutex
	Running     map[string]shardset.Set // by job: of any incarnation
	Old         map[string]shardset.Set // by job: of earlier ones. The sets are values: each change makes another
	OnUnblocked func()                  // after a removal from old. Must not block
}

// beginIncarnation begins a new incarnation: what runs is old from now on.
func (b *BlockedShards) beginIncarnation() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Old = map[string]shardset.Set{}
	for job, shards := range b.Running {
		b.Old[job] = shards.Clone()
	}
}

func (b *BlockedShards) addRunning(job string, shard int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.Running == nil {
		b.Running = map[string]shardset.Set{}
	}
	shards := b.Running[job]
	shards.Add(shard)
	b.Running[job] = shards
}

func (b *BlockedShards) removeRunning(job string, shard int) {
	b.mu.Lock()
	shards := b.Running[job]
	if shards.Remove(shard); shards.IsZero() {
		delete(b.Running, job)
	} else {
		b.Running[job] = shards
	}
	freed := b.Old[job].Has(shard)
	if freed {
		b.Old[job] = b.Old[job].Minus(shardset.Of(shard))
		if b.Old[job].IsZero() {
			delete(b.Old, job)
		}
	}
	b.mu.Unlock()
	if freed {
		b.OnUnblocked()
	}
}

// getBlocked returns the shards of a job that must not start here.
func (b *BlockedShards) getBlocked(job string) shardset.Set {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Old[job]
}

// copyBlocked returns the shards that must not start here, by job; nil for none.
func (b *BlockedShards) copyBlocked() map[string]shardset.Set {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.Old) == 0 {
		return nil
	}
	return maps.Clone(b.Old)
}
