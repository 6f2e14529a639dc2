package member_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// definer writes records of defined jobs as operators do.
type definer struct {
	g *membertest.Group
}

// start starts a member that has the kind "note".
func (d definer) start(name string, work func(context.Context, claimer.Run) error) *membertest.Worker {
	w := d.g.NewWorker(name, work)
	w.Compiler = executor.Compile
	w.OfferKinds(record.Kind{Name: "note"})
	return d.g.JoinWorker(w)
}

// define stores a job of the kind "note". More are further fields of the definition.
func (d definer) define(job, created string, revision int, schedule, more string, change func(*record.Defined)) {
	def := fmt.Sprintf(`{"created":%q,"kind":"note","max_attempts":3,"name":%q,"on_crash":"rerun elsewhere","on_misfire":"run once","revision":%d,"schedule":%q,"shards":1,"strategy":"sticky"%s}`,
		created, job, revision, schedule, more)
	now := record.InstantOf(time.Now())
	rec := record.Defined{Job: job, Created: created, Revision: revision, Definition: json.RawMessage(def), At: now, Next: now}
	key := d.g.Keys.Defined(record.Segment(job))
	if old, ok := d.g.GetRecord(key); ok {
		stored, err := record.DecodeDefined(old.Value)
		require.NoError(d.g.T, err)
		if stored.Created == created {
			rec.Rest, rec.At, rec.Next = stored.Rest, stored.At, stored.Next
		}
	}
	if change != nil {
		change(&rec)
	}
	value, err := record.Encode(&rec)
	require.NoError(d.g.T, err)
	if _, ok := d.g.GetRecord(d.g.Keys.KindCounts()); !ok {
		d.g.PutRecord(d.g.Keys.KindCounts(), "{}")
	}
	d.g.PutRecord(key, string(value))
	synctest.Wait()
}

// remove stores that a job is deleted.
func (d definer) remove(job string) {
	value, err := record.Encode(&record.Defined{Job: job})
	require.NoError(d.g.T, err)
	d.g.PutRecord(d.g.Keys.Defined(record.Segment(job)), string(value))
	synctest.Wait()
}

// read returns the record of a defined job, nil if there is none.
func (d definer) read(job string) *record.Defined {
	e, ok := d.g.GetRecord(d.g.Keys.Defined(record.Segment(job)))
	if !ok {
		return nil
	}
	rec, err := record.DecodeDefined(e.Value)
	require.NoError(d.g.T, err)
	return rec
}

// records returns the keys of a job's records, other than those in buckets and in control.
func (d definer) records(job string) (keys []registry.Key) {
	for _, e := range d.g.Server.Dump() {
		if e.Key.Name() == record.Segment(job) && !strings.Contains(string(e.Key), "/defined/") && !strings.Contains(string(e.Key), "/control/") {
			keys = append(keys, e.Key)
		}
	}
	return keys
}

func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestDefined(t *testing.T) {
	run := func(name string, f func(*testing.T, definer)) {
		t.Helper()
		membertest.RunBubble(t, name, func(t *testing.T, g *membertest.Group) { f(t, definer{g}) })
	}
	fires := func(w *membertest.Worker) (at []string) {
		for _, r := range w.TakeRuns() {
			at = append(at, r.Fire.UTC().Format("15:04:05"))
		}
		return at
	}
	run("a one-off runs at its instant and leaves one record", func(t *testing.T, d definer) {
		w := d.start("a", nil)
		d.define("x", "t1", 1, "at 2000-01-01T00:00:05Z", "", nil)
		sleep(10 * time.Second)
		assert.Equal(t, []string{"00:00:05"}, fires(w))
		sleep(time.Minute)
		assert.Empty(t, d.records("x"))
		rec := d.read("x")
		require.NotNil(t, rec)
		require.NotNil(t, rec.Rest)
		assert.NotZero(t, rec.Rest.Finished)
		assert.EqualValues(t, 1, rec.Rest.Counts.Succeeded)
		sleep(time.Hour)
		assert.Nil(t, d.read("x"), "it is deleted an hour after its end")
		assert.Empty(t, fires(w))
	})
	run("a job rests between its fires, and none is lost or doubled", func(t *testing.T, d definer) {
		w := d.start("a", nil)
		d.define("x", "t1", 1, "every 10m", "", nil)
		var asleep int
		for range 120 {
			sleep(30 * time.Second)
			if len(d.records("x")) == 0 {
				asleep++
			}
		}
		assert.Equal(t, []string{"00:10:00", "00:20:00", "00:30:00", "00:40:00", "00:50:00", "01:00:00"}, fires(w))
		assert.Greater(t, asleep, 80)
		assert.EqualValues(t, 6, d.read("x").Rest.Number, "rests")
	})
	run("fires are owed that came due while no instance was there", func(t *testing.T, d definer) {
		w := d.start("a", nil)
		d.define("x", "t1", 1, "every 10m", `,"on_misfire":"run all 100"`, nil)
		sleep(11 * time.Minute)
		assert.Equal(t, []string{"00:10:00"}, fires(w))
		sleep(2 * time.Minute)
		require.Empty(t, d.records("x"))
		w.Shutdown()
		sleep(20 * time.Minute)
		w = d.start("b", nil)
		sleep(10 * time.Second)
		assert.Equal(t, []string{"00:20:00", "00:30:00"}, fires(w))
	})
	run("a new revision applies to a job that rests and to one that is awake", func(t *testing.T, d definer) {
		w := d.start("a", nil)
		d.define("x", "t1", 1, "every 10m", "", nil)
		sleep(3 * time.Minute)
		require.Empty(t, d.records("x"))
		d.define("x", "t1", 2, "every 1m", "", func(r *record.Defined) { r.Next = record.InstantOf(time.Now()); r.Changed = r.Next })
		sleep(130 * time.Second)
		assert.Len(t, fires(w), 2)
		d.define("x", "t1", 3, "every 1h", "", nil)
		sleep(5 * time.Minute)
		assert.LessOrEqual(t, len(fires(w)), 1)
		assert.Empty(t, d.records("x"))
	})
	run("a trigger wakes a job, and it rests after that", func(t *testing.T, d definer) {
		w := d.start("a", nil)
		d.define("x", "t1", 1, "on trigger", "", func(r *record.Defined) { r.Next = 0 })
		sleep(time.Minute)
		assert.Empty(t, d.records("x"))
		control, err := record.Encode(&record.Control{Job: "x", LastTrigger: 1, Triggers: []record.Trigger{{Number: 1, At: record.InstantOf(time.Now())}}})
		require.NoError(t, err)
		d.g.PutRecord(d.g.Keys.Control("x"), string(control))
		sleep(5 * time.Second)
		assert.Len(t, w.TakeRuns(), 1)
		sleep(3 * time.Minute)
		assert.Empty(t, d.records("x"))
		assert.EqualValues(t, 1, d.read("x").Rest.Trigger)
		assert.Zero(t, d.read("x").Rest.Finished, "a job without a schedule is never finished")
	})
	run("a deleted job is claimed no more, and leaves a tombstone for five minutes", func(t *testing.T, d definer) {
		w := d.start("a", membertest.WorkFor(20*time.Second))
		d.define("x", "t1", 1, "every 1m", "", nil)
		sleep(65 * time.Second)
		require.Len(t, w.TakeRuns(), 1)
		d.remove("x")
		sleep(5 * time.Second)
		assert.True(t, d.g.ReadPlan("x").Paused, "its run goes on")
		sleep(30 * time.Second)
		assert.Empty(t, d.records("x"))
		assert.True(t, d.read("x").IsGone())
		sleep(5 * time.Minute)
		assert.Nil(t, d.read("x"))
		assert.Empty(t, w.TakeRuns())
	})
	run("a name that is defined again at once is another job", func(t *testing.T, d definer) {
		w := d.start("a", membertest.WorkFor(20*time.Second))
		d.define("x", "t1", 1, "every 1m", "", nil)
		sleep(65 * time.Second)
		require.Len(t, w.TakeRuns(), 1)
		d.remove("x")
		d.define("x", "t2", 1, "every 1m", "", nil)
		sleep(40 * time.Second)
		assert.Equal(t, "t2.0", d.g.ReadPlan("x").Life)
		sleep(time.Minute)
		runs := w.TakeRuns()
		require.NotEmpty(t, runs)
		assert.Equal(t, "00:02:00", runs[0].Fire.UTC().Format("15:04:05"))
	})
	run("the next leader knows which jobs rest", func(t *testing.T, d definer) {
		a := d.start("a", nil)
		b := d.start("b", nil)
		d.define("x", "t1", 1, "every 10m", "", nil)
		sleep(3 * time.Minute)
		require.Empty(t, d.records("x"))
		a.Shutdown()
		sleep(8 * time.Minute)
		assert.Equal(t, []string{"00:10:00"}, fires(b))
	})
	run("a run that crashed is made again before the job rests", func(t *testing.T, d definer) {
		a := d.start("a", membertest.WorkFor(time.Hour))
		b := d.start("b", nil)
		d.define("x", "t1", 1, "at 2000-01-01T00:00:30Z", "", nil)
		d.define("y", "t1", 1, "at 2000-01-01T00:00:30Z", "", nil)
		sleep(40 * time.Second)
		d.g.Server.Expire("a")
		sleep(10 * time.Second)
		a.Abandon()
		sleep(2 * time.Minute)
		assert.Len(t, b.TakeRuns(), 2)
		assert.Empty(t, d.records("x"))
		assert.EqualValues(t, 1, d.read("x").Rest.Counts.Succeeded)
	})
	run("of two kinds of one name the higher revision is stored", func(t *testing.T, d definer) {
		for _, revision := range []int{1, 3, 2} {
			w := d.g.NewWorker(fmt.Sprintf("r%d", revision), nil)
			w.OfferKinds(record.Kind{Name: "note", Revision: revision})
			d.g.JoinWorker(w)
		}
		e, ok := d.g.GetRecord(d.g.Keys.Kind("note"))
		require.True(t, ok)
		k, err := record.DecodeKind(e.Value)
		require.NoError(t, err)
		assert.Equal(t, 3, k.Revision)
	})
	run("a plan rests on the record of the defined job as known", func(t *testing.T, d definer) {
		w := d.start("a", nil)
		d.g.Server.Delay("a", 0, 2*time.Second) // its watches are late
		d.define("x", "t1", 1, "every 1m", "", nil)
		sleep(4 * time.Second) // it has woken
		d.define("x", "t1", 2, "every 1m", `,"param":"new"`, nil)
		d.g.Server.Delay("a", 0, 0)
		sleep(10 * time.Second)
		assert.Contains(t, string(d.g.ReadPlan("x").Last().Def), "new")
		sleep(time.Minute)
		assert.Len(t, w.TakeRuns(), 1)
	})
	run("members without the kind own nothing", func(t *testing.T, d definer) {
		d.g.Start("a", coordtest.Def("other", 0, 1, ""))
		d.define("x", "t1", 1, "every 1m", "", nil)
		sleep(time.Minute)
		_, planned := d.g.GetRecord(d.g.Keys.Plan("x"))
		assert.False(t, planned)
		w := d.start("b", nil)
		sleep(time.Minute)
		assert.NotEmpty(t, w.TakeRuns())
	})
}
