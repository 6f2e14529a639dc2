package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// benchCase is a measurement that has a name.
type benchCase struct {
	name, about string
	// run measures once. It returns an error, beside the figures, if the library broke a
	// promise.
	run func(ctx context.Context, o options) (map[string]float64, error)
}

// options apply to each run of a case.
type options struct {
	name       string        // of the case
	duration   time.Duration // of the measurement
	patience   time.Duration // for a start, and for the first runs
	outage     time.Duration // of the store, in the cases of catching up
	ttl        time.Duration // of sessions, set by a case; zero: the library's default
	skew       time.Duration // MaxClockSkew, set by a case; zero: the default
	defined    bool          // instances offer a kind, set by a case
	cpuProfile string        // directory for profiles of workers; empty: none
	logs       string        // directory for logs of workers; empty: none
}

// cases lists all cases.
var cases = slices.Concat(
	stormCases("rota", "memory", 1, 100, 500, 2000, 5000, 10000),
	rotaStorms("memory", 1),
	stormCases("rota", "etcd", 2, 100, 500, 2000, 5000, 10000),
	rotaStorms("etcd", 2),
	stormCases("rota", "zookeeper", 2, 100, 500, 2000, 5000, 10000),
	rotaStorms("zookeeper", 2),
	stormCases("rota", "postgres", 2, 100, 500, 2000, 5000, 10000),
	rotaStorms("postgres", 2),
	floorCases(),
	crashFloorCases(),
	shardCases(),
	outageCases(),
	failoverCases(),
	changeCases(),
	footprintCases(),
	lookCases(),
	definingCases(),
	onceCases(),
	comparisonCases(),
	peerCases(),
)

func findCase(name string) (benchCase, error) {
	for _, c := range cases {
		if c.name == name {
			return c, nil
		}
	}
	return benchCase{}, fmt.Errorf("no case %q; see list", name)
}

// measure runs a case several times.
func (c benchCase) measure(ctx context.Context, runs int, o options) (result, error) {
	m, err := describeMachine()
	if err != nil {
		return result{}, err
	}
	r := result{Case: c.name, About: c.about, When: time.Now().UTC().Truncate(time.Second), Machine: m, Versions: versions(), Duration: o.duration}
	o.name = c.name
	var broken []error
	for range runs {
		x := measurement{LoadBefore: loadAverage()}
		x.Figures, err = c.run(ctx, o)
		x.LoadAfter = loadAverage()
		if x.Figures == nil {
			return r, fmt.Errorf("%s: %w", c.name, err)
		}
		if err != nil {
			broken = append(broken, fmt.Errorf("%s: %w", c.name, err))
		}
		r.Runs = append(r.Runs, x)
	}
	return r, errors.Join(broken...)
}
