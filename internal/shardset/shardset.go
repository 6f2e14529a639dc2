// Package shardset implements sets of shard numbers as ranges, in memory and in records. The
// shards of a job are mostly adjacent, so that ten thousand of them need a few bytes in a
// record and a few words in memory.
package shardset

import (
	"fmt"
	"iter"
	"slices"
)

// Limit is the greatest number in a Set. It bounds the size of the Set that a short text can
// denote, and so the work that a wrong record can cause.
const Limit = 1 << 20

// Set is a set of numbers from 0 to Limit. The zero Set is empty and ready for use.
//
// Add and Remove change a Set in place. A Set copied by assignment shares its storage with
// the original: Clone one before changing the other. All other methods return new Sets and
// change none, so a Set that is not changed may be used from many goroutines.
//
// Equal Sets have equal representations: reflect.DeepEqual and Equal agree.
type Set struct {
	// Spans are sorted; between two neighbours at least one number is missing. Most Sets
	// have only one span, first, and need no other storage. first is empty if the Set is;
	// rest is nil if there is no other span.
	first span
	rest  []span
}

// span contains the numbers n with lo <= n < hi.
type span struct{ lo, hi int32 }

func (p span) isZero() bool { return p.lo >= p.hi }

// Of returns the Set of the given numbers, which may be in any order and repeated. Like Add it
// panics if a number is below 0 or above Limit.
func Of(numbers ...int) Set {
	var s Set
	for _, n := range numbers {
		s.Add(n)
	}
	return s
}

// Range returns the Set of the numbers n with lo <= n < hi: Range(0, total) contains all
// shards of a job. It is empty if hi <= lo. It panics if a number is below 0 or above Limit.
func Range(lo, hi int) Set {
	if hi <= lo {
		return Set{}
	}
	mustFit(lo)
	mustFit(hi - 1)
	return Set{first: span{int32(lo), int32(hi)}}
}

// Add adds n to s. It panics if n is below 0 or above Limit: the text of such a Set could not
// be parsed.
func (s *Set) Add(n int) {
	mustFit(n)
	m := int32(n)
	i, in := s.find(m)
	if in {
		return
	}
	before := i > 0 && s.at(i-1).hi == m
	after := i < s.count() && s.at(i).lo == m+1
	switch {
	case before && after:
		s.at(i - 1).hi = s.at(i).hi
		s.delete(i)
	case before:
		s.at(i-1).hi++
	case after:
		s.at(i).lo--
	default:
		s.insert(i, span{m, m + 1})
	}
}

// Remove removes n from s, if it is in s.
func (s *Set) Remove(n int) {
	if n < 0 || n > Limit {
		return
	}
	m := int32(n)
	i, in := s.find(m)
	if !in {
		return
	}
	switch p := s.at(i); {
	case p.hi-p.lo == 1:
		s.delete(i)
	case p.lo == m:
		p.lo++
	case p.hi == m+1:
		p.hi--
	default:
		upper := span{m + 1, p.hi}
		p.hi = m
		s.insert(i+1, upper)
	}
}

// Has reports whether n is in s.
func (s Set) Has(n int) bool {
	if n < 0 || n > Limit {
		return false
	}
	_, in := s.find(int32(n))
	return in
}

// Len returns the number of elements of s.
func (s Set) Len() int {
	sum := s.first.hi - s.first.lo
	for _, p := range s.rest {
		sum += p.hi - p.lo
	}
	return int(sum)
}

// IsZero reports whether s is empty. The option omitzero of encoding/json calls it.
func (s Set) IsZero() bool { return s.first.hi == 0 }

// Min returns the least number in s; ok is false if s is empty.
func (s Set) Min() (n int, ok bool) {
	if s.IsZero() {
		return 0, false
	}
	return int(s.first.lo), true
}

// Max returns the greatest number in s; ok is false if s is empty.
func (s Set) Max() (n int, ok bool) {
	if s.IsZero() {
		return 0, false
	}
	return int(s.at(s.count()-1).hi) - 1, true
}

// All returns the numbers in s, ascending. The loop over it must not change s.
func (s Set) All() iter.Seq[int] {
	return func(yield func(int) bool) {
		for lo, hi := range s.Ranges() {
			for n := lo; n < hi; n++ {
				if !yield(n) {
					return
				}
			}
		}
	}
}

// Ranges returns the maximal ranges of s, ascending, each as lo and hi of the numbers n with
// lo <= n < hi. The loop over it must not change s.
func (s Set) Ranges() iter.Seq2[int, int] {
	return func(yield func(lo, hi int) bool) {
		if s.first.hi > 0 && !yield(int(s.first.lo), int(s.first.hi)) {
			return
		}
		for _, p := range s.rest {
			if !yield(int(p.lo), int(p.hi)) {
				return
			}
		}
	}
}

// Clone returns a Set equal to s that shares no storage with it.
func (s Set) Clone() Set { return Set{s.first, slices.Clone(s.rest)} }

// Equal reports whether s and t hold the same numbers.
func (s Set) Equal(t Set) bool { return s.first == t.first && slices.Equal(s.rest, t.rest) }

// Union returns the numbers that are in s or in t.
func (s Set) Union(t Set) Set {
	var u Set
	for i, k := 0, 0; i < s.count() || k < t.count(); {
		if k == t.count() || i < s.count() && s.at(i).lo <= t.at(k).lo {
			u.extend(*s.at(i))
			i++
		} else {
			u.extend(*t.at(k))
			k++
		}
	}
	return u
}

// Minus returns the numbers that are in s but not in t.
func (s Set) Minus(t Set) Set {
	if s.rest == nil && t.rest == nil {
		below := span{s.first.lo, min(s.first.hi, t.first.lo)}
		above := span{max(s.first.lo, t.first.hi), s.first.hi}
		switch {
		case below.isZero() && above.isZero():
			return Set{}
		case below.isZero():
			return Set{first: above}
		case above.isZero():
			return Set{first: below}
		}
		return Set{below, []span{above}}
	}
	var u Set
	k := 0
	for i := range s.count() {
		p := *s.at(i)
		for ; k < t.count() && t.at(k).lo < p.hi; k++ {
			b := t.at(k)
			if p.lo < b.lo {
				u.append(span{p.lo, b.lo})
			}
			p.lo = max(p.lo, b.hi)
			if b.hi > p.hi {
				break // b ends after p, and may overlap the next span of s
			}
		}
		if p.lo < p.hi {
			u.append(p)
		}
	}
	return u
}

// Intersect returns the numbers that are both in s and in t.
func (s Set) Intersect(t Set) Set {
	if s.rest == nil && t.rest == nil {
		both := span{max(s.first.lo, t.first.lo), min(s.first.hi, t.first.hi)}
		if both.isZero() {
			return Set{}
		}
		return Set{first: both}
	}
	var u Set
	for i, k := 0, 0; i < s.count() && k < t.count(); {
		a, b := *s.at(i), *t.at(k)
		if lo, hi := max(a.lo, b.lo), min(a.hi, b.hi); lo < hi {
			u.append(span{lo, hi})
		}
		if a.hi < b.hi {
			i++
		} else {
			k++
		}
	}
	return u
}

// count returns the number of spans of s.
func (s *Set) count() int {
	if s.first.hi == 0 {
		return 0
	}
	return 1 + len(s.rest)
}

// at returns a pointer to span i of s.
func (s *Set) at(i int) *span {
	if i == 0 {
		return &s.first
	}
	return &s.rest[i-1]
}

// append adds p, which is above all spans of s and not adjacent to them.
func (s *Set) append(p span) {
	if s.count() == 0 {
		s.first = p
		return
	}
	s.rest = append(s.rest, p)
}

// insert inserts p as span i.
func (s *Set) insert(i int, p span) {
	switch {
	case i == s.count():
		s.append(p)
	case i == 0:
		s.rest = slices.Insert(s.rest, 0, s.first)
		s.first = p
	default:
		s.rest = slices.Insert(s.rest, i-1, p)
	}
}

// delete removes span i.
func (s *Set) delete(i int) {
	switch {
	case len(s.rest) == 0:
		s.first = span{}
		return
	case i == 0:
		s.first = s.rest[0]
		i = 1
	}
	if s.rest = slices.Delete(s.rest, i-1, i); len(s.rest) == 0 {
		s.rest = nil
	}
}

// find returns the index of the span that contains n, or else of the first one above n.
func (s *Set) find(n int32) (i int, in bool) {
	// Numbers are mostly added in ascending order.
	count := s.count()
	if count == 0 || s.at(count-1).hi <= n {
		return count, false
	}
	if s.first.hi > n {
		return 0, s.first.lo <= n
	}
	i, _ = slices.BinarySearchFunc(s.rest, n, func(p span, n int32) int {
		if p.hi <= n {
			return -1
		}
		return 1
	})
	return i + 1, s.rest[i].lo <= n
}

// extend adds p, whose lo is not below that of any span in s.
func (s *Set) extend(p span) {
	if count := s.count(); count > 0 && p.lo <= s.at(count-1).hi {
		last := s.at(count - 1)
		last.hi = max(last.hi, p.hi)
		return
	}
	s.append(p)
}

func mustFit(n int) {
	if n < 0 || n > Limit {
		panic(fmt.Sprintf("shardset: %d is not between 0 and %d", n, Limit))
	}
}
