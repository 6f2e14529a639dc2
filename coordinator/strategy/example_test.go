package strategy_test

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rota-dev/rota/coordinator/strategy"
)

// A document shows from here:

// assignNearData keeps shards with their owners and assigns all others to instances of zone a, where
// the data is.
func assignNearData(in strategy.Input) (strategy.Assignment, error) {
	var near []string
	for _, m := range in.Members {
		if m.Labels["zone"] == "a" {
			near = append(near, m.ID)
		}
	}
	if len(near) == 0 {
		return nil, errors.New("no instance is in zone a")
	}
	owners := in.Owners // a copy, for the strategy to change
	for shard, owner := range owners {
		if owner == "" {
			owners[shard] = near[shard%len(near)]
		}
	}
	return owners, nil
}

// To here.

// A custom strategy, run as a leader runs it. A program registers it by name, for instance in
// executor.Options.Strategies.
func ExampleFunc() {
	owners, err := strategy.Run(assignNearData, strategy.Input{
		Job: "index", Shards: 4,
		Members: []strategy.Candidate{
			{ID: "n1.x", Name: "n1", Labels: map[string]string{"zone": "a"}},
			{ID: "n2.y", Name: "n2", Labels: map[string]string{"zone": "b"}},
			{ID: "n3.z", Name: "n3", Labels: map[string]string{"zone": "a"}},
		},
		Owners: []string{"", "n2.y", "", ""},
	})
	fmt.Println(owners, err)
	// Output:
	// [n1.x n2.y n1.x n3.z] <nil>
}

// A custom strategy that restricts the candidates and leaves the rest to a built-in one: it keeps all
// shards in the first zone that has an instance.
func ExampleFunc_restrictCandidates() {
	inFirstZone := func(in strategy.Input) (strategy.Assignment, error) {
		zone := in.Members[0].Labels["zone"]
		for _, m := range in.Members {
			zone = min(zone, m.Labels["zone"])
		}
		in.Members = slices.DeleteFunc(slices.Clone(in.Members), func(m strategy.Candidate) bool { return m.Labels["zone"] != zone })
		return strategy.Sticky(in)
	}

	owners, err := strategy.Run(inFirstZone, strategy.Input{
		Job:    "settle",
		Shards: 4,
		Members: []strategy.Candidate{
			{ID: "a", Labels: map[string]string{"zone": "east"}},
			{ID: "b", Labels: map[string]string{"zone": "west"}},
			{ID: "c", Labels: map[string]string{"zone": "east"}},
		},
		Owners: []string{"a", "b", "", "c"},
	})
	fmt.Println(owners, err)
	// Output:
	// [a a c c] <nil>
}

// A strategy that fails: the leader reports the error and leaves shards with their owners.
func ExampleRun() {
	_, err := strategy.Run(assignNearData, strategy.Input{
		Job: "index", Shards: 1,
		Members: []strategy.Candidate{{ID: "n2.y", Name: "n2", Labels: map[string]string{"zone": "b"}}},
		Owners:  []string{""},
	})
	fmt.Println(err)
	// Output:
	// run strategy of job "index": no instance is in zone a
}
