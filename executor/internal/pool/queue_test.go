package pool

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func at(second int) time.Time { return time.Unix(int64(second), 0) }

// drain returns the jobs whose tasks may run now, in the order in which they begin.
func (q *queue) drain() (jobs []string) {
	for t := q.startNext(); t != nil; t = q.startNext() {
		jobs = append(jobs, t.Job)
	}
	return jobs
}

// waitingShards returns the shards of a job that wait.
func (q *queue) waitingShards(job string) (shards []int) {
	for t := range q.lanes[Lane{Name: job}].waiting.all() {
		shards = append(shards, t.Shard)
	}
	return shards
}

func (q *queue) adds(tasks ...*Task) {
	for _, t := range tasks {
		q.add(t)
	}
}

func TestQueue(t *testing.T) {
	t.Run("without bounds runs all at once", func(t *testing.T) {
		var q queue
		q.adds(&Task{Job: "a"}, &Task{Job: "b"}, &Task{Job: "a"})
		assert.Len(t, q.drain(), 3)
	})
	t.Run("runs earlier fires of a job first, whenever they came", func(t *testing.T) {
		q := queue{bound: 1}
		late, early, same := &Task{Job: "a", Fire: at(2)}, &Task{Job: "a", Fire: at(1)}, &Task{Job: "a", Fire: at(1)}
		q.adds(late, early, same)
		for _, want := range []*Task{early, same, late} {
			assert.Same(t, want, q.startNext())
			assert.Nil(t, q.startNext())
			q.finishTask(&Task{Job: "a"})
		}
	})
	t.Run("bounds each job on its own, and holds up no other", func(t *testing.T) {
		var q queue
		q.setBound(Lane{Name: "long"}, 2)
		for i := range 10_000 {
			q.add(&Task{Job: "long", Shard: i, Fire: at(1)})
		}
		q.add(&Task{Job: "short", Fire: at(2)})
		assert.ElementsMatch(t, []string{"long", "long", "short"}, q.drain())
		q.finishTask(&Task{Job: "long"})
		assert.Equal(t, []string{"long"}, q.drain())
	})
	t.Run("starts joined tasks with the one before them, as one for the bounds", func(t *testing.T) {
		q := queue{bound: 2}
		q.setBound(Lane{Name: "a"}, 1)
		first, second, alone := &Task{Job: "a", Fire: at(1)}, &Task{Job: "a", Fire: at(1), Shard: 1, Joined: true}, &Task{Job: "a", Fire: at(1), Shard: 2}
		next, last := &Task{Job: "a", Fire: at(1), Shard: 3}, &Task{Job: "a", Fire: at(1), Shard: 4, Joined: true}
		early := &Task{Job: "a", Fire: at(0)}
		q.adds(first, second, alone, next, last, early, &Task{Job: "b", Fire: at(9)})
		assert.Equal(t, []int{0, 0, 1, 2, 3, 4}, slices.Sorted(slices.Values(q.waitingShards("a"))), "each waits")
		assert.Same(t, early, q.startNext())
		assert.Equal(t, "b", q.startNext().Job)
		for _, want := range []*Task{first, alone, next} {
			assert.Nil(t, q.startNext())
			q.finishTask(&Task{Job: "a"})
			assert.Same(t, want, q.startNext())
		}
		q.finishTask(&Task{Job: "a"})
		q.finishTask(&Task{Job: "b"})
		assert.Nil(t, q.startNext())
		assert.Zero(t, q.waiting)
		assert.Zero(t, q.running)
	})
	t.Run("gives the next worker to the job with the fewest running", func(t *testing.T) {
		q := queue{bound: 3}
		for i := range 8 {
			q.add(&Task{Job: "long", Fire: at(i)})
		}
		require.Equal(t, []string{"long", "long", "long"}, q.drain())
		q.adds(&Task{Job: "short", Fire: at(100)}, &Task{Job: "short", Fire: at(101)}, &Task{Job: "shorter", Fire: at(102)})
		var order []string
		for range 3 {
			q.finishTask(&Task{Job: "long"})
			order = append(order, q.drain()...)
		}
		assert.Equal(t, []string{"short", "shorter", "long"}, order, "after two, each job has one running, and the rest of long is due")
	})
	t.Run("of jobs with as many running takes the one with the earliest fire", func(t *testing.T) {
		q := queue{bound: 1}
		q.add(&Task{Job: "x"})
		require.Len(t, q.drain(), 1)
		q.adds(&Task{Job: "a", Fire: at(3)}, &Task{Job: "b", Fire: at(2)}, &Task{Job: "c", Fire: at(1)}, &Task{Job: "d", Fire: at(1)})
		running := "x"
		for _, want := range []string{"c", "d", "b", "a"} {
			q.finishTask(&Task{Job: running})
			assert.Equal(t, []string{want}, q.drain())
			running = want
		}
	})
	t.Run("passes over a job at its own bound, though it has the fewest running", func(t *testing.T) {
		q := queue{bound: 4}
		q.setBound(Lane{Name: "a"}, 1)
		q.adds(&Task{Job: "a"}, &Task{Job: "a"}, &Task{Job: "b"}, &Task{Job: "b"}, &Task{Job: "b"})
		assert.Equal(t, []string{"a", "b", "b", "b"}, q.drain())
	})
	t.Run("bounds the jobs of a kind together, the earliest fire of any first, and no job of the kind's name", func(t *testing.T) {
		var q queue
		q.setBound(Lane{"mail", true}, 2)
		first, second := &Task{Job: "x", Kind: "mail", Fire: at(1)}, &Task{Job: "y", Kind: "mail", Fire: at(3)}
		third, fourth := &Task{Job: "z", Kind: "mail", Fire: at(4)}, &Task{Job: "x", Kind: "mail", Fire: at(5)}
		q.adds(fourth, third, second, first, &Task{Job: "mail", Fire: at(9)}, &Task{Job: "mail", Fire: at(9)})
		assert.ElementsMatch(t, []string{"x", "y", "mail", "mail"}, q.drain())
		q.finishTask(second)
		assert.Same(t, third, q.startNext())
		q.finishTask(first)
		assert.Same(t, fourth, q.startNext())
	})
	t.Run("counts the jobs of a kind that have tasks, and forgets the others", func(t *testing.T) {
		p := New(Options{})
		q := &p.queue
		q.setBound(Lane{"mail", true}, 1)
		for i := range 1000 {
			q.add(&Task{Job: fmt.Sprint("job-", i), Kind: "mail", Fire: at(i)})
		}
		q.add(&Task{Job: "job-0", Kind: "mail", Fire: at(2000)})
		begun := q.startNext()
		assert.Len(t, p.CountByJob(), 1000)
		assert.Equal(t, Counts{1, 1, "mail"}, p.CountByJob()["job-0"])
		assert.Equal(t, Counts{0, 1, "mail"}, p.CountByJob()["job-1"])
		for ; begun != nil; begun = q.startNext() {
			q.finishTask(begun)
		}
		assert.Empty(t, p.CountByJob())
		assert.Empty(t, q.laneQueue(Lane{"mail", true}).jobs)
		assert.Len(t, q.lanes, 1)
	})
	t.Run("lets more run once the bound of a job is raised, and stops none when it is lowered", func(t *testing.T) {
		var q queue
		q.setBound(Lane{Name: "a"}, 1)
		q.adds(&Task{Job: "a"}, &Task{Job: "a"}, &Task{Job: "a"}, &Task{Job: "a"})
		assert.Len(t, q.drain(), 1)
		q.setBound(Lane{Name: "a"}, 3)
		assert.Len(t, q.drain(), 2)
		q.setBound(Lane{Name: "a"}, 1)
		q.finishTask(&Task{Job: "a"})
		q.finishTask(&Task{Job: "a"})
		assert.Empty(t, q.drain())
		q.finishTask(&Task{Job: "a"})
		assert.Len(t, q.drain(), 1)
	})
}

// naiveQueue is a queue that looks at everything each time.
type naiveQueue struct {
	bound   int
	bounds  map[Lane]int
	running map[Lane]int
	waiting []*Task // in the order of arrival
}

func (n *naiveQueue) next() *Task {
	all := 0
	for _, r := range n.running {
		all += r
	}
	if n.bound > 0 && all >= n.bound {
		return nil
	}
	best := -1
	for i, t := range n.waiting {
		if bound := n.bounds[t.lane()]; bound > 0 && n.running[t.lane()] >= bound {
			continue
		}
		if best < 0 || n.before(t, n.waiting[best]) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	t := n.waiting[best]
	n.waiting = slices.Delete(n.waiting, best, best+1)
	n.running[t.lane()]++
	return t
}

func (n *naiveQueue) before(t, o *Task) bool {
	if r, s := n.running[t.lane()], n.running[o.lane()]; r != s {
		return r < s
	}
	return t.Fire.Before(o.Fire)
}

// TestQueue_DecidesLikeItsTwin makes a queue and its naive twin do the same at random.
func TestQueue_DecidesLikeItsTwin(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, seed))
		names := []string{"a", "b", "c", "d", "e"}[:1+rng.IntN(5)]
		q := queue{bound: rng.IntN(5)}
		n := naiveQueue{bound: q.bound, bounds: map[Lane]int{}, running: map[Lane]int{}}
		fires := 1 + rng.IntN(20)
		var running []*Task
		for range 400 {
			of := Task{Job: names[rng.IntN(len(names))], Kind: []string{"", "a", "b"}[rng.IntN(3)]}
			switch rng.IntN(8) {
			case 0:
				bound := rng.IntN(4)
				q.setBound(of.lane(), bound)
				n.bounds[of.lane()] = bound
			case 1, 2, 3:
				task := &Task{Job: of.Job, Kind: of.Kind, Fire: at(rng.IntN(fires))}
				q.add(task)
				n.waiting = append(n.waiting, task)
			case 4, 5:
				got := q.startNext()
				require.Same(t, n.next(), got, "seed %d", seed)
				if got != nil {
					running = append(running, got)
				}
			default:
				if len(running) == 0 {
					continue
				}
				i := rng.IntN(len(running))
				ended := running[i]
				running = slices.Delete(running, i, i+1)
				q.finishTask(ended)
				n.running[ended.lane()]--
			}
			require.Equal(t, len(n.waiting), q.waiting, "seed %d", seed)
			require.Equal(t, len(running), q.running, "seed %d", seed)
		}
	}
}

// TestQueue_AnEndLetsOneTaskRunAtMost is what lets a worker go on with a single task.
func TestQueue_AnEndLetsOneTaskRunAtMost(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, seed))
		q := queue{bound: rng.IntN(6)}
		for _, job := range []string{"a", "b", "c"} {
			q.setBound(Lane{Name: job}, rng.IntN(4))
		}
		var running []string
		for range 200 {
			q.add(&Task{Job: []string{"a", "b", "c"}[rng.IntN(3)], Fire: at(rng.IntN(5))})
			running = append(running, q.drain()...)
			for rng.IntN(2) == 0 && len(running) > 0 {
				i := rng.IntN(len(running))
				q.finishTask(&Task{Job: running[i]})
				running = slices.Delete(running, i, i+1)
				began := q.drain()
				require.LessOrEqual(t, len(began), 1, "seed %d", seed)
				running = append(running, began...)
			}
		}
	}
}
