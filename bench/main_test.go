package main

import (
	"strings"
	"testing"
	"time"
)

// Each comparison runs with a minimal effort. The figures mean nothing, but must exist.
func TestComparisonsRun(t *testing.T) {
	s, err := startServers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	var rows []row
	for _, c := range comparisons {
		t.Run(c.name, func(t *testing.T) {
			r, err := c.run(t.Context(), s, 1, effort{count: 5})
			if err != nil {
				t.Fatal(err)
			}
			if r.us.median <= 0 || r.us.rate <= 0 || (c.theirs.run != nil) != (r.ratio > 0 && r.rate > 0) {
				t.Errorf("result is %+v", r)
			}
			rows = append(rows, r)
		})
	}
	if text := tableOf(rows); strings.Count(text, "\n") != len(comparisons)+2 {
		t.Errorf("the table of %d comparisons is:\n%s", len(comparisons), text)
	}
}

func TestQuantile(t *testing.T) {
	all := []time.Duration{5, 1, 4, 2, 3}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 3, 0.99: 5, 1: 5} {
		if got := quantile(all, q); got != want {
			t.Errorf("quantile %v of %v is %v, not %v", q, all, got, want)
		}
	}
}
