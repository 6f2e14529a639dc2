package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// OtherDefinition is a member's own definition of a job that is not the stored one.
type OtherDefinition struct {
	Instance         string
	Revision, Stored int
	// Own are the fields that differ, "" if they are not known. A member records them if the stored definition was
	// there before its own: after a rollback, or with a file that was left behind. In a rolling deployment, the
	// members of the old version have offered the job before, so theirs are unknown.
	Own string
}

// String describes the definition, as `c has revision 4 (schedule "every 10s"), and revision 5 is stored`.
func (o OtherDefinition) String() string {
	own := ""
	if o.Own != "" {
		own = " (" + o.Own + ")"
	}
	if o.Revision == o.Stored {
		return fmt.Sprintf("%s has revision %d with other content than the stored one%s", o.Instance, o.Revision, own)
	}
	return fmt.Sprintf("%s has revision %d%s, and revision %d is stored", o.Instance, o.Revision, own, o.Stored)
}

// FindOther returns the member's own definition of a job if it is not the stored one, which has a revision.
func (m *Member) FindOther(job string, stored int) (other OtherDefinition, differs bool) {
	revision, has := m.Revision(job)
	if !has || revision == stored && !slices.Contains(m.Differs, job) {
		return OtherDefinition{}, false
	}
	return OtherDefinition{m.Name, revision, stored, m.Own[job]}, true
}

// FindOthers returns the definitions of members that are not the stored one, sorted by instance.
func FindOthers(members []*Member, job string, stored int) (others []OtherDefinition) {
	for _, m := range members {
		if other, differs := m.FindOther(job, stored); differs {
			others = append(others, other)
		}
	}
	slices.SortFunc(others, func(a, b OtherDefinition) int { return strings.Compare(a.Instance, b.Instance) })
	return others
}

// maxOwnBytes bounds the text of DescribeOwn.
const maxOwnBytes = 200

// DescribeOwn names the fields in which a definition differs from the stored one, with the values of those that are never
// secret: "overlap, schedule \"every 10s\", shards 3".
func DescribeOwn(own, stored json.RawMessage) string {
	var x, y map[string]json.RawMessage
	if json.Unmarshal(own, &x) != nil || json.Unmarshal(stored, &y) != nil {
		return ""
	}
	names := maps.Clone(y)
	maps.Copy(names, x)
	delete(names, "revision")
	var fields []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		switch value := compact(x[name]); {
		case bytes.Equal(value, compact(y[name])):
		case name == "schedule" || name == "shards":
			fields = append(fields, name+" "+string(value))
		default:
			fields = append(fields, name)
		}
	}
	text := strings.Join(fields, ", ")
	if len(text) > maxOwnBytes {
		text = strings.ToValidUTF8(text[:maxOwnBytes], "") + "..."
	}
	return text
}
