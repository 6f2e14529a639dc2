package pools

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
)

// fleet is a model of a fleet with one pool: reads are late, leaders change, incarnations die at any time.
type fleet struct {
	*rand.Rand
	size    int
	now     time.Time
	history []*record.Slots // all versions of the record; nil: it was deleted
	demands map[string][]record.PoolDemand
	members map[string]*modelMember
	born    int
	dealt   time.Time // when the record was last written

	seenDemands map[string]int // by the leader: the version
	since       map[string]uint64
}

// modelMember is an incarnation.
type modelMember struct {
	Share
	seen int // version of the record
	due  int // runs that are due
}

func (f *fleet) join() {
	f.born++
	inc := fmt.Sprintf("i%d.%d", f.born, f.born)
	f.members[inc], f.demands[inc] = &modelMember{}, []record.PoolDemand{{}}
}

// running is how many runs of live incarnations run.
func (f *fleet) running() (n int) {
	for _, m := range f.members {
		n += m.Running
	}
	return n
}

func (f *fleet) step() {
	f.now = f.now.Add(time.Duration(f.IntN(300)) * time.Millisecond)
	inc := slices.Sorted(maps.Keys(f.members))[f.IntN(len(f.members))]
	m := f.members[inc]
	switch f.IntN(12) {
	case 0:
		m.due = f.IntN(6)
		m.Waiting = m.due
	case 1, 2:
		if m.seen < len(f.history)-1 {
			m.seen += 1 + f.IntN(len(f.history)-1-m.seen)
			m.Observe(f.history[m.seen], inc, f.now)
		}
	case 3, 4:
		n := min(m.Free(f.now), m.Waiting)
		m.Running, m.Waiting = m.Running+n, m.Waiting-n
	case 5, 6:
		if m.Running > 0 {
			m.Running--
		}
	case 7, 8:
		if next, _ := m.Next(f.now); next != m.Announced {
			m.Announced = next
			f.demands[inc] = append(f.demands[inc], next)
		}
	case 9:
		if seen := f.seenDemands[inc]; seen < len(f.demands[inc])-1 {
			f.seenDemands[inc] += 1 + f.IntN(len(f.demands[inc])-1-seen)
			f.since[inc] = uint64(f.now.UnixNano())
		}
	case 10:
		f.deal()
	case 11:
		switch f.IntN(30) {
		case 0: // it dies, or its session ends while its runs end
			delete(f.members, inc)
			delete(f.demands, inc)
			f.join()
		case 1: // another leader reads all anew
			f.seenDemands, f.since = map[string]int{}, map[string]uint64{}
			for inc, all := range f.demands {
				f.seenDemands[inc] = len(all) - 1
			}
		case 2:
			f.join()
		}
	}
}

func (f *fleet) deal() {
	if f.now.Before(f.dealt.Add(DealInterval)) {
		return
	}
	in := Input{Pool: "db", Size: f.size, Slots: f.history[len(f.history)-1], Demands: map[string]Demand{}, Alive: func(inc string) bool { return f.members[inc] != nil }}
	for inc := range f.members {
		if n, seen := f.seenDemands[inc]; seen {
			in.Demands[inc] = Demand{PoolDemand: f.demands[inc][n], Since: f.since[inc]}
		}
	}
	switch out := Deal(in); {
	case out.Slots != nil:
		f.history = append(f.history, out.Slots)
	case out.Delete:
		f.history = append(f.history, nil)
	default:
		return
	}
	f.dealt = f.now
}

// settle lets all run until nothing is due, and returns how long that took.
func (f *fleet) settle(t *testing.T) {
	t.Helper()
	for _, m := range f.members {
		m.Waiting += m.due
	}
	for range 2_000 {
		idle := true
		for inc, m := range f.members {
			m.seen = len(f.history) - 1
			m.Observe(f.history[m.seen], inc, f.now)
			n := min(m.Free(f.now), m.Waiting)
			m.Running, m.Waiting = m.Running+n, m.Waiting-n
			idle = idle && m.Running+m.Waiting == 0
		}
		require.LessOrEqual(t, f.running(), f.size)
		f.now = f.now.Add(500 * time.Millisecond)
		for inc, m := range f.members {
			m.Running = 0
			if next, _ := m.Next(f.now); next != m.Announced {
				m.Announced = next
				f.demands[inc] = append(f.demands[inc], next)
				f.since[inc] = uint64(f.now.UnixNano())
			}
			f.seenDemands[inc] = len(f.demands[inc]) - 1
		}
		if idle {
			return
		}
		f.deal()
	}
	require.Fail(t, "due runs wait for ever")
}

// The bound holds however late all reads are, and no run waits for ever.
func TestPools_Random(t *testing.T) {
	most := 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		f := &fleet{
			Rand: rng, size: 1 + rng.IntN(5), now: time.Unix(1000, 0), history: []*record.Slots{nil}, demands: map[string][]record.PoolDemand{}, members: map[string]*modelMember{},
			seenDemands: map[string]int{}, since: map[string]uint64{},
		}
		for range 1 + rng.IntN(5) {
			f.join()
		}
		for range 400 {
			f.step()
			require.LessOrEqual(t, f.running(), f.size, "seed %d", seed)
			most = max(most, f.running())
		}
		f.settle(t)
	}
	require.Greater(t, most, 3)
}
