// Package instant reads instants as people write them.
package instant

import (
	"fmt"
	"time"
)

// Direction is where the instant of a time of day lies.
type Direction int

// Past is the latest instant that has come, Future the next one.
const (
	Past Direction = iota
	Future
)

// Parse reads an instant, in a zone unless the text names one: RFC 3339, a date with or without a time of day, or a time of day. A date
// alone is its first instant. An empty text is the zero instant.
func Parse(text string, now time.Time, zone *time.Location, d Direction) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	for _, layout := range []string{"2006-01-02 15:04", time.DateTime, time.DateOnly, "2006-01-02T15:04", "2006-01-02T15:04:05"} { // with a T as browsers send it
		if t, err := time.ParseInLocation(layout, text, zone); err == nil {
			return t, nil
		}
	}
	for _, layout := range []string{"15:04", time.TimeOnly} {
		t, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		now = now.In(zone)
		of := func(day int) time.Time {
			return time.Date(now.Year(), now.Month(), day, t.Hour(), t.Minute(), t.Second(), 0, zone)
		}
		switch today := of(now.Day()); {
		case d == Past && today.After(now):
			return of(now.Day() - 1), nil
		case d == Future && !today.After(now):
			return of(now.Day() + 1), nil
		default:
			return today, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q, neither RFC 3339 nor a time of day as 14:00, nor a date as 2006-01-02 with or without one", text)
}
