// Package jsonscan reads JSON in the spelling in which this module writes it: without
// spaces, escapes and fractions. It takes a tenth of the time of package json, and reads
// nothing that package json would not read as the same. Of anything else it says that it
// is Odd, and package json is to be asked.
package jsonscan

import (
	"bytes"
	"math"
	"unicode/utf8"
)

// maxDepth is how deep values may nest.
const maxDepth = 32

// Scanner reads one value. An object is read by
//
//	for s.Begin('{'); s.More('}'); {
//		switch string(s.Key()) {
//
// and an array likewise. Each turn has to read one value. Once something is odd all
// methods return zero values.
type Scanner struct {
	rest  []byte
	depth int
	first bool // nothing has been read of the innermost object or array
	odd   bool
}

// New returns a Scanner of b, which it never changes.
func New(b []byte) *Scanner { return &Scanner{rest: b, odd: len(b) == 0 || b[0] == ' '} }

// Odd reports that the input is not of the spelling that a Scanner knows.
//
//go:norace
func (s *Scanner) Odd() bool { return s.odd }

// Done reports that all of the input has been read and that nothing was odd.
//
//go:norace
func (s *Scanner) Done() bool { return !s.odd && len(s.rest) == 0 }

// Reject makes the input odd, for a reason that the caller has.
//
//go:norace
func (s *Scanner) Reject() {
	s.odd = true
	s.rest = nil
}

// Begin reads the first byte of an object or array.
//
//go:norace
func (s *Scanner) Begin(open byte) {
	if s.depth++; s.depth > maxDepth {
		s.Reject()
	}
	s.expect(open)
	s.first = true
}

// More reports whether there is another member before last, and else reads that.
//
//go:norace
func (s *Scanner) More(last byte) bool {
	first := s.first
	s.first = false
	if s.peek() == last {
		s.rest = s.rest[1:]
		s.depth--
		return false
	}
	if !first {
		s.expect(',')
	}
	return !s.odd
}

// Key reads the name of a member of an object. It is a part of the input.
//
//go:norace
func (s *Scanner) Key() []byte {
	k := s.Text()
	s.expect(':')
	return k
}

// Text reads a string. It is a part of the input.
//
//go:norace
func (s *Scanner) Text() []byte {
	s.expect('"')
	n := bytes.IndexByte(s.rest, '"')
	if n < 0 || !plain(s.rest[:n]) {
		s.Reject()
		return nil
	}
	text := s.rest[:n]
	s.rest = s.rest[n+1:]
	return text
}

// plain reports that a string stands for itself.
//
//go:norace
func plain(text []byte) bool {
	ascii := true
	for _, c := range text {
		if c < ' ' || c == '\\' {
			return false
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	return ascii || utf8.Valid(text)
}

// Uint reads a whole number from 0 to 1<<63 - 1.
//
//go:norace
func (s *Scanner) Uint() uint64 {
	n, i := uint64(0), 0
	for ; i < len(s.rest) && '0' <= s.rest[i] && s.rest[i] <= '9'; i++ {
		if n > math.MaxInt64/10 {
			s.Reject()
			return 0
		}
		n = n*10 + uint64(s.rest[i]-'0')
	}
	if i == 0 || i > 1 && s.rest[0] == '0' || n > math.MaxInt64 {
		s.Reject()
		return 0
	}
	s.rest = s.rest[i:]
	switch s.peek() {
	case '.', 'e', 'E':
		s.Reject()
	}
	return n
}

// Int reads a whole number from 0 to the largest int.
//
//go:norace
func (s *Scanner) Int() int {
	n := s.Uint()
	if n > math.MaxInt {
		s.Reject()
		return 0
	}
	return int(n)
}

// Bool reads true or false.
//
//go:norace
func (s *Scanner) Bool() bool {
	if s.peek() == 't' {
		s.literal("true")
		return !s.odd
	}
	s.literal("false")
	return false
}

// Null reads null, if that comes next.
//
//go:norace
func (s *Scanner) Null() bool {
	if s.peek() != 'n' {
		return false
	}
	s.literal("null")
	return !s.odd
}

// Raw reads any value. It is a part of the input.
//
//go:norace
func (s *Scanner) Raw() []byte {
	before := s.rest
	s.skip()
	return before[:len(before)-len(s.rest)]
}

//go:norace
func (s *Scanner) skip() {
	switch c := s.peek(); c {
	case '{':
		for s.Begin('{'); s.More('}'); {
			s.Key()
			s.skip()
		}
	case '[':
		for s.Begin('['); s.More(']'); {
			s.skip()
		}
	case '"':
		s.Text()
	case 't', 'f':
		s.Bool()
	case 'n':
		s.Null()
	default:
		s.Uint()
	}
}

//go:norace
func (s *Scanner) peek() byte {
	if len(s.rest) == 0 {
		return 0
	}
	return s.rest[0]
}

//go:norace
func (s *Scanner) expect(c byte) {
	if s.peek() != c {
		s.Reject()
		return
	}
	s.rest = s.rest[1:]
}

//go:norace
func (s *Scanner) literal(text string) {
	if len(s.rest) < len(text) || string(s.rest[:len(text)]) != text {
		s.Reject()
		return
	}
	s.rest = s.rest[len(text):]
}
