// Package defined is a leader's index of the jobs that were defined as data. Most of them rest: the index knows when each has
// to wake, or to be deleted, without looking at the others.
package defined

import (
	"maps"

	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/heap"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// Entry is what the index keeps of a record of a defined job: little, as there may be a hundred thousand.
type Entry struct {
	Rev      registry.Rev
	Value    []byte // the record as stored
	Created  string // empty: operators have deleted the job
	Kind     string
	Revision int
	Next     record.Instant // see record.Defined
	DeleteAt record.Instant // see record.Defined.DeleteAt
}

// IsGone reports whether the record is all that is left of a deleted job.
func (e *Entry) IsGone() bool { return e.Created == "" && e.DeleteAt != 0 }

// NewEntry decodes and checks a record.
func NewEntry(e registry.Entry) (Entry, error) {
	d, err := record.DecodeOf(e, record.DecodeDefined)
	if err != nil {
		return Entry{}, err
	}
	return EntryOf(d, e.Modified, e.Value), nil
}

// EntryOf returns the entry of a record with a revision and an encoded value.
func EntryOf(d *record.Defined, rev registry.Rev, value []byte) Entry {
	return Entry{Rev: rev, Value: value, Created: d.Created, Kind: d.Parsed().Kind, Revision: d.Revision, Next: d.Next, DeleteAt: d.DeleteAt()}
}

// Decode returns the whole record.
func (e *Entry) Decode() (planning.DefinedRecord, error) {
	d, err := record.DecodeDefined(e.Value)
	return planning.DefinedRecord{Rev: e.Rev, Defined: d}, err
}

// Step is what a leader has to do about a defined job.
type Step int

// The steps.
const (
	Nothing Step = iota
	Wake         // store its definition as that of a job
	Update       // replace the definition of a job that is awake by one of a higher revision
	Delete       // delete the job's records: operators have deleted it, or it has finished long ago
	Bury         // delete the record, which has been all that is left of a deleted job for long enough
)

// Beside is what a leader knows of a job beside the record in its bucket.
type Beside struct {
	Awake    *planning.JobRecord // the stored definition, nil if there is none
	Planned  bool                // there is a plan
	Wanted   bool                // an operator wants something of it
	Followed bool                // by a job that is awake
}

// Decide returns what to do about a job now, and if that is nothing, when to ask again; zero: when a record has changed.
func (e *Entry) Decide(b Beside, now record.Instant) (s Step, again record.Instant) {
	switch {
	case e.IsGone():
		return dueAt(Bury, e.DeleteAt, now)
	case b.Awake != nil && b.Awake.Kind != "" && b.Awake.Created == e.Created && b.Awake.Revision < e.Revision:
		return Update, 0
	case b.Awake != nil || b.Planned:
		return Nothing, 0 // planning puts it to rest, or deletes it; a job of this name that was registered in code goes first
	case e.Created == "":
		return Delete, 0
	case b.Wanted || b.Followed:
		return Wake, 0
	case e.DeleteAt != 0:
		return dueAt(Delete, e.DeleteAt, now)
	case e.Next != 0:
		return dueAt(Wake, e.Next.Add(-planning.WakeAhead), now)
	}
	return Nothing, 0
}

func dueAt(s Step, at, now record.Instant) (Step, record.Instant) {
	if at <= now {
		return s, 0
	}
	return Nothing, at
}

// Index holds the entries of all defined jobs. It belongs to one goroutine. The zero value is empty.
type Index struct {
	of      map[string]*indexed // by segment
	queue   heap.Heap[*indexed, byInstant]
	counts  map[string]int // by kind
	changed map[string]struct{}
}

type indexed struct {
	Entry
	segment string
	at      record.Instant
	place   int
}

type byInstant struct{}

func (byInstant) Before(a, b *indexed) bool { return a.at < b.at }
func (byInstant) Place(x *indexed) *int     { return &x.place }

// Put adds an entry, or replaces that of its segment.
func (x *Index) Put(segment string, e Entry) {
	if x.of == nil {
		x.of, x.counts = map[string]*indexed{}, map[string]int{}
	}
	old, known := x.of[segment]
	if !known {
		old = &indexed{segment: segment}
		x.of[segment] = old
	}
	x.count(old.Kind, -1)
	old.Entry = e
	x.count(e.Kind, 1)
	x.Ask(segment)
}

// Remove removes the entry of a segment.
func (x *Index) Remove(segment string) {
	if old, known := x.of[segment]; known {
		x.count(old.Kind, -1)
		x.queue.Keep(old, false)
		delete(x.of, segment)
	}
}

func (x *Index) count(kind string, n int) {
	if kind == "" {
		return
	}
	if x.counts[kind] += n; x.counts[kind] == 0 {
		delete(x.counts, kind)
	}
}

// Get returns the entry of a segment.
func (x *Index) Get(segment string) (e *Entry, known bool) {
	found, known := x.of[segment]
	if !known {
		return nil, false
	}
	return &found.Entry, true
}

// Counts returns how many jobs are defined, by kind.
func (x *Index) Counts() map[string]int { return maps.Clone(x.counts) }

// Ask has Take decide about a segment again, as a record of the job has changed.
func (x *Index) Ask(segment string) {
	if _, known := x.of[segment]; !known {
		return
	}
	if x.changed == nil {
		x.changed = map[string]struct{}{}
	}
	x.changed[segment] = struct{}{}
}

// HasWork reports whether Take may return steps at an instant.
func (x *Index) HasWork(now record.Instant) bool {
	return len(x.changed) > 0 || x.queue.Len() > 0 && x.queue.First().at <= now
}

// NextDue returns when HasWork is true without a change, zero if never.
func (x *Index) NextDue() record.Instant {
	if x.queue.Len() == 0 {
		return 0
	}
	return x.queue.First().at
}

// Due is a job about which there is something to do.
type Due struct {
	Segment string
	Step    Step
	Entry   Entry
}

// Take decides about the jobs that are due or have changed, and returns up to most of those with something to do. It costs the
// logarithm of the number of all jobs for each. A step that is not carried out has to be asked for again.
func (x *Index) Take(now record.Instant, most int, beside func(segment string) Beside) (due []Due) {
	for len(due) < most {
		j := x.next(now)
		if j == nil {
			break
		}
		step, again := j.Decide(beside(j.segment), now)
		j.at = again
		x.queue.Keep(j, again != 0)
		if step != Nothing {
			due = append(due, Due{j.segment, step, j.Entry})
		}
	}
	return due
}

// next returns a job to decide about and takes it out of those that wait for that, nil if there is none.
func (x *Index) next(now record.Instant) *indexed {
	for segment := range x.changed {
		delete(x.changed, segment)
		if j, known := x.of[segment]; known {
			return j
		}
	}
	x.changed = nil // a map keeps the memory of all that were in it
	if x.queue.Len() > 0 && x.queue.First().at <= now {
		return x.queue.Pop()
	}
	return nil
}
