package member

import (
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// newNameTakenError returns the error of a member whose name has been held by another process for
// longer than it waited. held is the record of that process.
func newNameTakenError(name string, held registry.Entry, waited time.Duration) error {
	holder := "an instance has it"
	if r, err := record.Decode[record.Instance](held.Value); err == nil {
		holder = describeInstance(r)
	}
	return fmt.Errorf("join as %s: %w: %s, and kept it for %v, longer than the session of a crashed predecessor lasts",
		name, ErrNameTaken, holder, waited)
}

// describeInstance returns which process a record of an instance is of, as far as it states that.
func describeInstance(r record.Instance) string {
	text := "an instance"
	if r.PID != 0 {
		text = fmt.Sprintf("process %d", r.PID)
	}
	if r.Host != "" {
		text += fmt.Sprintf(" on host %.100q", r.Host)
	}
	text += " has had it"
	if r.Started != 0 {
		text += " since " + r.Started.Time().Format(time.RFC3339)
	}
	return text
}
