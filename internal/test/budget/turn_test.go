package budget_test

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/test/judge"
)

// turn is a fire on an instance.
type turn struct {
	instance string
	fire     record.Instant
}

// cost is what a turn took.
type cost struct {
	commits int         // that begin runs of it, or end some and begin none
	claims  int         // of these, those that begin some
	jobs    int         // of which runs were begun
	bytes   int         // of the largest commit
	ends    []time.Time // when the commits that end some were made
}

// window is how long the end of a run may wait for others to share its commit.
const window = 100 * time.Millisecond

// turnCounter counts what turns cost.
type turnCounter struct {
	fleet *fleet
	turns map[turn]*cost
}

// addCommits counts commits, which the fleet has not taken in yet.
func (l *turnCounter) addCommits(commits []judge.Commit) {
	for _, c := range commits {
		begun, ended := map[turn]int{}, map[turn]bool{}
		for _, op := range c.Then {
			if !strings.Contains(string(op.Key), "/claims/") {
				l.fleet.applyOp(op)
				continue
			}
			before := l.fleet.claims[op.Key].Running
			l.fleet.applyOp(op)
			after := l.fleet.claims[op.Key].Running
			instance := nameIn(op.Key.Dir().Name())
			for ref := range refs(after, before) {
				begun[turn{instance, ref.Fire}]++
			}
			for ref := range refs(before, after) {
				ended[turn{instance, ref.Fire}] = true
			}
		}
		l.countCommit(c, begun, ended)
	}
}

func (l *turnCounter) countCommit(c judge.Commit, begun map[turn]int, ended map[turn]bool) {
	for t, jobs := range begun {
		n := l.costOf(t)
		n.claims++
		n.jobs += jobs
		n.addCommit(c)
	}
	for t := range ended {
		if l.turns[t] == nil && len(begun) > 0 {
			continue // of before the count, and with a claim: it costs nothing now
		}
		n := l.costOf(t)
		n.ends = append(n.ends, c.At)
		if len(begun) == 0 {
			n.addCommit(c)
		}
	}
}

func (l *turnCounter) costOf(t turn) *cost {
	if l.turns[t] == nil {
		l.turns[t] = &cost{}
	}
	return l.turns[t]
}

func (n *cost) addCommit(c judge.Commit) {
	n.commits++
	n.bytes = max(n.bytes, bytesOf(c))
}

// refs yields the runs of which a has shards that b has not.
func refs(a, b record.Runs) func(yield func(record.Ref) bool) {
	return func(yield func(record.Ref) bool) {
		for _, g := range a {
			left := g.Shards
			for _, o := range b {
				if o.Ref == g.Ref {
					left = left.Minus(o.Shards)
				}
			}
			if !left.IsZero() && !yield(g.Ref) {
				return
			}
		}
	}
}

// runEnds notes when runs return, which it makes them do together: some time after the fire.
type runEnds struct {
	after time.Duration

	mu    sync.Mutex
	first map[turn]time.Time
}

func endTogether(after time.Duration) *runEnds {
	return &runEnds{after: after, first: map[turn]time.Time{}}
}

// handler returns what makes runs return together, with what then returns if it is not nil.
func (e *runEnds) handler(then executor.Handler) executor.HandlerFunc {
	return func(ctx context.Context, r *executor.Run) error {
		t := time.NewTimer(time.Until(r.FireTime.Add(e.after)))
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		this := turn{r.Instance, record.InstantOf(r.FireTime)}
		if e.first[this].IsZero() {
			e.first[this] = time.Now()
		}
		if then != nil {
			return then.Handle(ctx, r)
		}
		return nil
	}
}

// spread reports whether the runs of a turn ended so far apart, on a machine that had no
// time for them, that their ends could not share a commit: each commit of ends but the last
// was made when the first end that it has had waited for others as long as it may.
func (e *runEnds) spread(t turn, n *cost) bool {
	e.mu.Lock()
	first := e.first[t]
	e.mu.Unlock()
	extra := len(n.ends) - 1
	return extra > 0 && n.ends[extra-1].Sub(first) >= time.Duration(extra)*window
}
