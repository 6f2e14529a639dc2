package strategy_test

import (
	"errors"
	"fmt"

	"github.com/rota-dev/rota/coordinator/strategy"
)

// A document shows from here:

// nearTheData keeps shards where they are, and assigns the others to the instances of one zone.
func nearTheData(in strategy.Input) (strategy.Assignment, error) {
	var near []string
	for _, m := range in.Members {
		if m.Labels["zone"] == "a" {
			near = append(near, m.ID)
		}
	}
	if len(near) == 0 {
		return nil, errors.New("no instance is in zone a")
	}
	out := in.Owners
	for s, owner := range out {
		if owner == "" {
			out[s] = near[s%len(near)]
		}
	}
	return out, nil
}

// To here.

// A strategy of one's own. executor.Options.Strategies makes it known by a name.
func ExampleFunc_labels() {
	owners, err := nearTheData(strategy.Input{
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
