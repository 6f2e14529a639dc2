package defined

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

func at(s int) record.Instant { return record.Instant(time.Duration(s) * time.Second) }

func TestEntry_Decide(t *testing.T) {
	awake := func(kind, created string, revision int) *planning.JobRecord {
		return &planning.JobRecord{Job: record.Job{Kind: kind, Created: created, Revision: revision}}
	}
	resting := Entry{Created: "t1", Kind: "k", Revision: 2, Next: at(1000)}
	finished := Entry{Created: "t1", Kind: "k", Revision: 2, DeleteAt: at(1000)}
	for _, of := range []struct {
		name   string
		entry  Entry
		beside Beside
		now    record.Instant
		step   Step
		again  record.Instant
	}{
		{"a job rests until half a minute before its fire", resting, Beside{}, at(969), Nothing, at(970)},
		{"a job wakes half a minute before its fire", resting, Beside{}, at(970), Wake, 0},
		{"a job wakes for an intent", resting, Beside{Wanted: true}, at(1), Wake, 0},
		{"a job wakes for one that follows it", resting, Beside{Followed: true}, at(1), Wake, 0},
		{"a job that is awake is left alone", resting, Beside{Awake: awake("k", "t1", 2), Planned: true}, at(2000), Nothing, 0},
		{"a job that is awake gets a newer definition", resting, Beside{Awake: awake("k", "t1", 1), Planned: true}, at(1), Update, 0},
		{"another creation that is awake is deleted first", resting, Beside{Awake: awake("k", "t0", 1), Planned: true}, at(2000), Nothing, 0},
		{"a job that was registered in code goes first", resting, Beside{Awake: awake("", "", 0)}, at(2000), Nothing, 0},
		{"a plan without a definition is left to the repair of record edits", resting, Beside{Planned: true}, at(2000), Nothing, 0},
		{"a job without a fire rests", Entry{Created: "t1", Kind: "k"}, Beside{}, at(2000), Nothing, 0},
		{"a finished job stays for a while", finished, Beside{}, at(999), Nothing, at(1000)},
		{"a finished job is deleted after that", finished, Beside{}, at(1000), Delete, 0},
		{"a finished job wakes for an intent", finished, Beside{Wanted: true}, at(2000), Wake, 0},
		{"a deleted job is deleted once it rests", Entry{}, Beside{}, at(1), Delete, 0},
		{"what is left of a deleted job stays for a while", Entry{DeleteAt: at(1000)}, Beside{Awake: awake("", "", 0)}, at(999), Nothing, at(1000)},
		{"what is left of a deleted job is deleted after that, whatever has its name", Entry{DeleteAt: at(1000)}, Beside{Awake: awake("", "", 0)}, at(1000), Bury, 0},
		{"a deleted job that is awake is left to planning", Entry{}, Beside{Awake: awake("k", "t1", 1)}, at(1), Nothing, 0},
	} {
		t.Run(of.name, func(t *testing.T) {
			step, again := of.entry.Decide(of.beside, of.now)
			assert.Equal(t, of.step, step)
			assert.Equal(t, of.again, again)
		})
	}
}

func TestIndex(t *testing.T) {
	// taken returns the segments with something to do, and about how many jobs the index decided.
	taken := func(x *Index, now record.Instant, most int) (segments []string, decided int) {
		for _, d := range x.Take(now, most, func(string) Beside { decided++; return Beside{} }) {
			segments = append(segments, d.Segment)
		}
		return segments, decided
	}
	filled := func(n int) *Index {
		x := &Index{}
		for i := range n {
			x.Put(fmt.Sprint("j", i), Entry{Created: "t", Kind: "k", Next: at(1000 + i)})
		}
		segments, decided := taken(x, 0, 1)
		require.Empty(t, segments)
		require.Equal(t, n, decided)
		return x
	}
	t.Run("decides about the jobs that are due, in their order, and about no other", func(t *testing.T) {
		x := filled(100_000)
		assert.Equal(t, at(970), x.NextDue())
		assert.False(t, x.HasWork(at(969)))
		segments, decided := taken(x, at(972), 10)
		assert.Equal(t, []string{"j0", "j1", "j2"}, segments)
		assert.Equal(t, 3, decided)
		assert.Equal(t, at(973), x.NextDue())
	})
	t.Run("decides about a changed job alone, however many there are", func(t *testing.T) {
		x := filled(100_000)
		x.Put("new", Entry{Created: "t", Kind: "k", Next: at(1)})
		x.Ask("j7")
		x.Ask("unknown")
		segments, decided := taken(x, at(1), 10)
		assert.Equal(t, []string{"new"}, segments)
		assert.Equal(t, 2, decided)
	})
	t.Run("leaves what is beyond the bound for the next call", func(t *testing.T) {
		x := filled(10)
		segments, _ := taken(x, at(2000), 4)
		assert.Len(t, segments, 4)
		assert.True(t, x.HasWork(at(2000)))
		segments, _ = taken(x, at(2000), 10)
		assert.Len(t, segments, 6)
		assert.Zero(t, x.NextDue())
	})
	t.Run("forgets a removed job", func(t *testing.T) {
		x := filled(1)
		x.Ask("j0")
		x.Remove("j0")
		x.Remove("j0")
		segments, decided := taken(x, at(2000), 10)
		assert.Empty(t, segments)
		assert.Zero(t, decided)
	})
	t.Run("counts jobs by kind, without deleted ones", func(t *testing.T) {
		x := filled(3)
		x.Put("j0", Entry{Created: "t", Kind: "other"})
		x.Put("j1", Entry{})
		assert.Equal(t, map[string]int{"k": 1, "other": 1}, x.Counts())
		x.Remove("j2")
		assert.Equal(t, map[string]int{"other": 1}, x.Counts())
	})
}

// TestIndex_TakesLessThanAKiBForEachJob holds the figure of docs/sizing.md.
func TestIndex_TakesLessThanAKiBForEachJob(t *testing.T) {
	const jobs = 20_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	x := &Index{}
	for i := range jobs {
		name := fmt.Sprintf("tenant-%06d/reminder", i)
		def := fmt.Sprintf(`{"created":"0123456789abcdef","kind":"reminder","max_attempts":3,"name":%q,"on_crash":"rerun elsewhere","on_misfire":"run once","param":"tenant %d","revision":1,"schedule":"cron 30 9 * * 1-5 in Europe/Paris","shards":1,"strategy":"sticky"}`, name, i)
		value, err := record.Encode(&record.Defined{Job: name, Created: "0123456789abcdef", Revision: 1, Definition: []byte(def), At: 1, Next: 2, By: record.Act{At: 1, By: "import", What: "define"}})
		require.NoError(t, err)
		e, err := NewEntry(registry.Entry{Key: registry.Key("ns/groups/g/defined/00").Join(record.Segment(name)), Value: slices.Clone(value)})
		require.NoError(t, err)
		x.Put(record.Segment(name), e)
	}
	x.Take(1, 1, func(string) Beside { return Beside{} })
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / jobs
	t.Logf("%d bytes for each job", each)
	assert.Less(t, each, int64(800), "the feed that fills the index takes some 200 more")
	runtime.KeepAlive(x)
}
