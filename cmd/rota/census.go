package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry"
)

// tally is what has been counted of some files.
type tally struct {
	Files  int    `json:"files"`
	Bytes  int64  `json:"bytes"`
	Lines  int64  `json:"lines"`
	Digest string `json:"digest"` // of the files' digests, added up: the order does not matter
}

// listFiles returns the regular files below dir, sorted.
func listFiles(dir string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("list files: there are none in %s", dir)
	}
	slices.Sort(files)
	return files, nil
}

// counter adds up files.
type counter struct {
	tally
	sum [sha256.Size]byte
}

// add counts a file.
func (c *counter) add(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	hash := sha256.New()
	lines := lineCounter{}
	n, err := io.Copy(io.MultiWriter(hash, &lines), bufio.NewReader(f))
	if err != nil {
		return err
	}
	c.Files++
	c.Bytes += n
	c.Lines += lines.n
	c.addDigest([sha256.Size]byte(hash.Sum(nil)))
	return nil
}

// addDigest adds a number of 256 bits to the sum.
func (c *counter) addDigest(d [sha256.Size]byte) {
	carry := 0
	for i := len(d) - 1; i >= 0; i-- {
		carry += int(c.sum[i]) + int(d[i])
		c.sum[i] = byte(carry)
		carry >>= 8
	}
	c.Digest = hex.EncodeToString(c.sum[:])
}

// merge adds another tally.
func (c *counter) merge(t tally) error {
	d, err := hex.DecodeString(t.Digest)
	if t.Files == 0 {
		d, err = make([]byte, sha256.Size), nil
	}
	if err != nil || len(d) != sha256.Size {
		return fmt.Errorf("digest %q: %w", t.Digest, err)
	}
	c.Files += t.Files
	c.Bytes += t.Bytes
	c.Lines += t.Lines
	c.addDigest([sha256.Size]byte(d))
	return nil
}

type lineCounter struct{ n int64 }

func (l *lineCounter) Write(p []byte) (int, error) {
	for _, b := range p {
		if b == '\n' {
			l.n++
		}
	}
	return len(p), nil
}

// census is the job of the demo.
type census struct {
	files  []string
	shards int
	cutOff func(instance string)

	executions atomic.Int64

	mu       sync.Mutex
	kills    int // instances still to be cut off
	cut      map[string]bool
	progress map[int]progress // by shard: of the run that began last
	stored   map[int]bool     // by shard
	changed  chan struct{}    // closed, and replaced, when a result has been stored or a run failed
	failed   error
}

// progress is how far a run has come.
type progress struct {
	instance    string
	attempt     int
	done, total int
	stored      bool
}

func newCensus(files []string, shards, kills int) *census {
	return &census{
		files: files, shards: shards, kills: kills,
		cut: map[string]bool{}, progress: map[int]progress{}, stored: map[int]bool{}, changed: make(chan struct{}),
	}
}

// resultKey is where a shard's tally is stored.
func resultKey(shard int) registry.Key {
	return registry.Join(namespace, "results", fmt.Sprintf("%05d", shard))
}

// count is the handler: it counts each of the shard's files and stores the tally. The
// store refuses it unless the run's session lives, and a second one for the same shard.
func (c *census) count(ctx context.Context, r *executor.Run) error {
	c.executions.Add(1)
	var mine []string
	for i := r.Shard; i < len(c.files); i += r.Shards {
		mine = append(mine, c.files[i])
	}
	var sum counter
	for i, path := range mine {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c.report(r, i, len(mine))
		if i >= len(mine)/4 {
			c.maybeCutOff(r.Instance)
		}
		if err := sum.add(path); err != nil {
			c.fail(err)
			return err
		}
	}
	if len(mine) == 0 {
		c.maybeCutOff(r.Instance)
	}
	value, err := json.Marshal(sum.tally)
	if err != nil {
		return err
	}
	_, err = r.Commit(ctx, registry.Create(resultKey(r.Shard), value))
	earlier := errors.Is(err, registry.ErrConflict) && r.Attempt > 1 // it was stored as its instance was cut off
	if err != nil && !earlier {
		return fmt.Errorf("store the tally: %w", err)
	}
	c.store(r, len(mine))
	return nil
}

func (c *census) report(r *executor.Run, done, total int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.progress[r.Shard]; p.attempt <= r.Attempt {
		c.progress[r.Shard] = progress{r.Instance, r.Attempt, done, total, false}
	}
}

func (c *census) store(r *executor.Run, total int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.progress[r.Shard] = progress{r.Instance, r.Attempt, total, total, true}
	c.stored[r.Shard] = true
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *census) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = err
		close(c.changed)
		c.changed = make(chan struct{})
	}
}

// maybeCutOff cuts an instance off in the middle of a run, while there are any to be.
func (c *census) maybeCutOff(instance string) {
	c.mu.Lock()
	now := c.kills > 0 && !c.cut[instance]
	if now {
		c.kills--
		c.cut[instance] = true
	}
	c.mu.Unlock()
	if now {
		c.cutOff(instance)
	}
}

// await waits until every shard's tally is stored.
func (c *census) await(ctx context.Context) error {
	for {
		c.mu.Lock()
		stored, failed, changed := len(c.stored), c.failed, c.changed
		c.mu.Unlock()
		if failed != nil {
			return failed
		}
		if stored >= c.shards {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %d of %d shards counted", context.Cause(ctx), stored, c.shards)
		case <-changed:
		}
	}
}
