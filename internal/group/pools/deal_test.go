package pools

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
)

// grant returns a grant of slots, all to keep, by a deal.
func grant(slots int, deal uint64) record.Grant {
	return record.Grant{Slots: slots, Deal: deal, Keep: slots}
}

// keeping returns a grant of which slots are to be returned.
func keeping(slots, keep int, deal uint64) record.Grant {
	return record.Grant{Slots: slots, Deal: deal, Keep: keep}
}

// wants returns a demand of an incarnation that has waited since a commit.
func wants(want int, since uint64) Demand {
	return Demand{PoolDemand: record.PoolDemand{Want: want}, Since: since}
}

// returned returns a demand with which an incarnation has returned slots of a grant.
func returned(want, limit int, deal, since uint64) Demand {
	return Demand{PoolDemand: record.PoolDemand{Want: want, Cap: limit, Deal: deal}, Since: since}
}

func TestDeal(t *testing.T) {
	type grants map[string]record.Grant
	for _, c := range []struct {
		name      string
		size      int
		before    grants // with Deal 5; nil: no record
		contended bool
		demands   map[string]Demand
		dead      []string
		undead    []string

		want          grants // nil: the record is not written
		wantContended bool
		wantDead      []string
		doubtful      []string
		deletes       bool
	}{
		{name: "without demand there is no record", size: 8},
		{name: "a pool grants what is wanted", size: 8, demands: map[string]Demand{"a.1": wants(3, 1), "b.1": wants(2, 2)}, want: grants{"a.1": grant(3, 1), "b.1": grant(2, 1)}},
		{
			name: "too much demand is dealt evenly", size: 8, demands: map[string]Demand{"a.1": wants(30, 1), "b.1": wants(30, 2)},
			want: grants{"a.1": grant(4, 1), "b.1": grant(4, 1)}, wantContended: true,
		},
		{
			name: "small demands are met first", size: 8, demands: map[string]Demand{"a.1": wants(30, 1), "b.1": wants(2, 2)},
			want: grants{"a.1": grant(6, 1), "b.1": grant(2, 1)}, wantContended: true,
		},
		{
			name: "more incarnations than slots: those that have waited longest go first", size: 2, demands: map[string]Demand{"a.1": wants(5, 3), "b.1": wants(5, 1), "c.1": wants(5, 2)},
			want: grants{"b.1": keeping(1, 0, 1), "c.1": keeping(1, 0, 1)}, wantContended: true,
		},
		{
			name: "an incarnation that waits has the holder asked to return the only slot", size: 1, before: grants{"a.1": grant(1, 5)},
			demands: map[string]Demand{"a.1": wants(1, 1), "b.1": wants(1, 7)}, want: grants{"a.1": keeping(1, 0, 5)}, wantContended: true,
		},
		{
			name: "the same demand is dealt once", size: 1, before: grants{"a.1": keeping(1, 0, 5)}, contended: true,
			demands: map[string]Demand{"a.1": wants(1, 1), "b.1": wants(1, 7)},
		},
		{
			name: "a returned slot is dealt to the one that has waited longest, not to the one that returned it", size: 1, before: grants{"a.1": keeping(1, 0, 5)}, contended: true,
			demands: map[string]Demand{"a.1": returned(3, 0, 5, 9), "b.1": wants(1, 8), "c.1": wants(1, 7)}, want: grants{"c.1": keeping(1, 0, 6)}, wantContended: true,
		},
		{
			name: "what an earlier grant's holder announced says nothing about a later grant", size: 1, before: grants{"a.1": keeping(1, 0, 5)}, contended: true,
			demands: map[string]Demand{"a.1": returned(3, 0, 4, 9), "b.1": wants(1, 8)},
		},
		{
			name: "a holder with more than its part keeps that part", size: 8, before: grants{"a.1": grant(8, 5)},
			demands: map[string]Demand{"a.1": wants(20, 1), "b.1": wants(2, 7)}, want: grants{"a.1": keeping(8, 6, 5)}, wantContended: true,
		},
		{name: "slots of a still demand stay where they are", size: 8, before: grants{"a.1": grant(4, 5), "b.1": grant(4, 5)}, demands: map[string]Demand{"a.1": wants(4, 1), "b.1": wants(4, 2)}},
		{name: "returned slots that nobody wants cost no write", size: 8, before: grants{"a.1": grant(4, 5)}, demands: map[string]Demand{"a.1": returned(0, 0, 5, 1)}},
		{name: "slots of the dead that nobody wants cost no write", size: 8, before: grants{"a.1": grant(4, 5)}, dead: []string{"a.1"}, wantDead: nil},
		{
			name: "slots of the dead are dealt, provided that they are", size: 2, before: grants{"a.1": grant(2, 5)}, dead: []string{"a.1"}, demands: map[string]Demand{"b.1": wants(2, 7)},
			want: grants{"b.1": grant(2, 6)}, wantDead: []string{"a.1"},
		},
		{
			name: "slots of one that the store does not call dead are not", size: 2, before: grants{"a.1": grant(2, 5)}, dead: []string{"a.1"}, undead: []string{"a.1"}, demands: map[string]Demand{"b.1": wants(2, 7)},
			want: grants{"a.1": keeping(2, 0, 5)}, wantContended: true,
		},
		{
			name: "a smaller pool asks for slots", size: 2, before: grants{"a.1": grant(4, 5)}, demands: map[string]Demand{"a.1": wants(4, 1)},
			want: grants{"a.1": keeping(4, 2, 5)}, wantContended: false,
		},
		{
			name: "a larger pool raises grants", size: 6, before: grants{"a.1": grant(2, 5)}, contended: true, demands: map[string]Demand{"a.1": wants(4, 1)},
			want: grants{"a.1": grant(4, 6)},
		},
		{name: "a pool without a size keeps nothing", size: 0, before: grants{"a.1": grant(2, 5)}, demands: map[string]Demand{"a.1": wants(2, 1)}, want: grants{"a.1": keeping(2, 0, 5)}},
		{name: "its record is deleted when all is returned", size: 0, before: grants{"a.1": keeping(2, 0, 5)}, demands: map[string]Demand{"a.1": returned(2, 0, 5, 1)}, deletes: true},
		{name: "without a size and a record nothing is written", size: 0, demands: map[string]Demand{"a.1": wants(2, 1)}},
		{
			name: "a lost record is made again when all have announced what runs", size: 4, demands: map[string]Demand{"a.1": returned(3, 2, 0, 1), "b.1": wants(4, 2)},
			want: grants{"a.1": keeping(2, 2, 1), "b.1": grant(2, 1)}, wantContended: true,
		},
		{
			name: "before that nothing is granted", size: 4, demands: map[string]Demand{"a.1": returned(3, 2, 5, 1), "b.1": wants(4, 2)},
			doubtful: []string{"a.1"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := Input{Pool: "db", Size: c.size, Demands: c.demands, Alive: func(inc string) bool { return !slices.Contains(c.dead, inc) }, Undead: map[string]bool{}}
			if c.before != nil {
				in.Slots = &record.Slots{Pool: "db", Deal: 5, Contended: c.contended, Grants: c.before}
			}
			for _, inc := range c.undead {
				in.Undead[inc] = true
			}
			out := Deal(in)
			assert.Equal(t, c.doubtful, out.Doubtful)
			assert.Equal(t, c.deletes, out.Delete)
			if c.want == nil {
				assert.Nil(t, out.Slots)
				return
			}
			require.NotNil(t, out.Slots)
			assert.Equal(t, c.want, grants(out.Slots.Grants))
			assert.Equal(t, c.wantContended, out.Slots.Contended)
			assert.Equal(t, c.wantDead, out.Dead)
			in.Slots = out.Slots
			assert.Nil(t, Deal(in).Slots, "a deal changes nothing when it is in force")
		})
	}
}

// Deals of any demands grant no more than there is, as long as holders announce the truth, and leave no slot idle that is wanted.
func TestDeal_SumsUp(t *testing.T) {
	for size := range 6 {
		for seed := range 400 {
			demands := map[string]Demand{}
			total := 0
			for i := range 1 + seed%5 {
				want := (seed * (i + 3) / 5) % 7
				total += want
				demands[fmt.Sprintf("%c.1", 'a'+i)] = wants(want, uint64(seed*7%(i+2)))
			}
			out := Deal(Input{Pool: "db", Size: size, Demands: demands, Alive: func(string) bool { return true }})
			granted := 0
			if out.Slots != nil {
				for inc, g := range out.Slots.Grants {
					granted += g.Slots
					require.LessOrEqual(t, g.Slots, demands[inc].Want)
				}
			}
			require.Equal(t, min(total, size), granted, "size %d, seed %d", size, seed)
		}
	}
}
