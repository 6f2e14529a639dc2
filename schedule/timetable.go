package schedule

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrUnknownKind means that a text begins with the word of no kind of schedule: it is misspelt, or of a later version.
var ErrUnknownKind = errors.New("unknown kind of schedule")

// unknownKindError is an ErrUnknownKind whose text lists the kinds.
type unknownKindError struct{ text string }

func (e *unknownKindError) Error() string { return e.text }

func (e *unknownKindError) Is(target error) bool { return target == ErrUnknownKind }

// Timetable is the fires of a valid Schedule: a set of instants, the same in every process. Its methods may be called from
// many goroutines, and do not read the text of the schedule again.
//
// The fires of FixedDelay and Always count from the end of the last run, which is the instant that Next and Count
// are given. AfterJob has no fires here: they are those of other jobs.
type Timetable struct {
	fires  fireSet
	spread time.Duration // of Spread, 0 if there is none
}

// Timetable returns the fires of s, or an error that names the text of s and the rule that it breaks. Equal schedules share the
// memory of their fires.
func (s Schedule) Timetable() (*Timetable, error) {
	t, err := s.timetable()
	if err != nil {
		return nil, fmt.Errorf("schedule %.200q: %w", s.String(), err)
	}
	return t, nil
}

func (s Schedule) timetable() (*Timetable, error) {
	if len(s.text) > maxBytes {
		return nil, fmt.Errorf("longer than %d bytes", maxBytes)
	}
	if s.text == "" {
		return &Timetable{fires: never{}}, nil
	}
	words, all := splitModifiers(strings.Fields(s.text))
	if is, err := checkAfter(words, all); is {
		return &Timetable{fires: never{}}, err
	}
	if err := checkModifiers(words, all); err != nil {
		return nil, err
	}
	fires, err := newFireSet(words, all)
	if err != nil {
		return nil, err
	}
	spread, err := all.spread()
	if err != nil {
		return nil, err
	}
	if spread > 0 {
		if err := checkGaps(fires, spread); err != nil {
			return nil, err
		}
	}
	fires, err = newBounded(fires, all)
	return &Timetable{fires, spread}, err
}

// Next returns the first fire after an instant, in UTC, or the zero Time if there is none.
func (t *Timetable) Next(after time.Time) time.Time { return t.fires.next(after) }

// Count returns the number of fires after one instant and not after another. Its cost does not depend on that number.
func (t *Timetable) Count(after, through time.Time) int { return t.fires.count(after, through) }

// Offset is Schedule.Offset.
func (t *Timetable) Offset(job string, shard int) time.Duration {
	if t.spread == 0 {
		return 0
	}
	return spreadOffset(job, shard, t.spread)
}
