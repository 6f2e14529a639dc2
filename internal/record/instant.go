package record

import (
	"fmt"
	"strings"
	"time"
)

// Instant is a point in time in nanoseconds since the Unix epoch, stored as RFC 3339 in UTC.
// Zero means none and is stored as null. Unlike a time.Time, an Instant can be compared with ==
// and used as a map key.
type Instant int64

// InstantOf returns t as an Instant.
func InstantOf(t time.Time) Instant {
	if t.IsZero() {
		return 0
	}
	return Instant(t.UnixNano())
}

// Time returns i in UTC, or the zero Time if i is zero.
func (i Instant) Time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(i)).UTC()
}

// Add returns i + d.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

func (i Instant) String() string {
	if i == 0 {
		return "-"
	}
	return i.Time().Format(time.RFC3339Nano)
}

// MarshalJSON encodes i as RFC 3339.
func (i Instant) MarshalJSON() ([]byte, error) {
	if i == 0 {
		return []byte("null"), nil
	}
	b := append(make([]byte, 0, 32), '"')
	b = i.Time().AppendFormat(b, time.RFC3339Nano)
	return append(b, '"'), nil
}

// UnmarshalJSON decodes RFC 3339.
func (i *Instant) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*i = 0
		return nil
	}
	// RFC 3339 needs no escapes in JSON, and a nested json.Unmarshal would cost as much as the rest.
	s := strings.Trim(string(b), `"`)
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || b[0] != '"' {
		return fmt.Errorf("time %s is not RFC 3339", b)
	}
	if !inRange(t) {
		return fmt.Errorf("time %q is out of range", s)
	}
	*i = InstantOf(t)
	return nil
}

// inRange reports whether t fits an Instant.
func inRange(t time.Time) bool { return t.Year() >= 1970 && t.Year() <= 2261 }

// Duration is a time.Duration that is stored in Go's notation, such as "1m30s".
type Duration time.Duration

// MarshalText encodes d in Go's notation.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText decodes Go's notation.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}
