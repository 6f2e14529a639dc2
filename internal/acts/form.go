package acts

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Parse returns the request that a form describes: texts by the names of fields. An empty text is a field that is not set.
func (v Verb) Parse(form map[string][]string) (Request, error) {
	var r Request
	for _, f := range v.Fields {
		text := ""
		if values := form[f.Name]; len(values) > 0 {
			text = values[0]
		}
		if f.Kind != Text {
			text = strings.TrimSpace(text)
		}
		if text == "" {
			continue
		}
		if err := r.set(f, text); err != nil {
			return Request{}, fmt.Errorf("%s: %w", f.Label, err)
		}
	}
	return r, nil
}

// set sets a field from its text.
func (r *Request) set(f Field, text string) (err error) {
	switch f.Name {
	case "shards":
		r.Shards, err = parseShards(text)
	case "param":
		r.Param = &text
	case "fire":
		r.Fire, err = parseInstant(text)
	case "from":
		r.From, err = parseInstant(text)
	case "to":
		r.To, err = parseInstant(text)
	case "until":
		r.Until, err = parseInstant(text)
	case "parallel":
		r.Parallel, err = parseNumber(text)
	case "count":
		r.Count, err = parseNumber(text)
	case "again":
		r.Again = true
	case "clear":
		r.Clear = true
	case "schedule":
		r.Schedule = text
	}
	return err
}

// maxShard bounds what a range of a form may expand to.
const maxShard = 1 << 20

// parseShards parses shards and ranges, such as 3,7-9.
func parseShards(text string) (shards []int, err error) {
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			high = low
		}
		from, err := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if err = errors.Join(err, err2); err != nil || from < 0 || to < from || to > maxShard || len(shards)+to-from > maxShard {
			return nil, fmt.Errorf("%q is neither a shard nor a range such as 7-9", part)
		}
		for s := from; s <= to; s++ {
			shards = append(shards, s)
		}
	}
	return shards, nil
}

// parseInstant parses an instant, or one without a zone, as browsers send it, in UTC.
func parseInstant(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04"} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no instant such as 2026-01-31T03:00:00Z", text)
}

func parseNumber(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is no number from 1 on", text)
	}
	return n, nil
}
