package backend

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/rota-dev/rota/registry"
)

// batches is the buffer between the source of a directory's changes, which never waits,
// and the reader of a registry.Watcher.
//
// The source begins with a Snapshot. After that it offers the changes of each key in the
// order of their commits, or another Snapshot if it may have missed a change. The buffer
// ignores a change that is not newer than its state of the key, so a source may offer a
// change twice.
//
// A slow reader costs one pending entry for each key that exists and one name for each key
// that was delivered to it: a key that is created and deleted meanwhile costs nothing.
type batches struct {
	signal chan struct{} // one slot: a batch may be pending
	done   chan struct{} // closed when err is set

	mu        sync.Mutex
	kind      registry.BatchKind // of the pending batch; 0 before the first Snapshot
	pending   map[registry.Key]Change
	rev       registry.Rev            // no pending change is newer
	delivered map[registry.Key]uint64 // the keys that the reader has, with their Seq
	err       error
}

// Change is the change of a key.
type Change struct {
	Key registry.Key
	// Rev is that of the write or the delete, or one at which the key did not exist. A Change
	// whose Rev is not newer than the state that was offered before is ignored, so it may be
	// offered twice.
	Rev   registry.Rev
	Entry *registry.Entry // nil if the key was deleted
	// Bound, if not zero, is no older than a delete whose Rev is not known. Rev, which may be
	// older, then orders the delete before a later creation.
	Bound registry.Rev
}

// newBatches returns an empty buffer, which needs no closing.
func newBatches() *batches {
	return &batches{
		signal:    make(chan struct{}, 1),
		done:      make(chan struct{}),
		pending:   make(map[registry.Key]Change),
		delivered: make(map[registry.Key]uint64),
	}
}

// snapshot replaces all pending changes by the entries that exist. No entry is newer than
// rev. The buffer keeps the entries and their values.
func (b *batches) snapshot(entries []registry.Entry, rev registry.Rev) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return
	}
	b.kind, b.rev = registry.Snapshot, rev
	clear(b.pending)
	clear(b.delivered) // the Revs of a store that was set back are lower than those
	for i := range entries {
		e := &entries[i]
		b.pending[e.Key] = Change{Key: e.Key, Rev: e.Modified, Entry: e}
	}
	b.wake()
}

// delta adds changes. It does nothing before the first Snapshot, which will contain them. The
// buffer keeps the entries and their values.
func (b *batches) delta(changes ...Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil || b.kind == 0 {
		return
	}
	for _, c := range changes {
		b.merge(c)
	}
	if len(b.pending) > 0 || b.kind == registry.Snapshot {
		b.wake()
	}
}

func (b *batches) merge(c Change) {
	p, isPending := b.pending[c.Key]
	seq, isDelivered := b.delivered[c.Key]
	if isPending {
		seq = p.Rev.Seq
	}
	if c.Rev.Seq < seq || c.Rev.Seq == seq && (c.Entry == nil) == (isPending && p.Entry == nil) {
		return
	}
	for _, rev := range []registry.Rev{c.Rev, c.Bound} {
		if rev.Seq > b.rev.Seq {
			b.rev = rev
		}
	}
	if c.Entry == nil && (b.kind == registry.Snapshot || !isDelivered) {
		delete(b.pending, c.Key) // the reader does not have the key
		return
	}
	b.pending[c.Key] = c
}

// fail ends the buffer: next returns err from then on. It reports false if the buffer had ended.
func (b *batches) fail(err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return false
	}
	b.err, b.pending, b.delivered = err, nil, nil
	close(b.done)
	return true
}

// next waits for a pending batch and returns it. The caller may keep the batch.
func (b *batches) next(ctx context.Context) (registry.Batch, error) {
	for {
		if err := ctx.Err(); err != nil {
			return registry.Batch{}, context.Cause(ctx)
		}
		batch, err := b.takePending()
		if err != nil || batch.Kind != 0 {
			return batch, err
		}
		select {
		case <-b.signal:
		case <-b.done:
		case <-ctx.Done():
		}
	}
}

// takePending returns and removes the pending changes, or returns no Batch if there are none.
func (b *batches) takePending() (registry.Batch, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil || b.kind == 0 || b.kind == registry.Delta && len(b.pending) == 0 {
		return registry.Batch{}, b.err
	}
	batch := registry.Batch{Kind: b.kind, Rev: b.rev}
	if b.kind == registry.Snapshot {
		batch.Puts = make([]registry.Entry, 0, len(b.pending))
	}
	for key, c := range b.pending {
		if c.Entry == nil {
			batch.Deletes = append(batch.Deletes, key)
			delete(b.delivered, key)
			continue
		}
		batch.Puts = append(batch.Puts, *c.Entry)
		b.delivered[key] = c.Rev.Seq
	}
	b.kind = registry.Delta
	b.pending = make(map[registry.Key]Change) // not cleared: it may have been large once
	slices.SortFunc(batch.Puts, func(x, y registry.Entry) int { return cmp.Compare(x.Key, y.Key) })
	slices.Sort(batch.Deletes)
	return batch, nil
}

// wake makes next check for a batch. The lock is held.
func (b *batches) wake() { Signal(b.signal) }
