package record

import (
	"strconv"
	"time"
)

// appender is a record that writes its own JSON, byte for byte what package json would
// write.
type appender interface{ appendJSON(b []byte) []byte }

// appendJSON makes a claims record five times as fast as package json does. One is written
// at each fire and at each end of a run, in the goroutine that claims for all jobs.
func (c *Claims) appendJSON(b []byte) []byte {
	b = append(b, `{"job":`...)
	b = appendText(b, c.Job)
	if len(c.Marks) > 0 {
		b = append(b, `,"marks":[`...)
		for i := range c.Marks {
			b = c.Marks[i].appendJSON(separated(b, i))
		}
		b = append(b, ']')
	}
	if len(c.Running) > 0 {
		b = append(b, `,"running":[`...)
		for i := range c.Running {
			b = c.Running[i].appendJSON(separated(b, i))
		}
		b = append(b, ']')
	}
	if c.Counts != (Counts{}) {
		b = append(b, `,"counts":`...)
		b = c.Counts.appendJSON(b)
	}
	if c.Last != nil {
		b = append(b, `,"last":`...)
		b = c.Last.appendJSON(b)
	}
	return append(b, '}')
}

func separated(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}

func (g *MarkGroup) appendJSON(b []byte) []byte {
	b = append(b, `{"shards":"`...)
	b, _ = g.Shards.AppendText(b)
	b = append(b, '"')
	b = appendNumber(b, "gen", uint64(g.Gen))
	if g.Fire != 0 {
		b = append(b, `,"fire":`...)
		b = g.Fire.appendJSON(b)
	}
	b = appendNumber(b, "attempt", uint64(g.Attempt))
	b = appendNumber(b, "trigger", g.Trigger)
	b = appendNumber(b, "trigger_attempt", uint64(g.TriggerAttempt))
	return append(b, '}')
}

func (g *RunGroup) appendJSON(b []byte) []byte {
	b = append(b, `{"shards":"`...)
	b, _ = g.Shards.AppendText(b)
	b = append(b, `","gen":`...)
	b = strconv.AppendInt(b, int64(g.Gen), 10)
	b = append(b, `,"fire":`...)
	b = g.Fire.appendJSON(b)
	b = appendNumber(b, "trigger", g.Trigger)
	b = append(b, `,"attempt":`...)
	b = strconv.AppendInt(b, int64(g.Attempt), 10)
	if g.Missed {
		b = append(b, `,"missed":true`...)
	}
	return append(b, '}')
}

func (c Counts) appendJSON(b []byte) []byte {
	start := len(b)
	b = appendNumber(b, "claimed", c.Claimed)
	b = appendNumber(b, "succeeded", c.Succeeded)
	b = appendNumber(b, "failed", c.Failed)
	b = appendNumber(b, "skipped", c.Skipped)
	b = appendNumber(b, "lost", c.Lost)
	b[start] = '{' // in place of the first comma: not all are zero
	return append(b, '}')
}

func (o *Outcome) appendJSON(b []byte) []byte {
	b = append(b, `{"at":`...)
	b = o.At.appendJSON(b)
	if !o.Failed.IsZero() {
		b = append(b, `,"failed":"`...)
		b, _ = o.Failed.AppendText(b)
		b = append(b, '"')
	}
	if o.Error != "" {
		b = append(b, `,"error":`...)
		b = appendText(b, o.Error)
	}
	return append(b, '}')
}

// appendNumber appends a field that is left out if it is zero.
func appendNumber(b []byte, name string, n uint64) []byte {
	if n == 0 {
		return b
	}
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':')
	return strconv.AppendUint(b, n, 10)
}

// appendText appends a JSON string.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := marshal(s) // a string is always valid
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

func (i Instant) appendJSON(b []byte) []byte {
	if i == 0 {
		return append(b, "null"...)
	}
	b = append(b, '"')
	b = i.Time().AppendFormat(b, time.RFC3339Nano)
	return append(b, '"')
}
