package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

const (
	maxDifferences     = 12
	maxDifferenceBytes = 80
)

// Differences returns the fields in which two definitions differ, sorted by name, each with both
// values: "shards: 2 <a>, 3 <b>", where a and b are the caller's words for the two definitions.
// It ignores the revision, shortens long values, and returns at most 12 fields and the number of
// the others.
func Differences(first json.RawMessage, a string, second json.RawMessage, b string) []string {
	var x, y map[string]json.RawMessage
	if json.Unmarshal(first, &x) != nil || json.Unmarshal(second, &y) != nil {
		return []string{"one definition is not a JSON object"}
	}
	names := map[string]json.RawMessage{}
	maps.Copy(names, x)
	maps.Copy(names, y)
	delete(names, "revision")
	var out []string
	more := 0
	for _, name := range slices.Sorted(maps.Keys(names)) {
		before, now := compact(x[name]), compact(y[name])
		switch {
		case bytes.Equal(before, now):
		case len(out) == maxDifferences:
			more++
		default:
			before, now = excerpts(before, now)
			out = append(out, fmt.Sprintf("%.*s: %s %s, %s %s", maxDifferenceBytes, name, before, a, now, b))
		}
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return out
}

func compact(value json.RawMessage) []byte {
	if value == nil {
		return []byte("none")
	}
	var b bytes.Buffer
	if err := json.Compact(&b, value); err != nil {
		return value
	}
	return b.Bytes()
}

// excerpts shortens two values to the part in which they differ, with a few bytes before it.
func excerpts(a, b []byte) ([]byte, []byte) {
	if len(a) <= maxDifferenceBytes && len(b) <= maxDifferenceBytes {
		return a, b
	}
	same := 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	from := max(same-maxDifferenceBytes/4, 0)
	return excerpt(a, from), excerpt(b, from)
}

func excerpt(value []byte, from int) []byte {
	out := value[min(from, len(value)):]
	cut := len(out) > maxDifferenceBytes
	out = bytes.ToValidUTF8(out[:min(len(out), maxDifferenceBytes)], nil)
	if from > 0 {
		out = append([]byte("..."), out...)
	}
	if cut {
		out = append(bytes.Clone(out), "..."...)
	}
	return out
}
