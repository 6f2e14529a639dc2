// Package gather makes batches of the members of a claim, which come one by one, and collects their ends. It knows no registry and
// no handler.
package gather

import (
	"time"

	"github.com/rota-dev/rota/internal/mutex"
)

const (
	// joinTimeout bounds how long a batch waits for members that have not come yet. Without it, a middleware that lets
	// few runs pass at a time would stop the batch for good.
	joinTimeout = time.Second
	// endTimeout bounds how long an end waits for those of the other members that ended with it.
	endTimeout = 100 * time.Millisecond
)

// Gathering makes batches of members M, one for each shard, and reports their ends E.
type Gathering[M, E any] struct {
	call   func([]M) // of the member that came last
	report func([]E)

	mu      mutex.Mutex
	awaited map[int]bool // shards whose members have neither joined nor left
	joined  []M          // not passed to call yet
	timer   *time.Timer  // of joinTimeout, since the first of joined
	ending  map[int]bool // shards whose ends are to be reported together
	ends    []E          // of shards that were in ending, not reported yet
}

// New returns a gathering of the members of shards.
func New[M, E any](shards []int, report func([]E)) *Gathering[M, E] {
	g := &Gathering[M, E]{report: report, awaited: make(map[int]bool, len(shards)), ending: map[int]bool{}}
	for _, s := range shards {
		g.awaited[s] = true
	}
	return g
}

// Join adds the member of a shard. When each member has joined or left, or joinTimeout after the first, call gets those that
// have joined, in a goroutine of its own; those that come later are another batch. Join reports false if the shard has joined
// or left before.
func (g *Gathering[M, E]) Join(shard int, m M, call func([]M)) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.awaited[shard] {
		return false
	}
	delete(g.awaited, shard)
	g.joined, g.call = append(g.joined, m), call
	if len(g.joined) == 1 && len(g.awaited) > 0 {
		g.timer = time.AfterFunc(joinTimeout, g.start)
	}
	g.startIfCompleteLocked()
	return true
}

// Leave records that no member of a shard will join any more.
func (g *Gathering[M, E]) Leave(shard int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.awaited[shard] {
		delete(g.awaited, shard)
		g.startIfCompleteLocked()
	}
}

// startIfCompleteLocked starts a batch if no further member is awaited. The caller holds g.mu.
func (g *Gathering[M, E]) startIfCompleteLocked() {
	if len(g.awaited) == 0 {
		g.startLocked()
	}
}

// start starts a batch of the members that have joined.
func (g *Gathering[M, E]) start() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.startLocked()
}

// startLocked is start. The caller holds g.mu.
func (g *Gathering[M, E]) startLocked() {
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
	if len(g.joined) > 0 {
		go g.call(g.joined)
		g.joined = nil
	}
}

// EndTogether has the ends of shards reported together. It is called before any of them ends.
func (g *Gathering[M, E]) EndTogether(shards []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range shards {
		g.ending[s] = true
	}
}

// End records the end of a shard. It is reported when all shards of EndTogether have ended, or after endTimeout. End
// returns false, and reports nothing, if EndTogether has not been called for the shard.
func (g *Gathering[M, E]) End(shard int, end E) bool {
	last, ok := g.addEnd(shard, end)
	if last {
		g.ReportEnds()
	}
	return ok
}

// addEnd records an end, and reports whether no other is awaited.
func (g *Gathering[M, E]) addEnd(shard int, end E) (last, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ending[shard] {
		return false, false
	}
	delete(g.ending, shard)
	g.ends = append(g.ends, end)
	last = len(g.ending) == 0
	if !last && len(g.ends) == 1 {
		time.AfterFunc(endTimeout, g.ReportEnds)
	}
	return last, true
}

// ReportEnds reports the ends that wait.
func (g *Gathering[M, E]) ReportEnds() {
	g.mu.Lock()
	ends := g.ends
	g.ends = nil
	g.mu.Unlock()
	if len(ends) > 0 {
		g.report(ends)
	}
}
