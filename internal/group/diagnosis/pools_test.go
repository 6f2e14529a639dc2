package diagnosis

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/record"
)

func TestDiagnose_ReportsPoolsWithoutASize(t *testing.T) {
	for name, c := range map[string]struct {
		group  any // nil: there is none
		paused bool
		found  bool
	}{
		"no size was ever set":            {found: true},
		"another pool has a size":         {group: &record.GroupControl{Pools: map[string]int{"licence": 3}}, found: true},
		"the pool has a size":             {group: &record.GroupControl{Pools: map[string]int{"db": 3}}},
		"the size is 0":                   {group: &record.GroupControl{Pools: map[string]int{"db": 0}}},
		"the job is paused":               {paused: true},
		"whether there is one is unknown": {group: "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.job = coordtest.Def("job", 0, 4, `, "pool": "db"`)
			epoch, err := record.NewEpoch(1, coordtest.Start, []byte(w.job))
			require.NoError(t, err)
			w.plan.Epochs, w.plan.Paused = []record.Epoch{epoch}, c.paused
			r := w.records()
			if c.group != nil {
				r.Put(w.entry(r.Keys.GroupControl(), c.group))
			}
			var found []Finding
			for _, f := range Diagnose(r) {
				if f.Kind == Stuck {
					found = append(found, f)
				}
			}
			if !c.found {
				assert.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			assert.Equal(t, Finding{
				Error, Stuck, "job", r.Keys.GroupControl(), "the job names pool db, which has no size, so its runs wait",
				"set its size: rota set-pool db N",
			}, found[0])
		})
	}
}
