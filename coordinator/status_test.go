package coordinator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

func TestOperator_Status(t *testing.T) {
	status := func(g *group, job string) Status {
		g.t.Helper()
		o, _ := g.operator()
		st, err := o.Status(g.t.Context(), job)
		require.NoError(g.t, err)
		return st
	}
	minute := func(n int) time.Time { return bubbleBegan().Add(time.Duration(n) * time.Minute) }

	bubble(t, "of a job that nobody has planned yet is what was defined and what operators want", func(t *testing.T, g *group) {
		g.put(g.keys.Job("job"), def("job", 3, 4, `,"start_paused":true`))
		assert.Equal(t, Status{
			Job: "job", Revision: 3, Intent: Intent{Paused: true, Disabled: Scope{Job: "job"}},
		}, status(g, "job"))
	})
	bubble(t, "tells who owns, runs and offers what, and what has come of it", func(t *testing.T, g *group) {
		fail := func(ctx context.Context, r Run) error {
			switch {
			case r.Shard == 0:
				return errors.New("no such table")
			case r.Shard == 3:
				return takes(time.Hour)(ctx, r)
			}
			return nil
		}
		a := g.startWorking("a", fail, def("job", 2, 4, ""), def("other", 0, 1, ""))
		b := g.startWorking("b", fail, def("job", 2, 4, ""))
		g.start("c", def("other", 0, 1, ""))
		require.NoError(t, a.Disable(t.Context(), Scope{Job: "job", Shards: []int{1}}))
		until(2)
		st := status(g, "job")
		assert.Equal(t, []MemberStatus{
			{Instance: "a", Host: "host-of-a", Session: a.session(), Alive: true, Offers: true, Revision: 2, Shards: []int{0, 1}},
			{
				Instance: "b", Host: "host-of-b", Session: b.session(), Alive: true, Offers: true, Revision: 2, Shards: []int{2, 3},
				Running: []Runs{{Shards: []int{3}, Fire: minute(1), Attempt: 1}},
			},
		}, st.Members)
		assert.Equal(t, []int{1}, st.Disabled)
		assert.Equal(t, []int{1}, st.Intent.Disabled.Shards)
		assert.Equal(t, Counts{Claimed: 5, Succeeded: 2, Failed: 2, Skipped: 2}, st.Counts)
		assert.Equal(t, minute(2), st.Ended.Truncate(time.Second))
		require.Len(t, st.Failures, 2)
		last := st.Failures[1]
		assert.Equal(t, Runs{Shards: []int{0}, Fire: minute(2), Attempt: 1}, last.Runs)
		assert.Equal(t, "no such table", last.Error)
		assert.Equal(t, []int{2, 4}, []int{st.Revision, st.Shards})
		assert.Equal(t, 2, st.InForce)
		assert.Empty(t, st.Unowned)
	})
	bubble(t, "says why shards are where they are: which leader decided it, when and for what", func(t *testing.T, g *group) {
		g.start("a", def("job", 0, 2, ""))
		term := func() uint64 { e, _ := g.get(g.keys.Leader()); return e.Modified.Seq }
		first := term()
		g.start("b", def("job", 0, 2, ""))
		moved := time.Now().Add(-time.Second).UTC()
		until(1)
		g.server.Partition("a")
		until(2)
		var told []string
		decisions := status(g, "job").Decisions
		for _, d := range decisions {
			told = append(told, fmt.Sprintf("%s: %s", d.By, d.What))
		}
		assert.Equal(t, []string{
			"a: give 0-1 to a; create",
			"a: freeze 1",
			"a: take 1 from a; unfreeze 1; give 1 to b",
			"b: fail over 0 of a; give 0 to b",
		}, told)
		assert.Equal(t, first, decisions[2].Term)
		assert.Equal(t, moved, decisions[2].At.Truncate(time.Second))
		assert.Equal(t, term(), decisions[3].Term)
	})
	bubble(t, "knows after a crash what had failed, and when the last run ended", func(t *testing.T, g *group) {
		a := g.startWorking("a", func(context.Context, Run) error { return errors.New("no such table") }, def("job", 0, 1, ""))
		g.start("b", def("other", 0, 1, ""))
		until(3)
		claims := g.keys.Claims(a.incarnation(), "job")
		before := status(g, "job")
		require.NotEmpty(t, before.Failures)
		g.server.Partition("a")
		until(4)
		_, found := g.get(claims)
		require.False(t, found, "it was not buried")
		after := status(g, "job")
		assert.Equal(t, before.Failures, after.Failures)
		assert.Equal(t, before.Ended, after.Ended)
		assert.Equal(t, before.Counts, after.Counts)
		assert.Equal(t, []int{0}, after.Unowned)
		assert.Empty(t, after.Members)
	})
	bubble(t, "counts a run that a crash ended and nobody makes again among the failures", func(t *testing.T, g *group) {
		once := `,"on_crash":"count as failed"`
		g.startWorking("a", takes(time.Hour), def("job", 0, 1, once))
		g.start("b", def("job", 0, 1, once))
		until(1)
		g.server.Partition("a")
		until(2)
		st := status(g, "job")
		assert.EqualValues(t, 1, st.Counts.Lost)
		require.Len(t, st.Failures, 1)
		assert.Equal(t, Runs{Shards: []int{0}, Fire: minute(1), Attempt: 1}, st.Failures[0].Runs)
	})
	bubble(t, "tells what waits: re-runs, triggers, shards that are to move", func(t *testing.T, g *group) {
		hour := takes(time.Hour)
		a := g.startWorking("a", hour, def("job", 0, 2, ""))
		until(1)
		require.NoError(t, a.Pause(t.Context(), "job"))
		n, err := a.Trigger(t.Context(), "job", "", nil)
		require.NoError(t, err)
		g.startWorking("b", hour, def("job", 0, 2, ""))
		st := status(g, "job")
		assert.Equal(t, []int{1}, st.Frozen)
		assert.Equal(t, []uint64{n}, st.Triggers)
		assert.True(t, st.Paused)
		g.server.Partition("a")
		until(2)
		assert.Equal(t, []Runs{{Shards: []int{0, 1}, Fire: minute(1), Attempt: 2}}, status(g, "job").Reruns)
	})
	bubble(t, "names what cannot be read of a member, and tells the rest", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, ""))
		b := g.start("b", def("job", 0, 2, ""))
		until(1)
		member, claims := g.keys.Member(a.incarnation()), g.keys.Claims(b.incarnation(), "job")
		heal := []func(){g.server.Partition("a"), g.server.Partition("b")}
		g.put(member, "spoilt")
		g.put(claims, "spoilt")
		st := status(g, "job")
		assert.ElementsMatch(t, []registry.Key{member, claims}, st.Unreadable)
		require.Len(t, st.Members, 2)
		assert.Equal(t, []int{0}, st.Members[0].Shards)
		assert.Equal(t, "a", st.Members[0].Instance)
		for _, f := range heal {
			f()
		}
	})
	bubble(t, "fails by name: of an unknown job, of a plan that cannot be read, of a newer version's", func(t *testing.T, g *group) {
		o, _ := g.operator()
		_, err := o.Status(t.Context(), "job")
		assert.ErrorIs(t, err, ErrUnknownJob)
		g.start("a", def("job", 0, 2, ""))
		g.put(g.keys.Plan("job"), fmt.Sprintf(`{"format":%d}`, record.Format+1))
		_, err = o.Status(t.Context(), "job")
		assert.ErrorIs(t, err, ErrNewerFormat)
		assert.ErrorContains(t, err, string(g.keys.Plan("job")))
		g.put(g.keys.Meta(), fmt.Sprintf(`{"format":%d}`, record.Format+1))
		_, err = o.Status(t.Context(), "job")
		assert.ErrorContains(t, err, string(g.keys.Meta()))
	})
	bubble(t, "writes nothing", func(t *testing.T, g *group) {
		g.start("a", def("job", 0, 2, ""))
		synctest.Wait()
		g.server.Record()
		status(g, "job")
		assert.Empty(t, g.commits())
	})
}

func TestDecisions(t *testing.T) {
	bubble(t, "are no reason to write a plan", func(t *testing.T, g *group) {
		g.start("a", def("job", 0, 2, ""))
		g.start("b", def("job", 0, 2, ""))
		before, _ := g.get(g.keys.Plan("job"))
		time.Sleep(10 * selfDiagnosis)
		after, _ := g.get(g.keys.Plan("job"))
		assert.Equal(t, before.Modified, after.Modified)
	})
	bubble(t, "leave out what is done day by day", func(t *testing.T, g *group) {
		a := g.start("a", def("job", 0, 2, ""))
		before := g.plan("job").Decisions
		for range 20 {
			_, err := a.Trigger(t.Context(), "job", "", nil)
			require.NoError(t, err)
			time.Sleep(2 * selfDiagnosis)
		}
		assert.Empty(t, g.plan("job").Triggers, "it was cleared")
		assert.Equal(t, before, g.plan("job").Decisions)
	})
	t.Run("go when there is no room for them beside what is needed", func(t *testing.T) {
		w := newWorld(t)
		w.member("a", "job")
		w.define("job", 4, 0, "")
		w.settle()
		p := w.plan("job").Clone()
		rng := rand.New(rand.NewPCG(1, 1))
		letters := make([]byte, 2*registry.PortableLimits.ValueBytes) // which cannot be deflated much
		for i := range letters {
			letters[i] = byte('a' + rng.IntN(26))
		}
		var bare []byte
		for n := len(letters) / 2; len(bare) < registry.PortableLimits.ValueBytes-500; n += 500 {
			p.Problem = string(letters[:n])
			var err error
			bare, err = record.Encode(p)
			require.NoError(t, err)
		}
		for i := range 8 {
			p.Note(record.Decision{What: p.Problem[1000*i:]})
		}
		c := change{segment: "job", plan: p}
		pc, err := c.share(w.v.keys)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(bare, pc.ops[0].Value))
	})
}
