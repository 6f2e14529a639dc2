package strategy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// inputOf returns an Input with candidates of these names. The order of their IDs differs from that
// of the names.
func inputOf(job string, shards int, names ...string) Input {
	in := Input{Job: job, Shards: shards, Owners: make([]string, shards)}
	for i, name := range names {
		in.Members = append(in.Members, Candidate{ID: fmt.Sprintf("id-%02d", (i*7)%len(names)), Name: name})
	}
	slices.SortFunc(in.Members, func(a, b Candidate) int { return cmp.Compare(a.ID, b.ID) })
	return in
}

// sharesByName runs s and returns each candidate's shards by its name.
func sharesByName(t *testing.T, s Func, in Input) map[string][]int {
	t.Helper()
	a, err := Run(s, in)
	require.NoError(t, err)
	shares := map[string][]int{}
	for _, m := range in.Members {
		shares[m.Name] = nil
		for shard, id := range a {
			if id == m.ID {
				shares[m.Name] = append(shares[m.Name], shard)
			}
		}
	}
	return shares
}

// In the following tests Elastic-Job's order of the instances is c, b, a.

func TestAverage_AssignsAsElasticJob(t *testing.T) {
	for _, tt := range []struct {
		shards int
		want   map[string][]int
	}{
		{9, map[string][]int{"c": {0, 1, 2}, "b": {3, 4, 5}, "a": {6, 7, 8}}},
		{8, map[string][]int{"c": {0, 1, 6}, "b": {2, 3, 7}, "a": {4, 5}}},
		{10, map[string][]int{"c": {0, 1, 2, 9}, "b": {3, 4, 5}, "a": {6, 7, 8}}},
		{2, map[string][]int{"c": {0}, "b": {1}, "a": nil}},
		{1, map[string][]int{"c": {0}, "b": nil, "a": nil}},
	} {
		t.Run(fmt.Sprint(tt.shards, " over 3"), func(t *testing.T) {
			assert.Equal(t, tt.want, sharesByName(t, Average, inputOf("settle", tt.shards, "a", "b", "c")))
		})
	}
}

func TestOdevity_ReversesForEvenHashes(t *testing.T) {
	for job, want := range map[string]map[string][]int{
		"javaSimpleJob":      {"c": {0}, "b": {1}, "a": nil}, // -694093655
		"a":                  {"c": {0}, "b": {1}, "a": nil}, // 97
		"settle-2":           {"c": nil, "b": {1}, "a": {0}}, // 1434710064
		"my-job":             {"c": nil, "b": {1}, "a": {0}}, // -1061197796
		"polygenelubricants": {"c": nil, "b": {1}, "a": {0}}, // the least int
		"":                   {"c": nil, "b": {1}, "a": {0}}, // 0
	} {
		t.Run(job, func(t *testing.T) {
			assert.Equal(t, want, sharesByName(t, Odevity, inputOf(job, 2, "a", "b", "c")))
		})
	}
}

func TestRotate_RotatesTheInstances(t *testing.T) {
	for job, want := range map[string]map[string][]int{
		"":                   {"c": {0, 1, 6}, "b": {2, 3, 7}, "a": {4, 5}}, // by 0
		"settle":             {"b": {0, 1, 6}, "a": {2, 3, 7}, "c": {4, 5}}, // |-905768629| mod 3 = 1
		"my-job":             {"a": {0, 1, 6}, "c": {2, 3, 7}, "b": {4, 5}}, // |-1061197796| mod 3 = 2
		"polygenelubricants": {"a": {0, 1, 6}, "c": {2, 3, 7}, "b": {4, 5}}, // 1<<31 mod 3 = 2
	} {
		t.Run(job, func(t *testing.T) {
			assert.Equal(t, want, sharesByName(t, Rotate, inputOf(job, 8, "a", "b", "c")))
		})
	}
}

func TestRotation_IsWithinBoundsForEveryHash(t *testing.T) {
	for _, hash := range []int32{0, 1, -1, math.MaxInt32, -math.MaxInt32, math.MinInt32} {
		for n := 1; n <= 7; n++ {
			by := rotation(hash, n)
			assert.GreaterOrEqual(t, by, 0)
			assert.Less(t, by, n)
		}
	}
	assert.Equal(t, 2, rotation(math.MinInt32, 3))
}

func TestJavaHash_EqualsStringHashCode(t *testing.T) {
	for s, want := range map[string]int32{
		"":                   0,
		"a":                  97,
		"ab":                 3105,
		"settle":             -905768629,
		"settle-2":           1434710064,
		"my-job":             -1061197796,
		"javaSimpleJob":      -694093655,
		"polygenelubricants": math.MinInt32,
		"日本":                 835047,
		"😀":                  1772899, // two code units
		"x😀y":                58534910,
	} {
		assert.Equal(t, want, javaHash(s), s)
	}
}

func TestElasticOrder_DescendsByNameAsInJava(t *testing.T) {
	in := inputOf("", 1, "10.0.0.9", "10.0.0.10", "host-1", "host-10", "host-9", "a", "A", "a~", "a.", "a_", "")
	var names []string
	for _, id := range elasticOrder(in.Members) {
		i := slices.IndexFunc(in.Members, func(m Candidate) bool { return m.ID == id })
		names = append(names, in.Members[i].Name)
	}
	// As sorted by java.util.Collections.reverseOrder.
	assert.Equal(t, []string{"host-9", "host-10", "host-1", "a~", "a_", "a.", "a", "A", "10.0.0.9", "10.0.0.10", ""}, names)
}

func TestElasticOrder_BreaksTiesByID(t *testing.T) {
	members := []Candidate{{ID: "1", Name: "x"}, {ID: "2", Name: "x"}, {ID: "3", Name: "w"}, {ID: "4", Name: "y"}}
	assert.Equal(t, []string{"4", "2", "1", "3"}, elasticOrder(members))
}
