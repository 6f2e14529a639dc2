package record

import (
	"cmp"
	"slices"
	"unicode/utf8"

	"github.com/rota-dev/rota/internal/shardset"
)

// What is kept for those who ask later why something is as it is. Nothing is decided by it.

// Decision is why a leader wrote a plan.
type Decision struct {
	At    Instant `json:"at"`
	Term  uint64  `json:"term"`
	By    string  `json:"by"`              // the leader's name
	What  string  `json:"what"`            // and why, cut
	Again int     `json:"again,omitempty"` // how often the same was decided before
}

const (
	maxDecisions     = 8
	maxDecisionBytes = 200
)

// Note keeps a decision in the plan, and the latest of those before. The same text is kept
// once: a shard that goes back and forth must not hide all else.
func (p *Plan) Note(d Decision) {
	d.What = cut(d.What, maxDecisionBytes)
	kept := make([]Decision, 0, maxDecisions+1)
	for _, o := range p.Decisions {
		if o.What == d.What {
			d.Again += o.Again + 1
		} else {
			kept = append(kept, o)
		}
	}
	kept = append(kept, d)
	p.Decisions = kept[max(0, len(kept)-maxDecisions):]
}

// Failure is runs of a fire, or of a trigger, that failed.
type Failure struct {
	RunGroup         // with so many ranges of shards at most
	More     int     `json:"more,omitempty"` // shards that failed, too
	At       Instant `json:"at"`             // when the last of them ended
	Error    string  `json:"error,omitempty"`
}

// Failures are the latest ones, in the order of their ends, one for each run.
type Failures []Failure

// A claims record with as many failures as it may have stays within the size of a commit
// that a fire may take.
const (
	maxFailures      = 5
	maxFailuresBytes = 512
	maxErrorBytes    = 200
	maxFailedRanges  = 8
)

// With returns failures with more of them: the newest, and those before as far as there is
// room. The error that is kept is that of the first. The receiver is unchanged.
func (fs Failures) With(more ...Failure) Failures {
	if len(more) == 0 {
		return fs
	}
	out := slices.Clone(fs)
	for _, f := range more {
		f.Error = cut(f.Error, maxErrorBytes)
		if i := slices.IndexFunc(out, func(o Failure) bool { return o.Ref == f.Ref }); i >= 0 {
			f.Error = cmp.Or(out[i].Error, f.Error)
			f.Shards = f.Shards.Union(out[i].Shards)
			f.More += out[i].More
			f.At = max(f.At, out[i].At)
			out = slices.Delete(out, i, i+1)
		}
		f.shorten()
		out = append(out, f)
	}
	slices.SortStableFunc(out, func(a, b Failure) int { return cmp.Compare(a.At, b.At) })
	size, first := 0, len(out)-1
	for i, f := range slices.Backward(out) {
		size += encodedLen(f)
		if i == len(out)-1 || size <= maxFailuresBytes && len(out)-i <= maxFailures {
			first = i
			continue
		}
		break
	}
	return out[first:]
}

// shorten leaves out shards that would make the record long.
func (f *Failure) shorten() {
	shards, more := firstRanges(f.Shards, maxFailedRanges)
	f.Shards, f.More = shards, f.More+more
}

// firstRanges returns the first ranges of a set, most at most, and how many numbers the
// others have.
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

// cut returns as much of a text as has so many bytes in a record, where some take more than
// they do here.
func cut(s string, most int) string {
	const mark = "..."
	if len(s) <= most && encodedLen(s) <= most+len(`""`) {
		return s
	}
	s = s[:min(len(s), most-len(mark))]
	for len(s) > 0 {
		if r, n := utf8.DecodeLastRuneInString(s); r == utf8.RuneError && n == 1 {
			s = s[:len(s)-1] // half of one
			continue
		}
		if encodedLen(s) <= most-len(mark)+len(`""`) {
			break
		}
		s = s[:len(s)-1]
	}
	return s + mark
}
