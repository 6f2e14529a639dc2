package operator_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/test/recordedit"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

// damaged is a registry whose reads show some records deleted, overwritten or as foreign values. The fleet,
// which reads by other handles, does not repair that.
type damaged struct {
	registry.Registry
	deleted, foreign map[registry.Key]bool
	values           map[registry.Key]string
}

func (d *damaged) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	switch {
	case d.foreign[key]:
		return registry.Entry{}, fmt.Errorf("%s: %w", key, registry.ErrForeign)
	case d.deleted[key]:
		return registry.Entry{}, registry.ErrNotFound
	}
	e, err := d.Registry.Get(ctx, key, o)
	if v, ok := d.values[key]; ok && err == nil {
		e.Value = []byte(v)
	}
	return e, err
}

func (d *damaged) List(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
	l, err := d.Registry.List(ctx, dir, o)
	l.Entries = slices.DeleteFunc(slices.Clone(l.Entries), func(e registry.Entry) bool { return d.deleted[e.Key] || d.foreign[e.Key] })
	for i, e := range l.Entries {
		if v, ok := d.values[e.Key]; ok {
			l.Entries[i].Value = []byte(v)
		}
	}
	return l, err
}

// Watch leaves out foreign values, as lists do.
func (d *damaged) Watch(ctx context.Context, dir registry.Key, o registry.WatchOptions) (registry.Watcher, error) {
	w, err := d.Registry.Watch(ctx, dir, o)
	return damagedWatcher{w, d}, err
}

type damagedWatcher struct {
	registry.Watcher
	of *damaged
}

func (w damagedWatcher) Next(ctx context.Context) (registry.Batch, error) {
	b, err := w.Watcher.Next(ctx)
	b.Puts = slices.DeleteFunc(slices.Clone(b.Puts), func(e registry.Entry) bool { return w.of.foreign[e.Key] })
	return b, err
}

func diagnose(t *testing.T, reg registry.Registry) []operator.Finding {
	t.Helper()
	o, err := operator.New(reg, "test", "")
	require.NoError(t, err)
	d, err := o.Diagnose(t.Context())
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now(), d.At, time.Second)
	for _, f := range d.Findings {
		assert.NotEmpty(t, f.What)
		assert.NotEmpty(t, f.Do, f.What)
		assert.Contains(t, []string{"info", "warning", "error"}, f.Severity.String())
	}
	assert.True(t, slices.IsSortedFunc(d.Findings, func(a, b operator.Finding) int { return int(b.Severity - a.Severity) }))
	return d.Findings
}

// find returns the findings of a kind, with the key if it is not empty.
func find(findings []operator.Finding, kind operator.FindingKind, key registry.Key) (out []operator.Finding) {
	for _, f := range findings {
		if f.Kind == kind && (key == "" || f.Key == key) {
			out = append(out, f)
		}
	}
	return out
}

func TestOperator_Diagnose(t *testing.T) {
	membertest.RunBubble(t, "finds nothing in a sound group", func(t *testing.T, g *membertest.Group) {
		assert.Empty(t, diagnose(t, g.NewEditor()), "an empty namespace")
		g.StartFleet(3)
		require.NoError(t, g.Members[0].Pause(t.Context(), "job"))
		require.NoError(t, g.Members[0].Disable(t.Context(), operator.Scope{Hosts: []string{"elsewhere"}}))
		membertest.SleepToMinute(2)
		assert.Empty(t, diagnose(t, g.NewEditor()))
	})
	membertest.RunBubble(t, "finds ten kinds of damage at once, while another job goes on firing", func(t *testing.T, g *membertest.Group) {
		healthy := coordtest.Def("job", 0, 12, "")
		g.SetClock("d", time.Hour)
		a := g.StartWorking("a", nil, healthy, coordtest.Def("labelled", 0, 2, `,"run_on":{"gpu":"yes"}`), coordtest.Def("lunar", 0, 2, coordtest.UnsupportedSchedule))
		slow := g.StartWorking("b", membertest.WorkFor(time.Hour), healthy, coordtest.Def("slow", 0, 2, ""))
		g.Start("c", healthy)
		g.Start("d", healthy)
		g.StartOldVersion("e", healthy, coordtest.Def("lunar", 0, 2, coordtest.UnsupportedSchedule))
		gone := g.Start("f", coordtest.Def("lonely", 0, 3, ""))
		gone.Shutdown()
		membertest.SleepToMinute(1)
		k := g.Keys
		g.PutRecord(k.Control("lonely"), "garbage {")
		g.PutRecord(k.Plan("ghost"), "garbage {")
		g.PutRecord(k.Plan("future"), `{"format":99}`)
		g.PutRecord(k.Control("nodef"), `{"job":"nodef"}`)
		g.PutRecord(k.Member("x.99"), `{"name":"x","session":"99","jobs":["job"],"restart_grace":"1h"}`)
		g.PutRecord(k.Claims("x.99", "job"), `{"job":"other"}`)
		g.RemoveRecord(k.Meta())
		require.NoError(t, a.Disable(t.Context(), operator.Scope{Job: "slow", Instances: []string{"b"}}))
		membertest.SleepToMinute(4)
		reg := &damaged{Registry: g.NewEditor(), foreign: map[registry.Key]bool{k.Plan("job"): true}}
		findings := diagnose(t, reg)
		for _, want := range []struct {
			kind operator.FindingKind
			key  registry.Key
			job  string
			what string
		}{
			{operator.FindingUnreadable, k.Control("lonely"), "lonely", "cannot be read: invalid character"},
			{operator.FindingUnreadable, k.Plan("ghost"), "", "cannot be read"},
			{operator.FindingUnreadable, k.Claims("x.99", "job"), "job", `record of job "other"`},
			{operator.FindingFormat, k.Plan("future"), "", "format 99"},
			{operator.FindingForeign, k.Plan("job"), "", "another program"},
			{operator.FindingOrphaned, k.Control("nodef"), "nodef", "without a stored definition"},
			{operator.FindingMissing, k.Meta(), "", "namespace is missing"},
			{operator.FindingExpired, k.Member("x.99"), "", "session of x has expired"},
			{operator.FindingClock, k.Member(g.Members[3].Incarnation()), "", "clock of d is 1h0m0s ahead"},
			{operator.FindingUnoffered, k.Plan("lonely"), "lonely", "3 of 3 shards have no owner (0-2): no live instance offers the job"},
			{operator.FindingUnsupported, k.Member(g.Members[4].Incarnation()), "lunar", "e registers the job"},
			{operator.FindingUnowned, k.Plan("labelled"), "labelled", "has the labels gpu=yes"},
			{operator.FindingStuck, k.Plan("slow"), "slow", "shards 0-1; they move when their runs have ended"},
		} {
			found := find(findings, want.kind, want.key)
			if assert.Len(t, found, 1, "%s %s in %+v", want.kind, want.key, findings) {
				assert.Equal(t, want.job, found[0].Job, found[0].What)
				assert.Contains(t, found[0].What, want.what)
			}
		}
		assert.NotNil(t, slow)
		for _, w := range g.Members {
			w.TakeRuns()
		}
		membertest.SleepToMinute(5)
		ran := map[int]int{}
		for _, w := range g.Members {
			for _, r := range w.TakeRuns() {
				if r.Job == "job" {
					ran[r.Shard]++
				}
			}
		}
		assert.NotEmpty(t, ran)
		for s := range 12 {
			if g.ReadPlan("job").OwnerOf(s) != slow.Incarnation() { // its handlers take an hour
				assert.Equal(t, 1, ran[s], "shard %d of the sound job", s)
			}
		}
	})
	membertest.RunBubble(t, "finds each kind of record deleted, overwritten or foreign", func(t *testing.T, g *membertest.Group) {
		g.StartFleet(3)
		require.NoError(t, g.Members[0].Disable(t.Context(), operator.Scope{Job: "job", Shards: []int{11}}))
		require.NoError(t, g.Members[0].Disable(t.Context(), operator.Scope{Hosts: []string{"elsewhere"}}))
		membertest.SleepToMinute(2)
		owner := g.Members[1].Incarnation()
		for _, kind := range recordedit.Kinds {
			for _, change := range []recordedit.Change{recordedit.Garbage, recordedit.Invalid, recordedit.Delete, "foreign"} {
				edit := recordedit.Edit{Kind: kind, Change: change}
				edit.SetKey(g.Keys, "job", owner)
				reg := &damaged{Registry: g.NewEditor(), deleted: map[registry.Key]bool{}, foreign: map[registry.Key]bool{}, values: map[registry.Key]string{}}
				current, err := reg.Registry.Get(t.Context(), edit.Key, registry.ReadOptions{})
				require.NoError(t, err, edit.Key)
				switch change {
				case "foreign":
					reg.foreign[edit.Key] = true
				case recordedit.Delete:
					reg.deleted[edit.Key] = true
				default:
					op, ok := edit.Op(current, nil, nil)
					require.True(t, ok)
					reg.values[edit.Key] = string(op.Value)
				}
				findings := diagnose(t, reg)
				switch {
				case change == recordedit.Garbage || change == recordedit.Invalid && edit.IsUnreadable([]byte(reg.values[edit.Key])):
					assert.NotEmpty(t, find(findings, operator.FindingUnreadable, edit.Key), "%s: %+v", edit, findings)
				case change == "foreign" && !slices.Contains([]recordedit.Kind{recordedit.Control, recordedit.Claims, recordedit.Instance}, kind):
					assert.NotEmpty(t, find(findings, operator.FindingForeign, edit.Key), "%s: %+v", edit, findings)
				case change == recordedit.Delete && !slices.Contains([]recordedit.Kind{recordedit.Control, recordedit.GroupControl, recordedit.Claims}, kind):
					assert.NotEmpty(t, findings, "%s", edit)
				}
			}
		}
	})
	membertest.RunBubble(t, "finds a namespace of a newer version", func(t *testing.T, g *membertest.Group) {
		g.PutRecord(g.Keys.Meta(), `{"format":99}`)
		f := find(diagnose(t, g.NewEditor()), operator.FindingFormat, g.Keys.Meta())
		require.Len(t, f, 1)
		assert.Equal(t, operator.SeverityError, f[0].Severity)
	})
	membertest.RunBubble(t, "finds that a fleet is gone", func(t *testing.T, g *membertest.Group) {
		g.StartFleet(2)
		g.Server.Partition("a")
		g.Server.Partition("b")
		time.Sleep(3 * membertest.TTL)
		synctest.Wait()
		findings := diagnose(t, g.NewEditor())
		assert.Len(t, find(findings, operator.FindingLeaderless, ""), 1)
		assert.Len(t, find(findings, operator.FindingExpired, ""), 2)
	})
	membertest.RunBubble(t, "fails if the store does", func(t *testing.T, g *membertest.Group) {
		o, reg := g.NewOperator()
		g.Server.Partition("console")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := o.Diagnose(ctx)
		require.Error(t, err)
		assert.True(t, strings.HasPrefix(err.Error(), "diagnose: "))
		assert.NotNil(t, reg)
	})
	membertest.RunBubble(t, "reads a bounded number of times", func(t *testing.T, g *membertest.Group) {
		var defs []string
		for i := range 30 {
			defs = append(defs, coordtest.Def(fmt.Sprintf("job-%02d", i), 0, 3, ""))
		}
		for _, name := range []string{"a", "b", "c"} {
			g.Start(name, defs...)
		}
		g.Server.ResetCounts()
		assert.Empty(t, diagnose(t, g.NewEditor()))
		assert.LessOrEqual(t, g.Server.Counts("editor").Reads, 10+3+1, "a list for each directory and each member, and the group's control record")
	})
}

func TestOperator_Diagnose_KnowsWhatThisProgramCannotCompile(t *testing.T) {
	membertest.RunBubble(t, "and reports it as information", func(t *testing.T, g *membertest.Group) {
		w := g.Start("a", coordtest.Def("lunar", 0, 2, coordtest.UnsupportedSchedule))
		old := g.StartOldVersion("old", coordtest.Def("plain", 0, 1, ""))
		d, err := old.Diagnose(t.Context())
		require.NoError(t, err)
		f := find(d.Findings, operator.FindingUnsupported, g.Keys.Job(record.Segment("lunar")))
		require.Len(t, f, 1)
		assert.Equal(t, operator.SeverityInfo, f[0].Severity)
		assert.Contains(t, f[0].What, "this program cannot compile the definition")
		d, err = w.Diagnose(t.Context())
		require.NoError(t, err)
		assert.Empty(t, d.Findings)
	})
}
