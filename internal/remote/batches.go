package remote

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/rota-dev/rota/registry"
)

// Batches is the buffer between the source of a directory's changes, which never waits,
// and the reader of a registry.Watcher.
//
// The source begins with a Snapshot. After that it offers the changes of a key in the
// order of their commits, or another Snapshot where it may have missed one. What is not
// newer than what the buffer has of a key is passed over, so a source may tell a thing
// twice.
//
// A reader that sleeps costs one pending entry for each key that exists and one name for
// each key it was told of: a key that comes and goes meanwhile leaves nothing behind.
type Batches struct {
	signal chan struct{} // one slot: there is something to look at
	done   chan struct{} // closed with err

	mu      sync.Mutex
	kind    registry.BatchKind // of what is pending; 0 before the first Snapshot
	pending map[registry.Key]Change
	rev     registry.Rev            // no pending change is newer
	told    map[registry.Key]uint64 // what the reader has, and its Seq
	err     error
}

// Change is what became of a key.
type Change struct {
	Key   registry.Key
	Rev   registry.Rev    // of the write or the delete, or one at which the key was gone
	Entry *registry.Entry // nil if it is gone
}

// NewBatches returns an empty buffer, which needs no closing.
func NewBatches() *Batches {
	return &Batches{
		signal:  make(chan struct{}, 1),
		done:    make(chan struct{}),
		pending: make(map[registry.Key]Change),
		told:    make(map[registry.Key]uint64),
	}
}

// Snapshot replaces all that is pending by what exists. No entry is newer than rev. The
// entries, with their values, are the buffer's from then on.
func (b *Batches) Snapshot(entries []registry.Entry, rev registry.Rev) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return
	}
	b.kind, b.rev = registry.Snapshot, rev
	clear(b.pending)
	for i := range entries {
		e := &entries[i]
		b.pending[e.Key] = Change{Key: e.Key, Rev: e.Modified, Entry: e}
	}
	b.wake()
}

// Delta adds changes. It does nothing before the first Snapshot, which will have them. The
// entries, with their values, are the buffer's from then on.
func (b *Batches) Delta(changes ...Change) {
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

func (b *Batches) merge(c Change) {
	p, waiting := b.pending[c.Key]
	seq, told := b.told[c.Key]
	if waiting {
		seq = p.Rev.Seq
	}
	if c.Rev.Seq < seq || c.Rev.Seq == seq && (c.Entry == nil) == (waiting && p.Entry == nil) {
		return
	}
	if c.Rev.Seq > b.rev.Seq {
		b.rev = c.Rev
	}
	if c.Entry == nil && (b.kind == registry.Snapshot || !told) {
		delete(b.pending, c.Key) // the reader does not know it
		return
	}
	b.pending[c.Key] = c
}

// Fail ends the buffer, if it has not ended: Next returns err from then on.
func (b *Batches) Fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return
	}
	b.err, b.pending, b.told = err, nil, nil
	close(b.done)
}

// Close is Fail with registry.ErrClosed.
func (b *Batches) Close() { b.Fail(registry.ErrClosed) }

// Done is closed when the buffer has ended.
func (b *Batches) Done() <-chan struct{} { return b.done }

// Next waits for something pending and returns it. The batch is the reader's to keep.
func (b *Batches) Next(ctx context.Context) (registry.Batch, error) {
	for {
		if err := ctx.Err(); err != nil {
			return registry.Batch{}, context.Cause(ctx)
		}
		batch, err := b.take()
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

// take returns what is pending, or no Batch.
func (b *Batches) take() (registry.Batch, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil || b.kind == 0 || b.kind == registry.Delta && len(b.pending) == 0 {
		return registry.Batch{}, b.err
	}
	batch := registry.Batch{Kind: b.kind, Rev: b.rev}
	if b.kind == registry.Snapshot {
		clear(b.told)
		batch.Puts = make([]registry.Entry, 0, len(b.pending))
	}
	for key, c := range b.pending {
		if c.Entry == nil {
			batch.Deletes = append(batch.Deletes, key)
			delete(b.told, key)
			continue
		}
		batch.Puts = append(batch.Puts, *c.Entry)
		b.told[key] = c.Rev.Seq
	}
	b.kind = registry.Delta
	b.pending = make(map[registry.Key]Change) // not cleared: it may have been large once
	slices.SortFunc(batch.Puts, func(x, y registry.Entry) int { return cmp.Compare(x.Key, y.Key) })
	slices.Sort(batch.Deletes)
	return batch, nil
}

// wake makes Next look again. The lock is held.
func (b *Batches) wake() {
	select {
	case b.signal <- struct{}{}:
	default: // it has been told already
	}
}
