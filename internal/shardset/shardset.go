// Package shardset holds sets of shard numbers the way the registry stores them: as
// ranges. A job's shards mostly lie next to each other, so that ten thousand of them
// take a few bytes in a record and a few words in memory.
package shardset

import (
	"fmt"
	"iter"
	"slices"
)

// Limit is the greatest number a Set may hold. It bounds what a few bytes of text can
// stand for, and with it the work that a wrong record can cause.
const Limit = 1 << 20

// Set is a set of numbers from 0 to Limit. The zero Set is empty and ready for use.
//
// Add and Remove change a Set in place, and a Set copied by assignment shares its
// storage with the original: Clone one before changing the other. All other methods
// leave their Sets alone and return new ones, so that Sets which nobody changes may be
// used from many goroutines.
//
// Equal Sets have equal representations: reflect.DeepEqual and Equal agree.
type Set struct {
	// spans is sorted; between two neighbours at least one number is missing. It is
	// nil when the Set is empty.
	spans []span
}

// span is the numbers from lo up to but without hi. It is never empty.
type span struct{ lo, hi int }

// Of returns the Set of the numbers given, in any order, more than once or not. Like Add
// it panics if one is below 0 or above Limit.
func Of(numbers ...int) Set {
	var s Set
	for _, n := range numbers {
		s.Add(n)
	}
	return s
}

// Range returns the Set of the numbers from lo up to but without hi: Range(0, n) is all
// shards of a job that has n. It is empty if hi <= lo, and panics if a number in it is
// below 0 or above Limit.
func Range(lo, hi int) Set {
	if hi <= lo {
		return Set{}
	}
	mustFit(lo)
	mustFit(hi - 1)
	return Set{spans: []span{{lo, hi}}}
}

// Add puts n into s. It panics if n is below 0 or above Limit: such a Set could be
// stored, but not read again.
func (s *Set) Add(n int) {
	mustFit(n)
	i, in := s.find(n)
	if in {
		return
	}
	before := i > 0 && s.spans[i-1].hi == n
	after := i < len(s.spans) && s.spans[i].lo == n+1
	switch {
	case before && after:
		s.spans[i-1].hi = s.spans[i].hi
		s.spans = slices.Delete(s.spans, i, i+1)
	case before:
		s.spans[i-1].hi++
	case after:
		s.spans[i].lo--
	default:
		s.spans = slices.Insert(s.spans, i, span{n, n + 1})
	}
}

// Remove takes n out of s, if it is there.
func (s *Set) Remove(n int) {
	i, in := s.find(n)
	if !in {
		return
	}
	switch p := &s.spans[i]; {
	case p.hi-p.lo == 1 && len(s.spans) == 1:
		s.spans = nil
	case p.hi-p.lo == 1:
		s.spans = slices.Delete(s.spans, i, i+1)
	case p.lo == n:
		p.lo++
	case p.hi == n+1:
		p.hi--
	default:
		upper := span{n + 1, p.hi}
		p.hi = n
		s.spans = slices.Insert(s.spans, i+1, upper)
	}
}

// Has reports whether n is in s.
func (s Set) Has(n int) bool {
	_, in := s.find(n)
	return in
}

// Len returns how many numbers are in s.
func (s Set) Len() int {
	sum := 0
	for _, p := range s.spans {
		sum += p.hi - p.lo
	}
	return sum
}

// IsZero reports whether s is empty. The option omitzero of encoding/json asks for it.
func (s Set) IsZero() bool { return len(s.spans) == 0 }

// Min returns the least number in s; ok is false if s is empty.
func (s Set) Min() (n int, ok bool) {
	if len(s.spans) == 0 {
		return 0, false
	}
	return s.spans[0].lo, true
}

// Max returns the greatest number in s; ok is false if s is empty.
func (s Set) Max() (n int, ok bool) {
	if len(s.spans) == 0 {
		return 0, false
	}
	return s.spans[len(s.spans)-1].hi - 1, true
}

// All returns the numbers in s, ascending. The loop over it must not change s.
func (s Set) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, p := range s.spans {
			for n := p.lo; n < p.hi; n++ {
				if !yield(n) {
					return
				}
			}
		}
	}
}

// Ranges returns the longest runs of numbers in s, ascending, each from lo up to but
// without hi. The loop over it must not change s.
func (s Set) Ranges() iter.Seq2[int, int] {
	return func(yield func(lo, hi int) bool) {
		for _, p := range s.spans {
			if !yield(p.lo, p.hi) {
				return
			}
		}
	}
}

// Clone returns a Set equal to s that shares nothing with it.
func (s Set) Clone() Set { return Set{spans: slices.Clone(s.spans)} }

// Equal reports whether s and t hold the same numbers.
func (s Set) Equal(t Set) bool { return slices.Equal(s.spans, t.spans) }

// Union returns the numbers that are in s or in t.
func (s Set) Union(t Set) Set {
	var u Set
	a, b := s.spans, t.spans
	for len(a) > 0 || len(b) > 0 {
		if len(b) == 0 || len(a) > 0 && a[0].lo <= b[0].lo {
			u.extend(a[0])
			a = a[1:]
		} else {
			u.extend(b[0])
			b = b[1:]
		}
	}
	return u
}

// Minus returns the numbers that are in s but not in t.
func (s Set) Minus(t Set) Set {
	if len(t.spans) == 0 {
		return s.Clone()
	}
	var u Set
	b := t.spans
	for _, p := range s.spans {
		for len(b) > 0 && b[0].hi <= p.lo {
			b = b[1:]
		}
		// The last span of t that reaches into p may reach into the next one too, so it
		// is looked at again there.
		lo := p.lo
		for k := 0; k < len(b) && b[k].lo < p.hi; k++ {
			if lo < b[k].lo {
				u.spans = append(u.spans, span{lo, b[k].lo})
			}
			lo = b[k].hi
			if lo >= p.hi {
				b = b[k:]
				break
			}
		}
		if lo < p.hi {
			u.spans = append(u.spans, span{lo, p.hi})
		}
	}
	return u
}

// Intersect returns the numbers that are both in s and in t.
func (s Set) Intersect(t Set) Set {
	var u Set
	a, b := s.spans, t.spans
	for len(a) > 0 && len(b) > 0 {
		if lo, hi := max(a[0].lo, b[0].lo), min(a[0].hi, b[0].hi); lo < hi {
			u.spans = append(u.spans, span{lo, hi})
		}
		if a[0].hi < b[0].hi {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return u
}

// find returns the index of the span that n is in, or else of the first one above n.
func (s Set) find(n int) (i int, in bool) {
	// Numbers mostly arrive in ascending order.
	if last := len(s.spans) - 1; last < 0 || s.spans[last].hi <= n {
		return last + 1, false
	}
	i, _ = slices.BinarySearchFunc(s.spans, n, func(p span, n int) int {
		if p.hi <= n {
			return -1
		}
		return 1
	})
	return i, s.spans[i].lo <= n
}

// extend adds p, whose lo is not below that of any span in s.
func (s *Set) extend(p span) {
	if last := len(s.spans) - 1; last >= 0 && p.lo <= s.spans[last].hi {
		s.spans[last].hi = max(s.spans[last].hi, p.hi)
		return
	}
	s.spans = append(s.spans, p)
}

func mustFit(n int) {
	if n < 0 || n > Limit {
		panic(fmt.Sprintf("shardset: %d is not between 0 and %d", n, Limit))
	}
}
