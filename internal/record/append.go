package record

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/rota-dev/rota/internal/shardset"
)

// The records that are written most write their own JSON, byte for byte what package json
// would write, in a fifth of the time: claims at each fire and at each end of a run, in
// the goroutine that claims for all jobs, and plans by a leader who moves many.

func (c *Claims) appendJSON(b []byte) []byte {
	b = append(b, `{"job":`...)
	b = appendText(b, c.Job)
	b = appendMarks(b, c.Marks)
	b = appendRuns(b, "running", c.Running)
	b = appendRuns(b, "reruns", c.Reruns)
	if c.Counts != (Counts{}) {
		b = append(b, `,"counts":`...)
		b = c.Counts.appendJSON(b)
	}
	b = appendEnds(b, c.Ended, c.Failures)
	return append(b, '}')
}

// appendJSON writes all but the fields that this version does not know.
func (p *Plan) appendJSON(b []byte) []byte {
	b = append(b, `{"format":`...)
	b = strconv.AppendInt(b, int64(p.Format), 10)
	b = append(b, `,"job":`...)
	b = appendText(b, p.Job)
	if p.Paused {
		b = append(b, `,"paused":true`...)
	}
	if p.Stopped {
		b = append(b, `,"schedule_stopped":true`...)
	}
	b = append(b, `,"epochs":[`...)
	for i := range p.Epochs {
		b = p.Epochs[i].appendJSON(separated(b, i))
	}
	b = append(b, `],"owners":{`...)
	for i, inc := range slices.Sorted(maps.Keys(p.Owners)) {
		b = appendText(separated(b, i), inc)
		b = append(b, ':')
		b = appendShards(b, p.Owners[inc])
	}
	b = append(b, '}')
	if !p.Frozen.IsZero() {
		b = append(b, `,"frozen":`...)
		b = appendShards(b, p.Frozen)
	}
	if !p.Disabled.IsZero() {
		b = append(b, `,"disabled":`...)
		b = appendShards(b, p.Disabled)
	}
	b = appendMarks(b, p.Marks)
	b = appendRuns(b, "reruns", p.Reruns)
	if len(p.Triggers) > 0 {
		b = append(b, `,"triggers":[`...)
		for i := range p.Triggers {
			b = p.Triggers[i].appendJSON(separated(b, i))
		}
		b = append(b, ']')
	}
	if p.Counts != (Counts{}) {
		b = append(b, `,"counts":`...)
		b = p.Counts.appendJSON(b)
	}
	if p.Problem != "" {
		b = append(b, `,"problem":`...)
		b = appendText(b, p.Problem)
	}
	b = appendNumber(b, "resets", p.Resets)
	if p.Unoffered != 0 {
		b = append(b, `,"unoffered":`...)
		b = p.Unoffered.appendJSON(b)
	}
	b = appendEnds(b, p.Ended, p.Failures)
	if len(p.Decisions) > 0 {
		b = append(b, `,"decisions":[`...)
		for i := range p.Decisions {
			b = p.Decisions[i].appendJSON(separated(b, i))
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

func (e *Epoch) appendJSON(b []byte) []byte {
	b = append(b, `{"gen":`...)
	b = strconv.AppendInt(b, int64(e.Gen), 10)
	b = append(b, `,"from":`...)
	b = e.From.appendJSON(b)
	if e.Until != 0 {
		b = append(b, `,"until":`...)
		b = e.Until.appendJSON(b)
	}
	b = append(b, `,"definition":`...)
	b = append(b, e.Def...)
	return append(b, '}')
}

func (t *Trigger) appendJSON(b []byte) []byte {
	b = append(b, `{"number":`...)
	b = strconv.AppendUint(b, t.Number, 10)
	b = append(b, `,"at":`...)
	b = t.At.appendJSON(b)
	b = appendNumber(b, "gen", uint64(t.Gen))
	if t.Param != "" {
		b = append(b, `,"param":`...)
		b = appendText(b, t.Param)
	}
	if t.Shards != nil {
		b = append(b, `,"shards":`...)
		b = appendShards(b, *t.Shards)
	}
	return append(b, '}')
}

func appendShards(b []byte, s shardset.Set) []byte {
	b = append(b, '"')
	b, _ = s.AppendText(b)
	return append(b, '"')
}

func appendMarks(b []byte, marks Marks) []byte {
	if len(marks) == 0 {
		return b
	}
	b = append(b, `,"marks":[`...)
	for i := range marks {
		b = marks[i].appendJSON(separated(b, i))
	}
	return append(b, ']')
}

func appendRuns(b []byte, name string, runs Runs) []byte {
	if len(runs) == 0 {
		return b
	}
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, `":[`...)
	for i := range runs {
		b = runs[i].appendJSON(separated(b, i))
	}
	return append(b, ']')
}

func separated(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}

func (g *MarkGroup) appendJSON(b []byte) []byte {
	b = append(b, `{"shards":`...)
	b = appendShards(b, g.Shards)
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
	b = append(b, `{"shards":`...)
	b = appendShards(b, g.Shards)
	b = append(b, `,"gen":`...)
	b = strconv.AppendInt(b, int64(g.Gen), 10)
	b = append(b, `,"fire":`...)
	b = g.Fire.appendJSON(b)
	b = appendNumber(b, "trigger", g.Trigger)
	b = append(b, `,"attempt":`...)
	b = strconv.AppendInt(b, int64(g.Attempt), 10)
	if g.Missed {
		b = append(b, `,"missed":true`...)
	}
	b = appendNumber(b, "handed_back", uint64(g.HandedBack))
	return append(b, '}')
}

func (c Counts) appendJSON(b []byte) []byte {
	start := len(b)
	b = appendNumber(b, "claimed", c.Claimed)
	b = appendNumber(b, "succeeded", c.Succeeded)
	b = appendNumber(b, "failed", c.Failed)
	b = appendNumber(b, "skipped", c.Skipped)
	b = appendNumber(b, "lost", c.Lost)
	b = appendNumber(b, "unknown", c.Unknown)
	b[start] = '{' // in place of the first comma: not all are zero
	return append(b, '}')
}

func appendEnds(b []byte, ended Instant, failures Failures) []byte {
	if ended != 0 {
		b = append(b, `,"ended":`...)
		b = ended.appendJSON(b)
	}
	if len(failures) == 0 {
		return b
	}
	b = append(b, `,"failures":[`...)
	for i := range failures {
		b = failures[i].appendJSON(separated(b, i))
	}
	return append(b, ']')
}

func (f *Failure) appendJSON(b []byte) []byte {
	b = f.RunGroup.appendJSON(b)
	b = b[:len(b)-1]
	b = appendNumber(b, "more", uint64(f.More))
	b = append(b, `,"at":`...)
	b = f.At.appendJSON(b)
	if f.Error != "" {
		b = append(b, `,"error":`...)
		b = appendText(b, f.Error)
	}
	return append(b, '}')
}

func (d *Decision) appendJSON(b []byte) []byte {
	b = append(b, `{"at":`...)
	b = d.At.appendJSON(b)
	b = append(b, `,"term":`...)
	b = strconv.AppendUint(b, d.Term, 10)
	b = append(b, `,"by":`...)
	b = appendText(b, d.By)
	b = append(b, `,"what":`...)
	b = appendText(b, d.What)
	b = appendNumber(b, "again", uint64(d.Again))
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
