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

	Unreadable slog.Level // at which records that cannot be decoded are logged

	mu      sync.Mutex
	items   map[string]item[T]
	broken  map[string]broken // records that could not be decoded
	synced  bool
	readers []*Reader[T]
}

type item[T any] struct {
	rev   registry.Rev
	value T
}

// broken is a record that could not be decoded, and why.
type broken struct {
	rev registry.Rev
	err error
}

// Reader is one reader's place in a feed.
type Reader[T any] struct {
	Feed  *Feed[T]
	dirty map[string]struct{}
	nudge func() // after changes: there is something to take. Must not block
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
	return &Feed[T]{dir: dir, decode: decode, log: log, Unreadable: slog.LevelError, items: map[string]item[T]{}, broken: map[string]broken{}}
}

// Run follows the directory until ctx ends.
func (f *Feed[T]) Run(ctx context.Context, reg registry.Registry) error {
	return registry.Follow(ctx, reg, f.dir, func(b registry.Batch) error {
		f.Apply(b)
		return nil
	})
}

// NewReader adds a reader, to which everything is news. It is nudged at once if there is
// something.
func (f *Feed[T]) NewReader(nudge func()) *Reader[T] {
	f.mu.Lock()
	r := &Reader[T]{Feed: f, dirty: map[string]struct{}{}, nudge: nudge}
	for name := range f.items {
		r.dirty[name] = struct{}{}
	}
	for name := range f.broken {
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
		if it, ok := f.items[name]; ok {
			out = append(out, Update[T]{Name: name, Rev: it.rev, Value: it.value})
		} else if b, ok := f.broken[name]; ok {
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
func (f *Feed[T]) Put(name string, rev registry.Rev, value T) {
	f.mu.Lock()
	f.install(Update[T]{Name: name, Rev: rev, Value: value})
	f.mu.Unlock()
	f.nudge()
}

func (f *Feed[T]) nudge() {
	f.mu.Lock()
	readers := slices.Clone(f.readers)
	f.mu.Unlock()
	for _, r := range readers {
		r.nudge()
	}
}

func (f *Feed[T]) Apply(b registry.Batch) {
	puts := make([]Update[T], 0, len(b.Puts))
	for _, e := range b.Puts {
		if f.known(e) {
			continue
		}
		n := Update[T]{Name: e.Key.Name(), Rev: e.Modified}
		value, err := f.decode(e)
		if err != nil {
			LogUnreadable(f.log, f.Unreadable, e.Key, err)
			n.Unreadable, n.Err = true, err
		}
		n.Value = value
		puts = append(puts, n)
	}
	f.mu.Lock()
	for _, n := range puts {
		f.install(n)
	}
	for _, k := range b.Deletes {
		f.remove(k.Name(), b.Rev)
	}
	if b.Kind == registry.Snapshot {
		f.keepOnly(b)
		f.synced = true
	}
	f.mu.Unlock()
	f.nudge()
}

// known reports whether an entry says nothing new.
func (f *Feed[T]) known(e registry.Entry) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := e.Key.Name()
	if it, ok := f.items[name]; ok && it.rev.Seq >= e.Modified.Seq {
		return true
	}
	b, ok := f.broken[name]
	return ok && b.rev.Seq >= e.Modified.Seq
}

func (f *Feed[T]) install(n Update[T]) {
	if it, ok := f.items[n.Name]; ok && it.rev.Seq >= n.Rev.Seq {
		return
	}
	if n.Unreadable {
		delete(f.items, n.Name)
		f.broken[n.Name] = broken{n.Rev, n.Err}
	} else {
		delete(f.broken, n.Name)
		f.items[n.Name] = item[T]{n.Rev, n.Value}
	}
	f.mark(n.Name)
}

// remove forgets a record that had gone by commit as of, unless what is known is newer.
func (f *Feed[T]) remove(name string, as registry.Rev) {
	if it, ok := f.items[name]; ok && it.rev.Seq > as.Seq {
		return
	}
	delete(f.items, name)
	delete(f.broken, name)
	f.mark(name)
}

func (f *Feed[T]) keepOnly(b registry.Batch) {
	in := make(map[string]struct{}, len(b.Puts))
	for _, e := range b.Puts {
		in[e.Key.Name()] = struct{}{}
	}
	for name := range f.items {
		if _, ok := in[name]; !ok {
			f.remove(name, b.Rev)
		}
	}
	for name := range f.broken {
		if _, ok := in[name]; !ok {
			f.remove(name, b.Rev)
		}
	}
}

func (f *Feed[T]) mark(name string) {
	for _, r := range f.readers {
		r.dirty[name] = struct{}{}
	}
}

// ByName returns the values of a feed by the names of their records.
func (f *Feed[T]) ByName() map[string]T {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(map[string]T, len(f.items))
	for name, it := range f.items {
		out[name] = it.value
	}
	return out
}
