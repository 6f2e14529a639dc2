// Package storelog reads what has been committed to a store, all of it and in order, for
// a judge of the fleet that uses it. It shares no code with package registry's backends: it
// talks to etcd through a client of its own, and reads ZooKeeper's transaction log from the
// server's disk, as what is watched there can be missed. A mistake in a backend is not to
// be made twice.
package storelog

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/registry"
)

// Log is the commits of a store since it was empty.
type Log interface {
	// Take returns the commits that have been taken in since the last call.
	Take() []judge.Commit
	// Sync returns when all that was committed before the call has been taken in. It waits
	// for a store that does not answer.
	Sync(ctx context.Context) error
	// Close ends the reading. What was taken in can still be taken.
	Close() error
}

// pending is what has been taken in and not yet taken.
type pending struct {
	mu      sync.Mutex
	commits []judge.Commit
	through uint64        // the newest commit, of whatever kind, that has been taken in
	moved   chan struct{} // closed, and replaced, when through grows, or with failed
	failed  error         // why no more will come
}

func newPending() *pending { return &pending{moved: make(chan struct{})} }

// add takes in what was committed at seq.
func (p *pending) add(seq uint64, commits ...judge.Commit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.commits = append(p.commits, commits...)
	p.through = max(p.through, seq)
	p.move()
}

func (p *pending) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed = err
		p.move()
	}
}

func (p *pending) move() {
	close(p.moved)
	p.moved = make(chan struct{})
}

// Take returns the commits that have been taken in since the last call.
func (p *pending) Take() []judge.Commit {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.commits
	p.commits = nil
	return all
}

// await returns when seq has been taken in.
func (p *pending) await(ctx context.Context, seq uint64) error {
	for {
		p.mu.Lock()
		through, moved, failed := p.through, p.moved, p.failed
		p.mu.Unlock()
		switch {
		case through >= seq:
			return nil
		case failed != nil:
			return failed
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// syncWithin bounds a Sync.
const syncWithin = 30 * time.Second

// reach asks for a commit, as often as it takes, and returns when that has been taken in.
func (p *pending) reach(ctx context.Context, ask func(ctx context.Context) (seq uint64, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, syncWithin)
	defer cancel()
	for {
		seq, err := ask(ctx)
		if err == nil {
			return p.await(ctx, seq)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("ask the store for its last commit: %w (%w)", context.Cause(ctx), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// userValue returns what follows the first line of a stored value.
func userValue(stored []byte) []byte {
	_, value, _ := bytes.Cut(stored, []byte("\n"))
	return value
}

// commit is a Commit of a store, which does not tell who asked for it.
func commit(seq uint64, at time.Time) judge.Commit {
	return judge.Commit{Rev: registry.Rev{Seq: seq}, At: at}
}

// trimRoot takes the name of the namespace's root off a stored key.
func trimRoot(stored, root string) (string, bool) { return strings.CutPrefix(stored, root+"/") }
