package schedule

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// zone is a time zone as a sequence of spans in which its clock runs evenly.
type zone struct {
	location *time.Location
	last     atomic.Pointer[span] // the span asked for last: looking one up costs more than all else in a fire
}

// span is a stretch of time with one offset from UTC. All its fields are seconds; start
// is in it, end is not.
type span struct {
	start, end int64 // since the Unix epoch
	offset     int64 // of the clock from UTC
	before     int64 // the offset just before start
	after      int64 // the offset from end on
}

// The ends of time, far enough from those of int64 to add an offset.
const (
	beginning int64 = -1 << 61
	eternity  int64 = 1 << 61
)

var zones shared[zone]

func newZone(name string) (*zone, error) {
	switch name {
	case "":
		return nil, errors.New("the time zone has no name")
	case "Local":
		return nil, errors.New("time zone Local differs between instances; name a zone")
	}
	location, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("time zone %q: %w", name, err)
	}
	return &zone{location: location}, nil
}

// findSpan returns the span that the instant t, in Unix seconds, is in.
func (z *zone) findSpan(t int64) span {
	if s := z.last.Load(); s != nil && s.start <= t && t < s.end {
		return *s
	}
	s := spanAt(time.Unix(t, 0).In(z.location))
	z.last.Store(&s)
	return s
}

func spanAt(t time.Time) span {
	offset := offsetAt(t)
	s := span{start: beginning, end: eternity, offset: offset, before: offset, after: offset}
	start, end := t.ZoneBounds()
	if !start.IsZero() {
		s.start, s.before = start.Unix(), offsetAt(start.Add(-1))
	}
	if !end.IsZero() {
		s.end = end.Unix()
	}
	if s.end <= t.Unix() {
		// On the last day of a leap year that a zone's table does not reach, ZoneBounds
		// returns the midnight before (golang/go#81583). No rule has a change on that day.
		s.end = (floorDiv(t.Unix(), daySeconds) + 1) * daySeconds
	}
	if s.end != eternity {
		s.after = offsetAt(time.Unix(s.end, 0).In(t.Location()))
	}
	return s
}

func offsetAt(t time.Time) int64 {
	_, offset := t.Zone()
	return int64(offset)
}
