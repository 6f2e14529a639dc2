package leader

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator/internal/elector"
	"github.com/rota-dev/rota/registry"
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
			w.l.updateSuspects(time.Now(), func(inc string) bool {
				incs = append(incs, inc)
				return w.l.View.HasBothRecords(inc)
			})
			slices.Sort(incs)
			return incs
		}
		suspects := func() []string {
			time.Sleep(elector.MissingGrace)
			return w.l.dueSuspects(time.Now())
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
		w.l.removeIncarnation(incarnation(9))
		assert.Empty(t, suspects())
		w.deliverDelete(w.members, w.l.Self.Keys.Member(incarnation(9)))
		assert.Empty(t, checked(), "a reaped incarnation stays removed")
	})
}
