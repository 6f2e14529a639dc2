package shardset

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// String returns the text form of s.
func (s Set) String() string {
	text, _ := s.AppendText(nil)
	return string(text)
}

// Text returns "shard 7" or "shards 0-3,7".
func (s Set) Text() string {
	if s.Len() == 1 {
		return "shard " + s.String()
	}
	return "shards " + s.String()
}

// MarshalText returns the text form of s: its ranges in ascending order, "0-3,7". The
// text of an empty Set is empty. It never fails.
func (s Set) MarshalText() ([]byte, error) { return s.AppendText(nil) }

// AppendText appends the text form of s to b. It never fails.
func (s Set) AppendText(b []byte) ([]byte, error) {
	n := len(b)
	for lo, hi := range s.Ranges() {
		if len(b) > n {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(lo), 10)
		if last := hi - 1; last > lo {
			b = append(b, '-')
			b = strconv.AppendInt(b, int64(last), 10)
		}
	}
	return b, nil
}

// UnmarshalText sets s to the Set with that text form. It accepts only the output of
// MarshalText, so that equal Sets have equal records; the error for any other text names the
// rule that it breaks. After an error s is unchanged.
func (s *Set) UnmarshalText(text []byte) error {
	var t Set
	for rest, more := text, len(text) > 0; more; {
		var item []byte
		item, rest, more = bytes.Cut(rest, []byte{','})
		p, err := parseSpan(item)
		if err != nil {
			return fmt.Errorf("parse shards: %w", err)
		}
		if count := t.count(); count > 0 {
			if err := checkOrder(*t.at(count - 1), p); err != nil {
				return fmt.Errorf("parse shards: %.20q: %w", item, err)
			}
		}
		t.append(p)
	}
	*s = t
	return nil
}

// Parse returns the Set with that text form, by the rules of UnmarshalText.
func Parse(text string) (Set, error) {
	var s Set
	err := s.UnmarshalText([]byte(text))
	return s, err
}

// checkOrder returns the rule that p breaks as the successor of prev, or nil.
func checkOrder(prev, p span) error {
	switch {
	case p.hi <= prev.lo:
		return fmt.Errorf("unsorted: comes after %d", prev.hi-1)
	case p.lo < prev.hi:
		return fmt.Errorf("overlapping: repeats %d", max(p.lo, prev.lo))
	case p.lo == prev.hi:
		return fmt.Errorf("adjacent: must be merged with the range that ends with %d", prev.hi-1)
	}
	return nil
}

func parseSpan(item []byte) (span, error) {
	if bytes.HasPrefix(item, []byte{'-'}) {
		return span{}, fmt.Errorf("%.20q: negative", item)
	}
	first, last, isRange := bytes.Cut(item, []byte{'-'})
	lo, err := parseNumber(first)
	if err != nil {
		return span{}, fmt.Errorf("%.20q: %w", item, err)
	}
	if !isRange {
		return span{int32(lo), int32(lo) + 1}, nil
	}
	if bytes.HasPrefix(last, []byte{'-'}) {
		return span{}, fmt.Errorf("%.20q: negative", item)
	}
	hi, err := parseNumber(last)
	switch {
	case err != nil:
		return span{}, fmt.Errorf("%.20q: %w", item, err)
	case hi < lo:
		return span{}, fmt.Errorf("%.20q: unsorted: range ends before it begins", item)
	case hi == lo:
		return span{}, fmt.Errorf("%.20q: range of one: must be written as %d", item, lo)
	}
	return span{int32(lo), int32(hi) + 1}, nil
}

// parseNumber is stricter than strconv: no sign, no leading zero.
func parseNumber(digits []byte) (int, error) {
	if len(digits) == 0 {
		return 0, errors.New("empty: number expected")
	}
	n := 0
	for i, r := range string(digits) {
		if r < '0' || r > '9' {
			return 0, fmt.Errorf("not a digit: %q", r)
		}
		if i == 1 && n == 0 {
			return 0, errors.New("leading zero")
		}
		n = min(n*10+int(r-'0'), Limit+1)
	}
	if n > Limit {
		return 0, fmt.Errorf("over %d", Limit)
	}
	return n, nil
}

// ParseList returns the numbers below limit of a list of numbers and ranges, such as 3,7-9, in any order, as people write it.
func ParseList(text string, limit int) (Set, error) {
	var set Set
	for item := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(item, "-")
		if !isRange {
			last = first
		}
		lo, err := strconv.ParseUint(first, 10, 31)
		hi, err2 := strconv.ParseUint(last, 10, 31)
		switch {
		case err != nil || err2 != nil:
			return Set{}, fmt.Errorf("%.20q is neither a shard nor a range of shards, as in 3,7-9", item)
		case hi < lo:
			return Set{}, fmt.Errorf("the range %.20q ends before it begins", item)
		case hi >= uint64(limit):
			return Set{}, fmt.Errorf("there is no shard %d: a job has at most %d, from 0", hi, limit)
		}
		set = set.Union(Range(int(lo), int(hi)+1))
	}
	return set, nil
}
