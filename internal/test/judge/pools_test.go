package judge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// poolAt returns an instant in seconds.
func poolAt(seconds float64) instant {
	return instantOf(time.Unix(1000, 0)).add(time.Duration(seconds * float64(time.Second)))
}

// runOf returns a run of a process from one second to another.
func runOf(holder string, start, end float64) poolRun {
	return poolRun{holder: holder, claimed: poolAt(start), start: poolAt(start), end: poolAt(end)}
}

func (r poolRun) canceledAt(seconds float64) poolRun {
	r.canceled = poolAt(seconds)
	return r
}

func (r poolRun) expiredAt(seconds float64) poolRun {
	r.expired = poolAt(seconds)
	return r
}

func TestCountPoolRuns(t *testing.T) {
	two := []poolSize{{from: poolAt(0), size: 2, known: poolAt(0)}}
	lowered := []poolSize{{from: poolAt(0), size: 3, known: poolAt(0)}, {from: poolAt(10), size: 1, known: poolAt(13)}}
	for _, c := range []struct {
		name  string
		sizes []poolSize
		runs  []poolRun
		most  int
		all   int
		over  int
	}{
		{"as many runs as slots", two, []poolRun{runOf("a", 1, 5), runOf("b", 2, 4), runOf("b", 4, 6), runOf("a", 5, 7)}, 2, 2, 0},
		{"one more is a violation", two, []poolRun{runOf("a", 1, 5), runOf("b", 2, 4), runOf("c", 3, 6)}, 3, 3, 1},
		{"without a size none may run", nil, []poolRun{runOf("a", 1, 5)}, 1, 1, 1},
		{"nor before the first size", two, []poolRun{runOf("a", -1, 5)}, 1, 1, 1},
		{
			"a handler that goes on although its context has ended counts no longer", two,
			[]poolRun{runOf("a", 1, 30).canceledAt(5), runOf("b", 2, 30), runOf("c", 6, 8), runOf("c", 8, 9)},
			2, 3, 0,
		},
		{
			"it counts until then", two,
			[]poolRun{runOf("a", 1, 30).canceledAt(5), runOf("b", 2, 30), runOf("c", 4, 8)},
			3, 3, 1,
		},
		{
			"a run of a suspended process counts until the store has ended its session", two,
			[]poolRun{runOf("a", 1, 30).canceledAt(30).expiredAt(10), runOf("a", 1, 30).canceledAt(30).expiredAt(10), runOf("b", 10, 12), runOf("c", 11, 20)},
			2, 4, 0,
		},
		{
			"while its session is there it counts", two,
			[]poolRun{runOf("a", 1, 30).canceledAt(30).expiredAt(10), runOf("a", 1, 30).canceledAt(30).expiredAt(10), runOf("b", 9, 12)},
			3, 3, 1,
		},
		{
			"it may begin runs that it has claimed before it notices, by as many as it had slots", two,
			[]poolRun{runOf("b", 10, 40), runOf("c", 11, 40), runOf("a", 30, 31).expiredAt(10), runOf("a", 30, 31).expiredAt(10)},
			2, 4, 0,
		},
		{
			"but not more", two,
			[]poolRun{runOf("a", 30, 31).expiredAt(10), runOf("a", 30, 31).expiredAt(10), runOf("a", 30, 31).expiredAt(10)},
			0, 3, 1,
		},
		{
			"runs go on when the size is lowered", lowered,
			[]poolRun{runOf("a", 9, 20), runOf("b", 9, 20), runOf("c", 12, 20)},
			3, 3, 0,
		},
		{
			"a smaller size is in force when they have ended", lowered,
			[]poolRun{runOf("a", 9, 20), runOf("b", 9, 20), runOf("b", 20, 22), runOf("c", 21, 22)},
			2, 2, 1,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			counts, over := countPoolRuns(c.runs, c.sizes)
			assert.Equal(t, poolCounts{c.most, c.all}, counts)
			assert.Len(t, over, c.over)
		})
	}
}

func TestLongestFree(t *testing.T) {
	sizes := []poolSize{{from: poolAt(0), size: 2}, {from: poolAt(50), size: 0}, {from: poolAt(60), size: 1}}
	runs := []poolRun{runOf("a", 1, 20), runOf("b", 5, 10), runOf("c", 13, 40), runOf("a", 22, 30), runOf("b", 70, 80)}
	free := freeSlots(runs, sizes, poolAt(100))
	for _, c := range []struct {
		name     string
		from, to float64
		want     span
	}{
		{"all slots are used", 5, 10, span{}},
		{"a slot is free until the next run", 5, 14, span{poolAt(10), poolAt(13)}},
		{"the longest of two times", 10, 30, span{poolAt(10), poolAt(13)}},
		{"only the part in the wait", 12, 40, span{poolAt(30), poolAt(40)}},
		{"a free slot may be another one", 30, 49, span{poolAt(30), poolAt(49)}},
		{"a pool of size 0 has none", 50, 60, span{}},
		{"a new size begins another time", 45, 75, span{poolAt(60), poolAt(70)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, c.want, longestFree(free, span{poolAt(c.from), poolAt(c.to)}))
		})
	}
}

func TestSetKnown_WaitsUntilNothingDisturbsTheFleet(t *testing.T) {
	o := New("ns", "default", Options{Promptly: time.Second}) // all act on a smaller size within 4 s
	known := func(unquiet ...span) []instant {
		sizes := []poolSize{{from: poolAt(0), size: 4}, {from: poolAt(10), size: 2}, {from: poolAt(11), size: 3}}
		o.setKnown(sizes, unquiet)
		return []instant{sizes[0].known, sizes[1].known, sizes[2].known}
	}
	assert.Equal(t, []instant{poolAt(0), poolAt(14), poolAt(14)}, known())
	assert.Equal(t, []instant{poolAt(0), poolAt(24), poolAt(24)}, known(span{poolAt(12), poolAt(16)}, span{poolAt(17), poolAt(20)}))
	assert.Equal(t, []instant{poolAt(0), poolAt(14), poolAt(14)}, known(span{poolAt(1), poolAt(9)}, span{poolAt(30), poolAt(40)}))
}

func TestJudgePools_ExcusesWaitsOnlyWhileAClientWithASessionIsDisturbed(t *testing.T) {
	judged := func(disturb func(o *Judge)) string {
		o := New("ns", "default", Options{Promptly: time.Second})
		o.sessions["S"] = &sessionState{client: "a"}
		o.sessions["T"] = &sessionState{client: "b", ended: true, end: poolAt(2).time()}
		o.now = poolAt(0).time()
		o.addPoolSizes(&controlRecord{Pools: map[string]int{"db": 1}})
		p := o.pool("db")
		p.waits = append(p.waits, poolWait{span{poolAt(20), poolAt(30)}, &jobState{name: "job"}, 3})
		disturb(o)
		o.now = poolAt(100).time()
		o.JudgePools()
		if err := o.report.Err(); err != nil {
			return err.Error()
		}
		return ""
	}
	disturbed := span{poolAt(10), poolAt(1e6)}
	assert.Contains(t, judged(func(*Judge) {}), "promise 16: job: shard 3: a run waited for a slot of pool db")
	assert.Empty(t, judged(func(o *Judge) { o.disturbances["a"] = []span{disturbed} }))
	assert.NotEmpty(t, judged(func(o *Judge) { o.disturbances["b"] = []span{disturbed} }), "its session has ended")
	assert.Empty(t, judged(func(o *Judge) { o.terms = []span{{poolAt(21), poolAt(24)}} }))
	assert.Empty(t, judged(func(o *Judge) {
		o.pool("db").runs = []poolRun{runOf("a", 22, 29)}
	}), "a run had the slot")
	assert.Contains(t, judged(func(o *Judge) { o.pool("db").runs = []poolRun{runOf("a", 25, 29)} }), "a slot was free")
}
