package coordinator

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/rota-dev/rota/registry"
)

// feed is a decoded replica of a directory with readers that take what has changed since
// they last asked. It is written by one goroutine and holds up nobody: what a reader has
// not taken yet costs one name.
type feed[T any] struct {
	dir    registry.Key
	decode func(registry.Entry) (T, error)
	log    *slog.Logger

	unreadable slog.Level // at which records that cannot be decoded are logged

	mu      sync.Mutex
	items   map[string]item[T]
	broken  map[string]broken // records that could not be decoded
	synced  bool
	readers []*reader[T]
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

// reader is one reader's place in a feed.
type reader[T any] struct {
	feed  *feed[T]
	dirty map[string]struct{}
	nudge func() // after changes: there is something to take. Must not block
}

// news is what has become of a record: gone, broken or changed.
type news[T any] struct {
	name   string
	rev    registry.Rev
	value  T
	gone   bool
	broken bool  // it exists and cannot be read; leave it alone
	err    error // why it cannot
}

func newFeed[T any](dir registry.Key, log *slog.Logger, decode func(registry.Entry) (T, error)) *feed[T] {
	return &feed[T]{dir: dir, decode: decode, log: log, unreadable: slog.LevelError, items: map[string]item[T]{}, broken: map[string]broken{}}
}

// run follows the directory until ctx ends.
func (f *feed[T]) run(ctx context.Context, reg registry.Registry) error {
	return registry.Follow(ctx, reg, f.dir, func(b registry.Batch) error {
		f.Apply(b)
		return nil
	})
}

// reader adds a reader, to which everything is news. It is nudged at once if there is
// something.
func (f *feed[T]) reader(nudge func()) *reader[T] {
	f.mu.Lock()
	r := &reader[T]{feed: f, dirty: map[string]struct{}{}, nudge: nudge}
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

// close takes the reader out of its feed.
func (r *reader[T]) close() {
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readers = slices.DeleteFunc(f.readers, func(o *reader[T]) bool { return o == r })
}

// take calls fn with what has changed since the last take. It reports whether the feed
// has been filled once: before that, absence means nothing.
func (r *reader[T]) take(fn func(news[T])) (synced bool) {
	f := r.feed
	f.mu.Lock()
	dirty := r.dirty
	if len(dirty) > 0 {
		r.dirty = map[string]struct{}{}
	}
	out := make([]news[T], 0, len(dirty))
	for name := range dirty {
		if it, ok := f.items[name]; ok {
			out = append(out, news[T]{name: name, rev: it.rev, value: it.value})
		} else if b, ok := f.broken[name]; ok {
			out = append(out, news[T]{name: name, rev: b.rev, broken: true, err: b.err})
		} else {
			out = append(out, news[T]{name: name, gone: true})
		}
	}
	synced = f.synced
	f.mu.Unlock()
	for _, n := range out {
		fn(n)
	}
	return synced
}

// put records a write of this process ahead of its event.
func (f *feed[T]) put(name string, rev registry.Rev, value T) {
	f.mu.Lock()
	f.install(news[T]{name: name, rev: rev, value: value})
	f.mu.Unlock()
	f.nudge()
}

func (f *feed[T]) nudge() {
	f.mu.Lock()
	readers := slices.Clone(f.readers)
	f.mu.Unlock()
	for _, r := range readers {
		r.nudge()
	}
}

func (f *feed[T]) Apply(b registry.Batch) {
	puts := make([]news[T], 0, len(b.Puts))
	for _, e := range b.Puts {
		if f.known(e) {
			continue
		}
		n := news[T]{name: e.Key.Name(), rev: e.Modified}
		value, err := f.decode(e)
		if err != nil {
			logUnreadable(f.log, f.unreadable, e.Key, err)
			n.broken, n.err = true, err
		}
		n.value = value
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
func (f *feed[T]) known(e registry.Entry) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := e.Key.Name()
	if it, ok := f.items[name]; ok && it.rev.Seq >= e.Modified.Seq {
		return true
	}
	b, ok := f.broken[name]
	return ok && b.rev.Seq >= e.Modified.Seq
}

func (f *feed[T]) install(n news[T]) {
	if it, ok := f.items[n.name]; ok && it.rev.Seq >= n.rev.Seq {
		return
	}
	if n.broken {
		delete(f.items, n.name)
		f.broken[n.name] = broken{n.rev, n.err}
	} else {
		delete(f.broken, n.name)
		f.items[n.name] = item[T]{n.rev, n.value}
	}
	f.mark(n.name)
}

// remove forgets a record that had gone by commit as of, unless what is known is newer.
func (f *feed[T]) remove(name string, as registry.Rev) {
	if it, ok := f.items[name]; ok && it.rev.Seq > as.Seq {
		return
	}
	delete(f.items, name)
	delete(f.broken, name)
	f.mark(name)
}

func (f *feed[T]) keepOnly(b registry.Batch) {
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

func (f *feed[T]) mark(name string) {
	for _, r := range f.readers {
		r.dirty[name] = struct{}{}
	}
}

// byName returns the values of a feed by the names of their records.
func (f *feed[T]) byName() map[string]T {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(map[string]T, len(f.items))
	for name, it := range f.items {
		out[name] = it.value
	}
	return out
}

// logUnreadable logs a record that cannot be decoded.
func logUnreadable(log *slog.Logger, level slog.Level, key registry.Key, err error) {
	log.Log(context.Background(), level, "unreadable record left alone", "key", string(key), "error", err,
		"remedy", "write the record back as it was, or delete the key; docs/operating.md has what that costs")
}
