package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// comparison is two ways to do the same task on the same server, one after the other, so
// that other load affects both.
type comparison struct {
	store        string
	ours, theirs subject // theirs has no run if there is no alternative
	paced        bool    // the subjects do not determine the rate
}

// subject is one side of a comparison. run repeats the task until the meter is over.
type subject struct {
	name string
	run  func(ctx context.Context, s *store, m *meter) error
}

func (c comparison) run(ctx context.Context, o options) (map[string]float64, error) {
	figures := map[string]float64{}
	for prefix, side := range map[string]subject{"": c.ours, peerPrefix: c.theirs} { // in random order
		if side.run == nil {
			continue
		}
		m, err := side.measure(ctx, c.store, o.duration)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", side.name, err)
		}
		figures[prefix+"p50"] = milliseconds(quantile(m.samples, 0.5))
		figures[prefix+"p99"] = milliseconds(quantile(m.samples, 0.99))
		if !c.paced {
			figures[prefix+"rate"] = float64(len(m.samples)) / m.last.Sub(m.began).Seconds()
		}
	}
	return figures, nil
}

// measure runs a subject on a new server.
func (s subject) measure(ctx context.Context, storeKind string, d time.Duration) (*meter, error) {
	st, err := storeKinds[storeKind](ctx)
	if err != nil {
		return nil, err
	}
	defer st.stop()
	m := &meter{time: d}
	if err := s.run(ctx, st, m); err != nil {
		return nil, err
	}
	if len(m.samples) == 0 {
		return nil, errors.New("nothing was measured")
	}
	return m, nil
}

// meter records durations until its time is over.
type meter struct {
	time time.Duration

	mu      sync.Mutex
	began   time.Time
	last    time.Time
	samples []time.Duration
}

// startClock starts the measurement; preparation is excluded.
func (m *meter) startClock() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.began = time.Now()
}

// add records a duration that has just ended.
func (m *meter) add(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.overLocked() {
		m.samples = append(m.samples, d)
		m.last = time.Now()
	}
}

// isOver reports whether the time is over.
func (m *meter) isOver() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.overLocked()
}

func (m *meter) overLocked() bool { return !m.began.IsZero() && time.Since(m.began) >= m.time }

// comparisonCases compare primitives with those of the servers' own clients.
func comparisonCases() (cases []benchCase) {
	for _, k := range []struct {
		store           string
		lock, leader    func(context.Context, *store) (contender, error)
		lockName, watch string
		runWatch        func(context.Context, *store, *meter) error
	}{
		{store: "memory"},
		{"etcd", newEtcdMutex, newEtcdElection, "concurrency.Mutex", "clientv3 Watch", watchEtcd},
		{"zookeeper", newZKLock, nil, "zk.Lock", "zk GetW", watchZooKeeper},
	} {
		for _, n := range []int{2, 8} {
			c := comparison{store: k.store, ours: subject{"lock.Lock", handOffs(n, 0, newOurLock)}}
			if k.lock != nil {
				c.theirs = subject{k.lockName, handOffs(n, 0, k.lock)}
			}
			cases = append(cases, c.named(fmt.Sprintf("lock-%s-%d", k.store, n), fmt.Sprintf("%d contenders release a lock and acquire it again", n)))
		}
		c := comparison{store: k.store, paced: true, ours: subject{"coordinator.Campaign", handOffs(candidates, term, newCampaigner)}}
		if k.leader != nil {
			c.theirs = subject{"concurrency.Election", handOffs(candidates, term, k.leader)}
		}
		cases = append(cases, c.named("leader-"+k.store, "hand-over of leadership by resigning, 3 candidates"))
		c = comparison{store: k.store, ours: subject{"registry.Watch", watchOurs(1)}, theirs: subject{k.watch, k.runWatch}}
		cases = append(cases, c.named("watch-"+k.store, "a write to its event at another client"))
		c = comparison{store: k.store, ours: subject{"registry.Watch", watchOurs(fanOut)}}
		cases = append(cases, c.named("fanout-"+k.store, fmt.Sprintf("a write to its event at the last of %d clients", fanOut)))
	}
	return cases
}

func (c comparison) named(name, about string) benchCase {
	about += ": " + c.ours.name
	if c.theirs.run != nil {
		about += " beside " + c.theirs.name
	}
	return benchCase{name: name, about: about + " on " + c.store, run: c.run}
}
