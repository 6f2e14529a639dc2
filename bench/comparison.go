package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// comparison is two ways to do the same task.
type comparison struct {
	name   string
	budget string // as in docs/performance.md
	paced  bool   // the subjects do not determine the rate
	ours   subject
	theirs subject // no run if there is no alternative
}

// subject is one side of a comparison. run performs the task for some time in a place of
// the servers of its own.
type subject struct {
	name string
	run  func(ctx context.Context, p place, m *meter) error
}

// effort bounds a run.
type effort struct {
	time  time.Duration
	count int // number of measurements; 0 means no bound
}

// row is the result of a comparison.
type row struct {
	comparison
	us, them summary
	ratio    float64 // their median to ours: median over the runs
	rate     float64 // our rate to theirs: median over the runs
}

// summary holds the medians over the runs of each figure.
type summary struct {
	median, tail time.Duration // tail is the 99th percentile
	rate         float64       // per second
}

func (c comparison) run(ctx context.Context, s *servers, runs int, e effort) (row, error) {
	var ours, theirs []summary
	for range runs {
		a, err := measure(ctx, s, e, c.ours)
		if err != nil {
			return row{}, err
		}
		ours = append(ours, a)
		if c.theirs.run == nil {
			continue
		}
		b, err := measure(ctx, s, e, c.theirs)
		if err != nil {
			return row{}, err
		}
		theirs = append(theirs, b)
	}
	r := row{comparison: c, us: mediansOf(ours), them: mediansOf(theirs)}
	var ratios, rates []float64
	for i := range theirs {
		ratios = append(ratios, float64(theirs[i].median)/float64(ours[i].median))
		rates = append(rates, ours[i].rate/theirs[i].rate)
	}
	r.ratio, r.rate = quantile(ratios, 0.5), quantile(rates, 0.5)
	return r, nil
}

func measure(ctx context.Context, s *servers, e effort, sub subject) (summary, error) {
	p := s.place()
	m := newMeter(e)
	if err := sub.run(ctx, p, m); err != nil {
		return summary{}, fmt.Errorf("%s: %w", sub.name, err)
	}
	return m.summary()
}

// mediansOf returns the median of each figure separately.
func mediansOf(all []summary) summary {
	var medians, tails []time.Duration
	var rates []float64
	for _, s := range all {
		medians, tails, rates = append(medians, s.median), append(tails, s.tail), append(rates, s.rate)
	}
	return summary{quantile(medians, 0.5), quantile(tails, 0.5), quantile(rates, 0.5)}
}

// meter records durations until the effort is used up.
type meter struct {
	effort effort

	mu      sync.Mutex
	began   time.Time // set by the first duration, which is not counted
	last    time.Time
	samples []time.Duration
}

func newMeter(e effort) *meter { return &meter{effort: e} }

// startClock starts the measurement; preparation is excluded.
func (m *meter) startClock() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.began = time.Now()
}

// add records a duration that has just ended and reports whether to continue.
func (m *meter) add(d time.Duration) (more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.overLocked() {
		return false
	}
	m.samples = append(m.samples, d)
	m.last = time.Now()
	return !m.overLocked()
}

// isOver reports whether the effort is used up.
func (m *meter) isOver() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.overLocked()
}

func (m *meter) overLocked() bool {
	enough := m.effort.count > 0 && len(m.samples) >= m.effort.count
	return enough || !m.began.IsZero() && m.effort.time > 0 && time.Since(m.began) >= m.effort.time
}

func (m *meter) summary() (summary, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.samples) == 0 {
		return summary{}, fmt.Errorf("nothing was measured")
	}
	return summary{
		median: quantile(m.samples, 0.5),
		tail:   quantile(m.samples, 0.99),
		rate:   float64(len(m.samples)) / m.last.Sub(m.began).Seconds(),
	}, nil
}
