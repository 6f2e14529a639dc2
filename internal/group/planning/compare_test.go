package planning

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// These tests compare how many shards strategies move, and how evenly they assign them: sticky,
// Elastic-Job's three strategies, and two common ones that are implemented here, a ring and a
// modulo. docs/strategies.md shows the results.

// ring is a consistent-hash ring with 100 points for each member.
type ring struct {
	members []strategy.Candidate
	points  []ringPoint // of members, sorted
}

type ringPoint struct {
	at uint64
	id string
}

func (r *ring) assign(in strategy.Input) (strategy.Assignment, error) {
	if !slices.EqualFunc(r.members, in.Members, func(a, b strategy.Candidate) bool { return a.ID == b.ID }) {
		r.members, r.points = in.Members, nil
		for _, m := range in.Members {
			for i := range 100 {
				r.points = append(r.points, ringPoint{hashOf(m.Name, i), m.ID})
			}
		}
		slices.SortFunc(r.points, func(a, b ringPoint) int { return cmp.Compare(a.at, b.at) })
	}
	a := make(strategy.Assignment, in.Shards)
	for shard := range a {
		next, _ := slices.BinarySearchFunc(r.points, hashOf(in.Job, shard), func(p ringPoint, at uint64) int {
			return cmp.Compare(p.at, at)
		})
		a[shard] = r.points[next%len(r.points)].id
	}
	return a, nil
}

// modulo assigns shards to members in turn, beginning at a member that depends on the job's name.
func modulo(in strategy.Input) (strategy.Assignment, error) {
	a := make(strategy.Assignment, in.Shards)
	first := int(hashOf(in.Job, 0) % uint64(len(in.Members)))
	for shard := range a {
		a[shard] = in.Members[(first+shard)%len(in.Members)].ID
	}
	return a, nil
}

func hashOf(name string, i int) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", name, i))
	return binary.BigEndian.Uint64(sum[:])
}

// setting is a group before members join and leave.
type setting struct{ jobs, shards, members int }

func (s setting) all() int { return s.jobs * s.shards }

func (s setting) String() string {
	if s.jobs == 1 {
		return fmt.Sprintf("%s shards, %d members", thousands(s.shards), s.members)
	}
	return fmt.Sprintf("%s jobs of one shard, %d members", thousands(s.jobs), s.members)
}

var settings = []setting{
	{1, 10, 3},
	{1, 100, 10},
	{1, 1000, 10},
	{1, 1000, 50},
	{1, 10_000, 200},
	{1000, 1, 10},
	{1000, 1, 50},
}

// compared lists the strategies, in the order of the page's columns.
var compared = []string{"sticky", "average", "odevity", "rotate", "ring", "modulo"}

// Events of a group.
const (
	joining = iota
	leaving
	crashing // and returning: shards that move away, and shards that move then
	kinds
)

// outcome is the result of a strategy in a setting.
type outcome struct {
	moved  [kinds]int // shards
	ideal  [kinds]int // the fewest that could have moved
	times  int        // how often each happened
	spread int        // of the members' shards, at the worst
}

// percent returns a number of moved shards in percent of all, for one event.
func (o *outcome) percent(s setting, shards int) float64 {
	return 100 * float64(shards) / float64(s.all()*o.times)
}

// all returns how many shards moved in all events.
func (o *outcome) all() (moved int) {
	for _, n := range o.moved {
		moved += n
	}
	return moved
}

// comparison is a group whose jobs use a strategy.
type comparison struct {
	*world
	setting
	strategy string
	rng      *rand.Rand
	names    []string // of jobs
	born     int
	owners   []string // of all jobs' shards
}

// comparisons is the number of groups in each setting.
const comparisons = 3

func compare(t *testing.T, s setting, strategy string) *outcome {
	t.Helper()
	o := &outcome{}
	for seed := range uint64(comparisons) {
		c := newComparison(t, s, strategy, seed)
		count := func(kind int) {
			o.ideal[kind] += c.fewestMoves()
			o.moved[kind] += c.settleAssignment()
			o.spread = max(o.spread, coordtest.SpreadOf(c.counts()))
		}
		for range 2 {
			c.joinInstance(c.newName())
			count(joining)

			leaver := c.randomName()
			c.editMember(leaver, func(m *record.Member) { m.Draining = true })
			count(leaving)
			c.expire(leaver)

			crasher := c.randomName()
			c.expire(crasher)
			count(crashing)
			c.joinInstance(c.View.Members[crasher].Name)
			count(crashing)
			o.times++
		}
	}
	return o
}

func newComparison(t *testing.T, s setting, strategy string, seed uint64) *comparison {
	c := &comparison{
		world: NewWorld(t), setting: s, strategy: strategy,
		rng: rand.New(rand.NewPCG(seed, 0)), owners: make([]string, s.all()),
	}
	c.uncompared = true
	c.View.Strategies["ring"], c.View.Strategies["modulo"] = new(ring).assign, modulo
	for i := range s.jobs {
		name := fmt.Sprintf("%04d-%08x", i, c.rng.Uint32())
		c.names = append(c.names, name)
		c.Define(name, s.shards, 0, "")
	}
	for range s.members {
		c.joinInstance(c.newName())
	}
	c.settleAssignment()
	return c
}

// newName returns a name that sorts anywhere among the others.
func (c *comparison) newName() string { return fmt.Sprintf("i%04d-%d", c.rng.IntN(10_000), c.born) }

func (c *comparison) joinInstance(name string) {
	c.born++
	c.joinAs(name, registry.SessionID(fmt.Sprint("s", c.born)), c.names...)
}

// candidates returns the members that may own shards.
func (c *comparison) candidates() []strategy.Candidate {
	var out []strategy.Candidate
	for _, inc := range slices.Sorted(maps.Keys(c.View.Members)) {
		if m := c.View.Members[inc]; c.View.Alive(inc) && !m.Draining {
			out = append(out, strategy.Candidate{ID: inc, Name: m.Name})
		}
	}
	return out
}

func (c *comparison) randomName() string {
	all := c.candidates()
	return all[c.rng.IntN(len(all))].ID
}

// counts returns how many shards each candidate has, in descending order.
func (c *comparison) counts() []int {
	has := map[string]int{}
	for _, inc := range c.owners {
		has[inc]++
	}
	var counts []int
	for _, m := range c.candidates() {
		counts = append(counts, has[m.ID])
	}
	slices.Sort(counts)
	slices.Reverse(counts)
	return counts
}

// fewestMoves returns how many shards must move at least until the counts differ by one at most,
// with the larger counts at the members that own most now.
func (c *comparison) fewestMoves() int {
	counts := c.counts()
	each, rest := c.all()/len(counts), c.all()%len(counts)
	moves := 0
	for i, n := range counts {
		if i < rest {
			n--
		}
		moves += max(each-n, 0)
	}
	return moves
}

// settleAssignment updates the owners and returns how many shards moved.
func (c *comparison) settleAssignment() int {
	if c.strategy == stickyName {
		return c.decideAll()
	}
	return c.setOwners(c.callStrategy())
}

// decideAll has the leader decide until there is nothing to do. A shard that moves twice
// counts twice.
func (c *comparison) decideAll() (moved int) {
	for {
		if d := c.round(); len(d.Changes) == 0 && len(d.Reapings) == 0 {
			return moved
		}
		var owners []string
		now := newRound(c.View)
		for _, name := range c.names {
			owners = append(owners, now.currentOwners(name, c.shards)...)
		}
		moved += c.setOwners(owners)
	}
}

// callStrategy returns the assignment of the strategy, job by job, as if moves took no time.
func (c *comparison) callStrategy() (owners []string) {
	s, ok := c.View.Strategies[c.strategy]
	require.True(c.t, ok)
	in := strategy.Input{Shards: c.shards, Members: c.candidates()}
	for i, name := range c.names {
		in.Job, in.Owners = name, c.owners[i*c.shards:(i+1)*c.shards]
		a, err := strategy.Run(s, in)
		require.NoError(c.t, err)
		owners = append(owners, a...)
	}
	return owners
}

func (c *comparison) setOwners(owners []string) (moved int) {
	for i, inc := range owners {
		if inc != c.owners[i] {
			moved++
		}
	}
	c.owners = owners
	return moved
}

func TestStrategies_Compared(t *testing.T) {
	all := make([]map[string]*outcome, len(settings))
	for i, s := range settings {
		all[i] = map[string]*outcome{}
		for _, strategy := range compared {
			all[i][strategy] = compare(t, s, strategy)
		}
		t.Run(s.String(), func(t *testing.T) { claimsHold(t, s, all[i]) })
	}
	t.Run("as the page says", func(t *testing.T) { pageIsUpToDate(t, all) })
}

// claimsHold checks the statements of docs/strategies.md about a setting.
func claimsHold(t *testing.T, s setting, of map[string]*outcome) {
	sticky := of["sticky"]
	assert.Equal(t, sticky.ideal, sticky.moved, "sticky moves the ideal share")
	assert.LessOrEqual(t, sticky.spread, 1, "the members of sticky differ by one at most")

	mean := float64(s.all()) / float64(s.members)
	for _, name := range compared {
		o := of[name]
		times := float64(o.all()) / float64(sticky.all()) // sticky moves the ideal, as checked above
		t.Logf("%-8s moves %6.2f times the ideal, members differ by %d", name, times, o.spread)
		switch {
		case name == "ring":
			assert.InDelta(t, 1, times, 0.25, "a ring moves about the ideal share")
			assert.Greater(t, float64(o.spread), 0.3*mean, "and leaves the members uneven")
		case name == "rotate" || name == "modulo":
			assert.Greater(t, times, 0.7*float64(s.members), "%s moves nearly all", name)
		case name != "sticky" && s.jobs == 1:
			assert.LessOrEqual(t, o.spread, 1, "%s is even within a job", name)
			assert.Greater(t, times, 0.35*float64(s.members), "%s moves about half of all", name)
		case name != "sticky":
			assert.Greater(t, float64(o.spread), 0.4*float64(s.all()), "%s assigns jobs of one shard to one member or two", name)
		}
	}
}
