package record

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/rota-dev/rota/internal/shardset"
)

// History kept for diagnosis is bounded and never influences a decision.

// Decision is the reason for which a leader wrote a plan.
type Decision struct {
	At    Instant `json:"at"`
	Term  uint64  `json:"term"`
	By    string  `json:"by"`              // the leader's name
	What  string  `json:"what"`            // the change and its reason, shortened
	Again int     `json:"again,omitempty"` // how many earlier decisions had the same text
	// Lost are the first incarnations whose sessions had ended, and whose shards the decision fails over.
	Lost []string `json:"lost,omitempty"`
}

const (
	// CutMark is the end of a text that was shortened.
	CutMark = "..."

	maxDecisions     = 8
	maxDecisionBytes = 200
	maxDecisionLost  = 4
)

// Note adds a decision to the plan and drops the oldest ones. It keeps each text once, so that
// a shard that moves back and forth does not displace all other decisions.
func (p *Plan) Note(d Decision) {
	d.What, d.Lost = cut(d.What, maxDecisionBytes), d.Lost[:min(len(d.Lost), maxDecisionLost)]
	kept := make([]Decision, 0, maxDecisions+1)
	for _, o := range p.Decisions {
		if o.What == d.What {
			d.Again = addInts(d.Again, o.Again+1)
		} else {
			kept = append(kept, o)
		}
	}
	kept = append(kept, d)
	p.Decisions = kept[max(0, len(kept)-maxDecisions):]
}

// Failure is the failed runs of one fire or trigger.
type Failure struct {
	RunGroup         // with at most maxFailedRanges ranges of shards
	More     int     `json:"more,omitempty"` // how many further shards failed
	At       Instant `json:"at"`             // when the last run ended
	Error    string  `json:"error,omitempty"`
	Again    bool    `json:"again,omitempty"` // another attempt follows, by the retry policy
	// LastTrigger is the greatest number of a trigger that the shards had claimed. A greater one of a
	// shard is of a later run, such as one that an operator requested to make up for the failure.
	LastTrigger uint64 `json:"last_trigger,omitempty"`
	// Total is the number of shards of the job in the runs' epoch. It is zero in failures that older versions recorded,
	// and of an epoch that is gone.
	Total int `json:"total,omitempty"`
	// Work is Trigger.WorkName of the runs, empty if they did the work of Fire.
	Work string `json:"work,omitempty"`
	// OwnParam reports that the runs had the parameter of their trigger, which is too large to be kept here.
	OwnParam bool `json:"own_param,omitempty"`
}

// In returns f with Total, Work and OwnParam by the plan that holds the epoch and the trigger of its runs. The plan may be nil.
func (f Failure) In(p *Plan) Failure {
	if p == nil {
		return f
	}
	if e, ok := p.Epoch(f.Epoch); ok {
		f.Total = e.Job().Shards
	}
	if of := p.RunOf(f.Ref); of.Work != f.Fire.workName() {
		f.Work = of.Work
	}
	if t := p.Trigger(f.Trigger); t != nil {
		f.OwnParam = t.Param != ""
	}
	return f
}

// Failures are the latest failures, one for each Ref and Again, sorted by At.
type Failures []Failure

// FireAt returns the fire of the failures that is at, or that is at if cut to microseconds, as a database has it. Without one, it
// returns at. It fails if there are several.
func (fs Failures) FireAt(at Instant) (Instant, error) {
	fires := map[Instant]bool{}
	for i := range fs {
		switch fire := fs[i].Fire; {
		case fire == at:
			return at, nil
		case InstantOf(fire.Time().Truncate(time.Microsecond)) == at:
			fires[fire] = true
		}
	}
	switch all := slices.Sorted(maps.Keys(fires)); len(all) {
	case 0:
		return at, nil
	case 1:
		return all[0], nil
	default:
		return 0, fmt.Errorf("%v may be one of the fires %v: name it with all its digits", at, all)
	}
}

// With these bounds, a claims record stays within the budget of 1 KiB for the commit of a fire.
const (
	maxFailures      = 5
	maxFailuresBytes = 576
	maxErrorBytes    = 200
	maxFailedRanges  = 8
)

// With returns failures with more added. It keeps the newest one, and earlier ones within the
// bounds. Failures of one Ref are merged, with the error of the first. The receiver is unchanged.
func (fs Failures) With(more ...Failure) Failures {
	if len(more) == 0 {
		return fs
	}
	out := slices.Clone(fs)
	for _, f := range more {
		f.Error = cut(f.Error, maxErrorBytes)
		if i := slices.IndexFunc(out, func(o Failure) bool { return o.Ref == f.Ref && o.Again == f.Again }); i >= 0 {
			f.Error = cmp.Or(out[i].Error, f.Error)
			f.Shards = f.Shards.Union(out[i].Shards)
			f.More = addInts(f.More, out[i].More)
			f.At = max(f.At, out[i].At)
			f.LastTrigger = max(f.LastTrigger, out[i].LastTrigger)
			out = slices.Delete(out, i, i+1)
		}
		f.shorten()
		out = append(out, f)
	}
	slices.SortStableFunc(out, func(a, b Failure) int { return cmp.Compare(a.At, b.At) })
	size, first := 0, len(out)-1
	for i, f := range slices.Backward(out) {
		size += EncodedLen(f)
		if i == len(out)-1 || size <= maxFailuresBytes && len(out)-i <= maxFailures {
			first = i
			continue
		}
		break
	}
	return out[first:]
}

// shorten keeps the first ranges of shards and counts the other shards in More.
func (f *Failure) shorten() {
	shards, more := firstRanges(f.Shards, maxFailedRanges)
	f.Shards, f.More = shards, f.More+more
}

// firstRanges returns up to most ranges of a set, and how many numbers the other ranges have.
func firstRanges(s shardset.Set, most int) (first shardset.Set, more int) {
	ranges := 0
	for lo := range s.Ranges() {
		if ranges++; ranges > most {
			rest := s.Intersect(shardset.Range(lo, MaxShards))
			return s.Minus(rest), rest.Len()
		}
	}
	return s, 0
}

// cut shortens a text to at most so many bytes of its JSON form, in which some characters take
// more bytes than in s.
func cut(s string, most int) string {
	const mark = CutMark
	if len(s) <= most && EncodedLen(s) <= most+len(`""`) {
		return s
	}
	s = s[:min(len(s), most-len(mark))]
	for len(s) > 0 {
		if r, n := utf8.DecodeLastRuneInString(s); r == utf8.RuneError && n == 1 {
			s = s[:len(s)-1] // part of a character
			continue
		}
		if EncodedLen(s) <= most-len(mark)+len(`""`) {
			break
		}
		s = s[:len(s)-1]
	}
	return s + mark
}
