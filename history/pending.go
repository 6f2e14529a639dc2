package history

import (
	"container/list"
	"time"

	"github.com/rota-dev/rota/internal/heap"
)

// Keep is which runs have a record of their own. Every run is counted in the record of its fire.
type Keep int

const (
	// KeepNotable keeps the runs that failed, crashed or were handed back, or have an attempt above 1, and the three
	// slowest of each fire on each instance. It is the zero value.
	KeepNotable Keep = iota
	// KeepAll keeps every run.
	KeepAll
	// KeepFires keeps the records of fires only.
	KeepFires
)

// slowest is how many of the successful runs of a fire KeepNotable keeps.
const slowest = 3

// knownFires bounds the fires that are remembered after their record was taken, for the slowest of their runs.
const knownFires = 10_000

// pending holds the records to write. It is bounded: add drops the least important records. It knows no clock and no
// lock, so that its decisions can be tested.
type pending struct {
	limit int
	keep  Keep
	wait  time.Duration // how long a record waits for others
	part  uint64        // of the last fire record

	fires map[fireKey]*fireState
	idle  list.List // of *fireState without a record to write, the oldest first

	// Records to write, by importance.
	failedRuns  list.List // of *queuedRun, in order of due
	failedFires firesByDue
	okFires     firesByDue
	okRuns      list.List // of *queuedRun, in order of due

	dropped Dropped
}

// fireKey identifies a fire on an instance.
type fireKey struct {
	namespace, group, job, instance string
	fire                            int64
	trigger                         uint64
}

// fireState is a fire that had runs recently.
type fireState struct {
	key   fireKey
	rec   *Fire     // counts that were not taken yet; nil if there are none
	due   time.Time // when rec is to be taken
	place int       // in its heap
	idle  *list.Element
	slow  []slowRun // the slowest successful runs so far, at most slowest
}

// slowRun is one of the slowest runs of a fire.
type slowRun struct {
	took  time.Duration
	entry *list.Element // in okRuns, or removed from there
}

type queuedRun struct {
	run Run
	due time.Time
}

// record is a run or a fire that was taken to be written.
type record struct {
	run  *Run
	fire *Fire
	// failures counts the failed writes of this record alone, of which each came after a successful write of others:
	// successes is the number of successful writes at the last one.
	failures  int
	successes int64
}

func newPending(limit int, keep Keep, wait time.Duration, firstPart uint64) *pending {
	return &pending{limit: limit, keep: keep, wait: wait, part: firstPart, fires: map[fireKey]*fireState{}}
}

// size is the number of records to write.
func (p *pending) size() int {
	return p.failedRuns.Len() + p.failedFires.Len() + p.okFires.Len() + p.okRuns.Len()
}

// addRun adds a normalized run.
func (p *pending) addRun(r Run, now time.Time) {
	key := fireKey{r.Namespace, r.Group, r.Job, r.Instance, r.Fire.UnixMicro(), r.Trigger}
	s := p.open(key, r.Fire, now)
	p.update(s, func(f *Fire) { f.addRun(&r) })
	r.Targets = 0 // as a Reader returns it
	p.keepRun(s, r, now)
	p.dropExcess()
}

// addFire adds the counts of a normalized record of a fire.
func (p *pending) addFire(f Fire, now time.Time) {
	key := fireKey{f.Namespace, f.Group, f.Job, f.Instance, f.Fire.UnixMicro(), f.Trigger}
	p.update(p.open(key, f.Fire, now), func(rec *Fire) { rec.merge(&f) })
	p.dropExcess()
}

// update changes the record of a fire, which is in the heap of its importance afterwards.
func (p *pending) update(s *fireState, change func(*Fire)) {
	succeeded := s.rec.allSucceeded()
	change(s.rec)
	if succeeded && !s.rec.allSucceeded() {
		p.okFires.Keep(s, false)
		p.failedFires.Push(s)
	}
}

// open returns the state of a fire, with a record to write.
func (p *pending) open(key fireKey, fire, now time.Time) *fireState {
	s := p.fires[key]
	if s == nil {
		s = &fireState{key: key}
		p.fires[key] = s
	}
	if s.rec != nil {
		return s
	}
	if s.idle != nil {
		p.idle.Remove(s.idle)
		s.idle = nil
	}
	p.part++
	s.rec = &Fire{
		Namespace: key.namespace, Group: key.group, Job: key.job, Fire: fire, Trigger: key.trigger,
		Instance: key.instance, Part: p.part,
	}
	s.due = now.Add(p.wait)
	p.okFires.Push(s)
	return s
}

// keepRun adds the run to those to write if it is worth a record.
func (p *pending) keepRun(s *fireState, r Run, now time.Time) {
	q := &queuedRun{r, now.Add(p.wait)}
	switch {
	case p.keep == KeepFires:
	case r.Outcome.IsFailure():
		p.failedRuns.PushBack(q)
	case p.keep == KeepAll, r.Outcome != Succeeded, r.Attempt > 1:
		p.okRuns.PushBack(q)
	case len(s.slow) < slowest:
		s.slow = append(s.slow, slowRun{r.Duration(), p.okRuns.PushBack(q)})
	default:
		least := &s.slow[0]
		for i := range s.slow {
			if s.slow[i].took < least.took {
				least = &s.slow[i]
			}
		}
		if r.Duration() > least.took {
			p.okRuns.Remove(least.entry) // no effect if it was taken or dropped
			*least = slowRun{r.Duration(), p.okRuns.PushBack(q)}
		}
	}
}

// dropExcess drops records until the limit holds.
func (p *pending) dropExcess() {
	for p.size() > p.limit {
		switch {
		case p.okRuns.Len() > 0:
			removeFirst(&p.okRuns)
			p.dropped.Folded++
		case p.okFires.Len() > 0:
			p.dropped.countFire(p.close(&p.okFires))
		case p.failedFires.Len() > 0:
			p.dropped.countFire(p.close(&p.failedFires))
		default:
			removeFirst(&p.failedRuns)
			p.dropped.Failures++
		}
	}
}

// close removes the oldest record of a heap of fires.
func (p *pending) close(from *firesByDue) *Fire {
	s := from.Pop()
	rec := s.rec
	s.rec = nil
	s.idle = p.idle.PushBack(s)
	for p.idle.Len() > knownFires {
		oldest := p.idle.Remove(p.idle.Front()).(*fireState)
		delete(p.fires, oldest.key)
	}
	return rec
}

// take removes up to n records that are due, the most important ones first. All are due if all is set, or if half of
// the limit is reached.
func (p *pending) take(now time.Time, n int, all bool) []record {
	all = all || p.isCrowded()
	var taken []record
	takeRuns := func(from *list.List) {
		for len(taken) < n && from.Len() > 0 {
			q := from.Front().Value.(*queuedRun)
			if !all && q.due.After(now) {
				return
			}
			removeFirst(from)
			taken = append(taken, record{run: &q.run})
		}
	}
	takeFires := func(from *firesByDue) {
		for len(taken) < n && from.Len() > 0 && (all || !from.First().due.After(now)) {
			rec := p.close(from).normalize()
			taken = append(taken, record{fire: &rec})
		}
	}
	takeRuns(&p.failedRuns)
	takeFires(&p.failedFires)
	takeFires(&p.okFires)
	takeRuns(&p.okRuns)
	return taken
}

// removeFirst removes the first run. A fireState may keep the element, but not the run.
func removeFirst(from *list.List) {
	first := from.Front()
	from.Remove(first)
	first.Value = nil
}

// isCrowded reports whether records should be written though others may join them.
func (p *pending) isCrowded() bool { return p.size() >= max(1, p.limit/2) }

// nextDue returns when the first record is due. It is zero if there is none.
func (p *pending) nextDue() time.Time {
	var first time.Time
	observe := func(due time.Time) {
		if first.IsZero() || due.Before(first) {
			first = due
		}
	}
	for _, runs := range []*list.List{&p.failedRuns, &p.okRuns} {
		if e := runs.Front(); e != nil {
			observe(e.Value.(*queuedRun).due)
		}
	}
	for _, fires := range []*firesByDue{&p.failedFires, &p.okFires} {
		if fires.Len() > 0 {
			observe(fires.First().due)
		}
	}
	return first
}

// firesByDue is fires with a record to write. The first is due first.
type firesByDue = heap.Heap[*fireState, byDue]

type byDue struct{}

func (byDue) Before(a, b *fireState) bool { return a.due.Before(b.due) }
func (byDue) Place(s *fireState) *int     { return &s.place }
