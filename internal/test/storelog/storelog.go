// Package storelog reads all commits of a store, in order, for a judge of the fleet that uses the store. It shares
// no code with the backends of package registry, so that a mistake in a backend is found: it uses its own etcd
// client, and reads ZooKeeper's transaction log from the server's disk, since ZooKeeper's watches merge changes.
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

// Log returns the commits of a store since it was empty.
type Log interface {
	// Take returns the commits read since the last call.
	Take() []judge.Commit
	// Sync waits until all commits before the call have been read, also while the store does not
	// answer.
	Sync(ctx context.Context) error
	// Close stops reading. Take still returns the commits that were read.
	Close() error
}

// pending holds the commits that were read and not yet taken.
type pending struct {
	mu      sync.Mutex
	commits []judge.Commit
	through uint64        // the newest commit of any kind that has been read
	moved   chan struct{} // closed, and replaced, when through grows, or with failed
	failed  error         // why reading ended
}

func newPending() *pending { return &pending{moved: make(chan struct{})} }

// add adds the commits at seq.
func (p *pending) add(seq uint64, commits ...judge.Commit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.commits = append(p.commits, commits...)
	p.through = max(p.through, seq)
	p.signal()
}

func (p *pending) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == nil {
		p.failed = err
		p.signal()
	}
}

func (p *pending) signal() {
	close(p.moved)
	p.moved = make(chan struct{})
}

// Take returns the commits read since the last call.
func (p *pending) Take() []judge.Commit {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.commits
	p.commits = nil
	return all
}

// await waits until seq has been read.
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

// reach asks for the last commit until the store answers, and waits until it has been read.
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

// userValue returns a stored value without its first line.
func userValue(stored []byte) []byte {
	_, value, _ := bytes.Cut(stored, []byte("\n"))
	return value
}

// commit returns a Commit of a store whose log does not name the client.
func commit(seq uint64, at time.Time) judge.Commit {
	return judge.Commit{Rev: registry.Rev{Seq: seq}, At: at}
}

// trimRoot removes the namespace root from a stored key.
func trimRoot(stored, root string) (string, bool) { return strings.CutPrefix(stored, root+"/") }
