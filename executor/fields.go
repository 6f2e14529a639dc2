package executor

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/scheduletext"
)

// problem is a rule of a definition that a field breaks.
type problem struct {
	field string // as in Job
	err   error
}

func (p problem) Error() string { return p.field + ": " + p.err.Error() }

func (p problem) Unwrap() error { return p.err }

func checkText(text string, maxBytes int) error {
	switch {
	case len(text) > maxBytes:
		return fmt.Errorf("has %d bytes, at most %d", len(text), maxBytes)
	case !utf8.ValidString(text):
		return errors.New("is not UTF-8")
	}
	return nil
}

func checkRange(n, least, most int) error {
	if n < least || n > most {
		return fmt.Errorf("%d is not from %d to %d", n, least, most)
	}
	return nil
}

func checkRevision(n int) error {
	if uint64(max(n, 0)) > record.MaxNumber {
		return fmt.Errorf("%d is above %d", n, uint64(record.MaxNumber))
	}
	return checkNotNegative(n)
}

func checkNotNegative[T int | time.Duration](n T) error {
	if n < 0 {
		return fmt.Errorf("%v is negative", n)
	}
	return nil
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// durationField is a duration stored in Go's notation, as "1m30s".
type durationField time.Duration

func (d durationField) MarshalText() ([]byte, error) {
	return []byte(scheduletext.Duration(time.Duration(d))), nil
}

func (d *durationField) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = durationField(parsed)
	return err
}
