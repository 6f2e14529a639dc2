package shardset

import (
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

// MarshalText returns the text form of s: its ranges in ascending order, "0-3,7". The
// text of an empty Set is empty. It never fails.
func (s Set) MarshalText() ([]byte, error) { return s.AppendText(nil) }

// AppendText appends the text form of s to b. It never fails.
func (s Set) AppendText(b []byte) ([]byte, error) {
	for i, p := range s.spans {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(p.lo), 10)
		if last := p.hi - 1; last > p.lo {
			b = append(b, '-')
			b = strconv.AppendInt(b, int64(last), 10)
		}
	}
	return b, nil
}

// UnmarshalText makes s the Set that text stands for. It takes just what MarshalText
// writes, so that equal Sets are equal in a record too, and says which rule other text
// breaks. s is unchanged if there is an error.
func (s *Set) UnmarshalText(text []byte) error {
	t, err := Parse(string(text))
	if err != nil {
		return err
	}
	*s = t
	return nil
}

// Parse returns the Set whose text form is given, under the rules of UnmarshalText.
func Parse(text string) (Set, error) {
	if text == "" {
		return Set{}, nil
	}
	var s Set
	for item := range strings.SplitSeq(text, ",") {
		p, err := parseSpan(item)
		if err != nil {
			return Set{}, fmt.Errorf("parse shards: %w", err)
		}
		if len(s.spans) > 0 {
			if err := checkOrder(s.spans[len(s.spans)-1], p); err != nil {
				return Set{}, fmt.Errorf("parse shards: %.20q: %w", item, err)
			}
		}
		s.spans = append(s.spans, p)
	}
	return s, nil
}

// checkOrder says which rule p breaks as the successor of prev.
func checkOrder(prev, p span) error {
	switch {
	case p.hi <= prev.lo:
		return fmt.Errorf("unsorted: comes after %d", prev.hi-1)
	case p.lo < prev.hi:
		return fmt.Errorf("overlapping: %d is there already", max(p.lo, prev.lo))
	case p.lo == prev.hi:
		return fmt.Errorf("adjacent: belongs to the range that ends with %d", prev.hi-1)
	}
	return nil
}

func parseSpan(item string) (span, error) {
	if strings.HasPrefix(item, "-") {
		return span{}, fmt.Errorf("%.20q: negative", item)
	}
	first, last, isRange := strings.Cut(item, "-")
	lo, err := parseNumber(first)
	if err != nil {
		return span{}, fmt.Errorf("%.20q: %w", item, err)
	}
	if !isRange {
		return span{lo, lo + 1}, nil
	}
	if strings.HasPrefix(last, "-") {
		return span{}, fmt.Errorf("%.20q: negative", item)
	}
	hi, err := parseNumber(last)
	switch {
	case err != nil:
		return span{}, fmt.Errorf("%.20q: %w", item, err)
	case hi < lo:
		return span{}, fmt.Errorf("%.20q: unsorted: range ends before it begins", item)
	case hi == lo:
		return span{}, fmt.Errorf("%.20q: range of one: is written %d", item, lo)
	}
	return span{lo, hi + 1}, nil
}

// parseNumber is stricter than strconv: no sign, no leading zero.
func parseNumber(digits string) (int, error) {
	if digits == "" {
		return 0, errors.New("empty: a number is missing")
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("not a digit: %q", c)
		}
	}
	if digits[0] == '0' && len(digits) > 1 {
		return 0, errors.New("leading zero: one number has one spelling")
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n > Limit { // all digits, so Atoi can only find it too large
		return 0, fmt.Errorf("over %d", Limit)
	}
	return n, nil
}
