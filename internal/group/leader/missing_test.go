package leader

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/elector"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestLeader_ChecksRecordsOfChangedIncarnationsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const fleet = 100
		w := newViewFixture(t)
		instance := func(i int) registry.Entry {
			name := fmt.Sprintf("i%03d", i)
			return registry.Entry{Key: w.l.Self.Keys.Instance(name), Owner: registry.SessionID("S" + name)}
		}
		incarnation := func(i int) string { return fmt.Sprintf("i%03d.Si%03d", i, i) }
		var instances, members []registry.Entry
		for i := range fleet {
			instances, members = append(instances, instance(i)), append(members, w.member(incarnation(i)))
		}
		// checked returns the incarnations whose records a round compares with the view.
		checked := func() (incs []string) {
			require.True(t, w.l.updateView())
			w.l.incomplete.updateSuspects(time.Now(), func(inc string) bool {
				incs = append(incs, inc)
				return w.l.View.HasBothRecords(inc)
			})
			slices.Sort(incs)
			return incs
		}
		suspects := func() []string {
			time.Sleep(elector.MissingGrace)
			return w.l.incomplete.dueSuspects(time.Now())
		}
		w.deliver(w.instances, registry.Snapshot, instances...)
		w.deliver(w.members, registry.Snapshot, members...)
		assert.Len(t, checked(), fleet)
		assert.Empty(t, checked())
		assert.Empty(t, suspects())

		w.deliverDelete(w.instances, instance(7).Key)
		assert.Equal(t, []string{incarnation(7)}, checked())
		w.deliverDelete(w.members, w.l.Self.Keys.Member(incarnation(8)))
		assert.Equal(t, []string{incarnation(8)}, checked())
		again := instance(9)
		again.Owner = "another"
		w.deliver(w.instances, registry.Delta, again)
		assert.Equal(t, []string{incarnation(9), "i009.another"}, checked())
		assert.Equal(t, []string{incarnation(7), incarnation(8), incarnation(9), "i009.another"}, suspects())
		assert.Empty(t, checked())

		w.deliver(w.instances, registry.Delta, instance(7))
		w.deliver(w.members, registry.Delta, w.member(incarnation(8)), w.member("i009.another"))
		assert.Len(t, checked(), 3)
		w.l.incomplete.removeIncarnation(incarnation(9))
		assert.Empty(t, suspects())
		w.deliverDelete(w.members, w.l.Self.Keys.Member(incarnation(9)))
		assert.Empty(t, checked(), "a reaped incarnation stays removed")
	})
}

// A new leader finds incarnations that expired before its term and were not reaped.
func TestLeader_ReadsRecordsOfManySuspectsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const expired, latency = 2 * parallelReads, 200 * time.Millisecond
		w := newViewFixture(t)
		store := memory.New()
		store.Delay("leader", latency, 0)
		w.l.Self.Reg, w.l.Elector, w.l.Progress = store.Client("leader"), &elector.Elector{}, &elector.Progress{}
		var members []registry.Entry
		for i := range expired {
			members = append(members, w.member(fmt.Sprintf("i%02d.S%02d", i, i)))
		}
		w.deliver(w.instances, registry.Snapshot)
		w.deliver(w.members, registry.Snapshot, members...)
		require.True(t, w.l.updateView())
		w.l.incomplete.updateSuspects(time.Now(), w.l.View.HasBothRecords)
		time.Sleep(elector.MissingGrace)

		began := time.Now()
		require.NoError(t, w.l.checkIncomplete(t.Context()))
		const requests = 3 // the instance key, the member record, the session
		assert.Equal(t, requests*latency*expired/parallelReads, time.Since(began))
		assert.Len(t, w.l.View.ExpiredMembers(), expired)
		assert.Empty(t, w.l.incomplete.dueSuspects(time.Now().Add(time.Hour)))
	})
}

func TestLeader_AddsExpiredSuspectsAlthoughAnotherCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newViewFixture(t)
		reg := failingReads{memory.New().Client("leader"), w.l.Self.Keys.Member("b.B")}
		w.l.Self.Reg, w.l.Elector, w.l.Progress = reg, &elector.Elector{}, &elector.Progress{}
		for _, inc := range []string{"a.A", "b.B", "c.C"} {
			w.l.incomplete.addIncarnation(inc)
		}
		w.l.incomplete.updateSuspects(time.Now(), w.l.View.HasBothRecords)
		time.Sleep(elector.MissingGrace)

		require.ErrorIs(t, w.l.checkIncomplete(t.Context()), registry.ErrUnavailable)
		assert.Equal(t, []string{"a.A", "c.C"}, w.l.View.ExpiredMembers())
		require.NoError(t, w.l.checkIncomplete(t.Context()), "the suspect that cannot be read is not due in the next round")
		assert.Equal(t, []string{"b.B"}, w.l.incomplete.dueSuspects(time.Now().Add(elector.MissingGrace)))
	})
}

// failingReads is a registry of which one key cannot be read.
type failingReads struct {
	registry.Registry
	key registry.Key
}

func (r failingReads) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	if key == r.key {
		return registry.Entry{}, registry.ErrUnavailable
	}
	return r.Registry.Get(ctx, key, o)
}

// The records of a suspect return, or its session ends: it is named no more, though the watches of the leader lag.
func TestLeader_NamesSuspectsWhileTheirRecordsAreMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newViewFixture(t)
		reg := memory.New().Client("a")
		w.l.Self.Reg, w.l.Elector, w.l.Progress = reg, &elector.Elector{}, &elector.Progress{}
		session, err := reg.OpenSession(t.Context(), registry.SessionOptions{TTL: 24 * time.Hour})
		require.NoError(t, err)
		inc := record.Incarnation("a", session.ID())
		w.l.incomplete.addIncarnation(inc)
		// named returns the incarnations that are named after the next read, and the time until then.
		named := func() ([]string, time.Duration) {
			began := time.Now()
			w.l.incomplete.updateSuspects(began, w.l.View.HasBothRecords)
			time.Sleep(time.Until(w.l.incomplete.nextDue()))
			require.NoError(t, w.l.checkIncomplete(t.Context()))
			return w.l.incomplete.namedIncomplete(), time.Since(began)
		}
		keys := w.l.Self.Keys
		member, err := record.Encode(record.Member{Name: "a", Session: session.ID()})
		require.NoError(t, err)
		for range 20 {
			incs, wait := named()
			assert.Equal(t, []string{inc}, incs)
			assert.LessOrEqual(t, wait, maxSuspectWait)
		}
		rev, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{
			registry.CreateOwned(keys.Instance("a"), nil, session.ID()), registry.Create(keys.Member(inc), member),
		}})
		require.NoError(t, err)
		incs, wait := named()
		assert.Empty(t, incs, "both records are there")
		assert.Equal(t, maxSuspectWait, wait)
		_, err = reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Delete(keys.Member(inc), rev)}})
		require.NoError(t, err)
		incs, _ = named()
		assert.Equal(t, []string{inc}, incs)
		require.NoError(t, session.Close(t.Context()))
		incs, _ = named()
		assert.Empty(t, incs, "it has expired")
		assert.Equal(t, []string{inc}, w.l.View.ExpiredMembers())
	})
}
