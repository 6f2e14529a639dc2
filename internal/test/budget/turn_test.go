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

// turn is a fire on one instance.
type turn struct {
	instance string
	fire     record.Instant
}

// cost is the cost of a turn.
type cost struct {
	commits int         // that start runs of the turn, or end some and start none
	claims  int         // of these, commits that start runs
	jobs    int         // with started runs
	bytes   int         // size of the largest commit
	ends    []time.Time // times of the commits that end runs
}

// window is the longest time that the end of a run waits to share a commit.
const window = 100 * time.Millisecond

// turnCounter counts the cost of turns.
type turnCounter struct {
	fleet *fleet
	turns map[turn]*cost
}

// addCommits counts commits that the fleet has not applied yet.
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
			continue // of an earlier turn, in the same commit as a claim: free
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

// refs yields the runs with shards in a that are missing in b.
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

// runEnds makes runs return together, some time after the fire, and records when they do.
type runEnds struct {
	after time.Duration

	mu    sync.Mutex
	first map[turn]time.Time
}

func endTogether(after time.Duration) *runEnds {
	return &runEnds{after: after, first: map[turn]time.Time{}}
}

// handler returns a handler that makes runs return together, with the result of then if
// it is not nil.
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

// spread reports whether the runs of a turn ended too far apart to share a commit, on a
// machine too busy for them: each commit of ends but the last was made after its first
// end had waited for a full window.
func (e *runEnds) spread(t turn, n *cost) bool {
	e.mu.Lock()
	first := e.first[t]
	e.mu.Unlock()
	extra := len(n.ends) - 1
	return extra > 0 && n.ends[extra-1].Sub(first) >= time.Duration(extra)*window
}
