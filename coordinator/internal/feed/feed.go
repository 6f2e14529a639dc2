package feed

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/rota-dev/rota/registry"
)

// Feed is a decoded replica of a directory with readers that take what has changed since
// they last asked. It is written by one goroutine and holds up nobody: what a reader has
// not taken yet costs one name.
type Feed[T any] struct {
	dir    registry.Key
	decode func(registry.Entry) (T, error)
	log    *slog.Logger

	UnreadableLevel slog.Level // at which records that cannot be decoded are logged

	mu         sync.Mutex
	records    map[string]decoded[T]
	unreadable map[string]unreadable // records that could not be decoded
	synced     bool
	readers    []*Reader[T]
}

type decoded[T any] struct {
	rev   registry.Rev
	value T
}

// broken is a record that could not be decoded, and why.
type unreadable struct {
	rev registry.Rev
	err error
}

// Reader is one reader's place in a feed.
type Reader[T any] struct {
	Feed  *Feed[T]
	dirty map[string]struct{}
	wake  func() // after changes: there is something to take. Must not block
}

// Update is what has become of a record: gone, broken or changed.
type Update[T any] struct {
	Name       string
	Rev        registry.Rev
	Value      T
	Deleted    bool
	Unreadable bool  // it exists and cannot be read; leave it alone
	Err        error // why it cannot
}

func New[T any](dir registry.Key, log *slog.Logger, decode func(registry.Entry) (T, error)) *Feed[T] {
	return &Feed[T]{dir: dir, decode: decode, log: log, UnreadableLevel: slog.LevelError, records: map[string]decoded[T]{}, unreadable: map[string]unreadable{}}
}

// Run follows the directory until ctx ends.
func (f *Feed[T]) Run(ctx context.Context, reg registry.Registry) error {
	return registry.Follow(ctx, reg, f.dir, func(b registry.Batch) error {
		f.ApplyBatch(b)
		return nil
	})
}

// NewReader adds a reader, to which everything is news. It is nudged at once if there is
// something.
func (f *Feed[T]) NewReader(nudge func()) *Reader[T] {
	f.mu.Lock()
	r := &Reader[T]{Feed: f, dirty: map[string]struct{}{}, wake: nudge}
	for name := range f.records {
		r.dirty[name] = struct{}{}
	}
	for name := range f.unreadable {
		r.dirty[name] = struct{}{}
	}
	f.readers = append(f.readers, r)
	f.mu.Unlock()
	nudge()
	return r
}

// Close takes the reader out of its feed.
func (r *Reader[T]) Close() {
	f := r.Feed
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readers = slices.DeleteFunc(f.readers, func(o *Reader[T]) bool { return o == r })
}

// Drain calls fn with what has changed since the last take. It reports whether the feed
// has been filled once: before that, absence means nothing.
func (r *Reader[T]) Drain(fn func(Update[T])) (synced bool) {
	f := r.Feed
	f.mu.Lock()
	dirty := r.dirty
	if len(dirty) > 0 {
		r.dirty = map[string]struct{}{}
	}
	out := make([]Update[T], 0, len(dirty))
	for name := range dirty {
		if it, ok := f.records[name]; ok {
			out = append(out, Update[T]{Name: name, Rev: it.rev, Value: it.value})
		} else if b, ok := f.unreadable[name]; ok {
			out = append(out, Update[T]{Name: name, Rev: b.rev, Unreadable: true, Err: b.err})
		} else {
			out = append(out, Update[T]{Name: name, Deleted: true})
		}
	}
	synced = f.synced
	f.mu.Unlock()
	for _, n := range out {
		fn(n)
	}
	return synced
}

// Put records a write of this process ahead of its event.
func (f *Feed[T]) RecordWrite(name string, rev registry.Rev, value T) {
	f.mu.Lock()
	f.setRecord(Update[T]{Name: name, Rev: rev, Value: value})
	f.mu.Unlock()
	f.wakeReaders()
}

func (f *Feed[T]) wakeReaders() {
	f.mu.Lock()
	readers := slices.Clone(f.readers)
	f.mu.Unlock()
	for _, r := range readers {
		r.wake()
	}
}

func (f *Feed[T]) ApplyBatch(b registry.Batch) {
	puts := make([]Update[T], 0, len(b.Puts))
	for _, e := range b.Puts {
		if f.isKnown(e) {
			continue
		}
		n := Update[T]{Name: e.Key.Name(), Rev: e.Modified}
		value, err := f.decode(e)
		if err != nil {
			LogUnreadable(f.log, f.UnreadableLevel, e.Key, err)
			n.Unreadable, n.Err = true, err
		}
		n.Value = value
		puts = append(puts, n)
	}
	f.mu.Lock()
	for _, n := range puts {
		f.setRecord(n)
	}
	for _, k := range b.Deletes {
		f.removeRecord(k.Name(), b.Rev)
	}
	if b.Kind == registry.Snapshot {
		f.removeAbsent(b)
		f.synced = true
	}
	f.mu.Unlock()
	f.wakeReaders()
}

// known reports whether an entry says nothing new.
func (f *Feed[T]) isKnown(e registry.Entry) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := e.Key.Name()
	if it, ok := f.records[name]; ok && it.rev.Seq >= e.Modified.Seq {
		return true
	}
	b, ok := f.unreadable[name]
	return ok && b.rev.Seq >= e.Modified.Seq
}

func (f *Feed[T]) setRecord(n Update[T]) {
	if it, ok := f.records[n.Name]; ok && it.rev.Seq >= n.Rev.Seq {
		return
	}
	if n.Unreadable {
		delete(f.records, n.Name)
		f.unreadable[n.Name] = unreadable{n.Rev, n.Err}
	} else {
		delete(f.unreadable, n.Name)
		f.records[n.Name] = decoded[T]{n.Rev, n.Value}
	}
	f.markDirty(n.Name)
}

// remove forgets a record that had gone by commit as of, unless what is known is newer.
func (f *Feed[T]) removeRecord(name string, as registry.Rev) {
	if it, ok := f.records[name]; ok && it.rev.Seq > as.Seq {
		return
	}
	delete(f.records, name)
	delete(f.unreadable, name)
	f.markDirty(name)
}

func (f *Feed[T]) removeAbsent(b registry.Batch) {
	in := make(map[string]struct{}, len(b.Puts))
	for _, e := range b.Puts {
		in[e.Key.Name()] = struct{}{}
	}
	for name := range f.records {
		if _, ok := in[name]; !ok {
			f.removeRecord(name, b.Rev)
		}
	}
	for name := range f.unreadable {
		if _, ok := in[name]; !ok {
			f.removeRecord(name, b.Rev)
		}
	}
}

func (f *Feed[T]) markDirty(name string) {
	for _, r := range f.readers {
		r.dirty[name] = struct{}{}
	}
}

// ByName returns the values of a feed by the names of their records.
func (f *Feed[T]) Values() map[string]T {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(map[string]T, len(f.records))
	for name, it := range f.records {
		out[name] = it.value
	}
	return out
}
