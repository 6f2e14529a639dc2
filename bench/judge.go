package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// shardKey identifies a shard, fireKey one of its runs.
type shardKey struct{ job, shard int32 }

type fireKey struct {
	shardKey
	fire int64
}

// window is a span of instants, without its end.
type window struct{ from, to time.Time }

func (w window) contains(nanos int64) bool {
	return nanos >= w.from.UnixNano() && nanos < w.to.UnixNano()
}

func (w window) length() time.Duration { return w.to.Sub(w.from) }

// verdict counts the fires and runs of a fleet.
type verdict struct {
	due      int // fires of the window, counted per shard
	made     int // of these, those with a run
	begun    int // runs that began in the window
	early    int // runs that began before their fire
	doubled  int // runs of the same fire and shard with the same attempt, at any time
	reruns   int // runs with a later attempt, at any time
	starved  int // shards without a run of a fire of the window
	gaps     int // fires without a run between the first and the last run of a shard
	lateness []time.Duration
}

// judge examines the runs of all workers. Every fire is due in the window, whichever worker
// runs it.
func judge(all [][]run, sets []jobSet, w window) verdict {
	v := verdict{due: countDue(sets, w)}
	attempts := map[fireKey]int32{} // the highest attempt seen
	spans := map[shardKey]*span{}
	served := map[shardKey]bool{}
	for _, r := range inOrder(all) {
		key := fireKey{shardKey{r.job, r.shard}, r.fire}
		v.addRun(r, attempts[key], w)
		if w.contains(r.fire) {
			served[key.shardKey] = true
		}
		if attempts[key] == 0 {
			if spans[key.shardKey] == nil {
				spans[key.shardKey] = &span{first: r.fire, last: r.fire}
			}
			spans[key.shardKey].add(r.fire)
		}
		attempts[key] = max(attempts[key], r.attempt)
	}
	for _, s := range sets {
		v.gaps += countGaps(s, spans)
		v.starved += s.Count * s.Shards
	}
	v.starved -= len(served)
	return v
}

// inOrder returns the runs of all workers in the order of their starts, so that the attempts
// at a fire are in order.
func inOrder(all [][]run) []run {
	return slices.SortedFunc(slices.Values(slices.Concat(all...)), func(a, b run) int { return cmp.Compare(a.start, b.start) })
}

// addRun counts a run. before is the highest attempt of the same fire that was seen before.
func (v *verdict) addRun(r run, before int32, w window) {
	late := time.Duration(r.start - r.fire)
	if w.contains(r.start) {
		v.begun++
	}
	if late < 0 {
		v.early++
	}
	switch {
	case before >= r.attempt:
		v.doubled++
	case r.attempt > 1:
		v.reruns++
	}
	if before == 0 && w.contains(r.fire) {
		v.made++
		v.lateness = append(v.lateness, late)
	}
}

func countDue(sets []jobSet, w window) (due int) {
	for _, s := range sets {
		for job := s.First; job < s.First+s.Count && s.Every > 0; job++ {
			every := s.interval(job).Nanoseconds()
			due += s.Shards * int((w.to.UnixNano()-1)/every-(w.from.UnixNano()-1)/every)
		}
	}
	return due
}

// span is the fires that a shard ran.
type span struct {
	first, last int64
	count       int64 // distinct fires
}

func (s *span) add(fire int64) {
	s.first, s.last = min(s.first, fire), max(s.last, fire)
	s.count++
}

func countGaps(s jobSet, spans map[shardKey]*span) (gaps int) {
	for job := s.First; job < s.First+s.Count && s.Every > 0; job++ {
		for shard := range s.Shards {
			if sp := spans[shardKey{int32(job), int32(shard)}]; sp != nil {
				gaps += int((sp.last-sp.first)/s.interval(job).Nanoseconds() + 1 - sp.count)
			}
		}
	}
	return gaps
}

// check returns an error if fires were lost, doubled or early. Times do not count then. skipped is the number of gaps that the library counted.
func (v verdict) check(skipped int) error {
	if v.doubled > 0 || v.early > 0 || v.gaps > skipped {
		return fmt.Errorf("%d fires lost, %d doubled, %d early", max(v.gaps-skipped, 0), v.doubled, v.early)
	}
	return nil
}
