package feed

import (
	"context"
	"log/slog"
	"slices"

	"github.com/rota-dev/rota/internal/mutex"
	"github.com/rota-dev/rota/registry"
)

// Feed is a decoded replica of a directory. A slow reader blocks neither the watch nor other
// readers: the feed stores one name for each change that a reader has not drained.
type Feed[T any] struct {
	dir    registry.Key
	decode func(registry.Entry) (T, error)
	log    *slog.Logger

	UnreadableLevel slog.Level // the level at which the feed logs records that it cannot decode

	mu         mutex.Mutex
	records    map[string]decoded[T]
	unreadable map[string]unreadable // records that could not be decoded
	synced     bool                  // a snapshot has been applied
	newest     uint64                // the highest commit that the feed knows of
	readers    []*Reader[T]
}

type decoded[T any] struct {
	rev   registry.Rev
	value T
}

// unreadable is a record that could not be decoded, with the reason.
type unreadable struct {
	rev registry.Rev
	err error
}

// Reader drains the changes of a feed.
type Reader[T any] struct {
	Feed  *Feed[T]
	dirty map[string]struct{} // names of records that changed since the last drain
	wake  func()              // called after changes; must not block
}

// Update is the present state of a record that changed.
type Update[T any] struct {
	Name       string
	Rev        registry.Rev
	Value      T
	Deleted    bool
	Unreadable bool  // the record exists but cannot be decoded, so nothing may overwrite it
	Err        error // why it cannot be decoded
}

// New returns a feed of a directory that decodes records with decode. Run fills it.
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

// NewReader adds a reader. Its first Drain returns all records. NewReader calls wake once.
func (f *Feed[T]) NewReader(wake func()) *Reader[T] {
	f.mu.Lock()
	r := &Reader[T]{Feed: f, dirty: map[string]struct{}{}, wake: wake}
	for name := range f.records {
		r.dirty[name] = struct{}{}
	}
	for name := range f.unreadable {
		r.dirty[name] = struct{}{}
	}
	f.readers = append(f.readers, r)
	f.mu.Unlock()
	wake()
	return r
}

// Close removes the reader from its feed.
func (r *Reader[T]) Close() {
	f := r.Feed
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readers = slices.DeleteFunc(f.readers, func(o *Reader[T]) bool { return o == r })
}

// Drain calls fn with each record that has changed since the last Drain. synced reports whether
// the feed has received its first snapshot; before that, a missing record may still exist.
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

// RecordWrite applies a write of this process without waiting for its event.
func (f *Feed[T]) RecordWrite(name string, rev registry.Rev, value T) {
	f.mu.Lock()
	f.newest = max(f.newest, rev.Seq)
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

// ApplyBatch applies a batch of the directory's watch.
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
	f.newest = max(f.newest, b.Rev.Seq)
	for _, n := range puts {
		f.newest = max(f.newest, n.Rev.Seq)
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

// isKnown reports whether the feed has this version of a record, or a later one.
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

// setRecord stores an update unless the feed has the same version or a later one.
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

// removeRecord drops a record that did not exist at commit at. It keeps a version that is newer.
func (f *Feed[T]) removeRecord(name string, at registry.Rev) {
	if it, ok := f.records[name]; ok && it.rev.Seq > at.Seq {
		return
	}
	delete(f.records, name)
	delete(f.unreadable, name)
	f.markDirty(name)
}

// removeAbsent drops the records that a snapshot does not contain.
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

// NewestCommit returns the highest commit that the feed knows of.
func (f *Feed[T]) NewestCommit() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.newest
}

// Values returns the decoded records by name.
func (f *Feed[T]) Values() map[string]T {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(map[string]T, len(f.records))
	for name, it := range f.records {
		out[name] = it.value
	}
	return out
}
