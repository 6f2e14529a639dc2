package executor

import (
	"errors"
	"fmt"
	"slices"
	"time"

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

type problems []problem

// report adds a problem, unless err is nil.
func (all *problems) report(field string, err error) {
	if err != nil {
		*all = append(*all, problem{field, err})
	}
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

// policyTexts are the text forms of the values of a policy, by value.
type policyTexts[T ~int] struct {
	policy string
	texts  []string
}

func (p policyTexts[T]) text(v T) string {
	if v < 0 || int(v) >= len(p.texts) {
		return fmt.Sprintf("unknown %s %d", p.policy, int(v))
	}
	return p.texts[v]
}

func (p policyTexts[T]) check(v T) error {
	if v < 0 || int(v) >= len(p.texts) {
		return errors.New(p.text(v))
	}
	return nil
}

func (p policyTexts[T]) parse(v *T, text []byte) error {
	switch i := slices.Index(p.texts, string(text)); {
	case i >= 0:
		*v = T(i)
		return nil
	case len(p.texts) == 2:
		return &unknownError{fmt.Sprintf("%s %.100q: neither %q nor %q", p.policy, text, p.texts[0], p.texts[1])}
	}
	return &unknownError{fmt.Sprintf("%s %.100q is none of %q", p.policy, text, p.texts)}
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
