package due

import (
	"fmt"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// A record says which job or incarnation it is about, as does its key. If they differ, another
// hand wrote the record, and it counts as unreadable.

// CheckJobOf checks that the record at a key is about the job that the key is of.
func CheckJobOf(key registry.Key, job string) error {
	if record.Segment(job) != key.Name() {
		return fmt.Errorf("record of job %q at %s", job, key)
	}
	return nil
}

// DecodePlan reads a plan.
func DecodePlan(e registry.Entry) (*record.Plan, error) {
	p, err := record.DecodePlan(e.Value)
	if err == nil {
		err = CheckJobOf(e.Key, p.Job)
	}
	return p, err
}

// DecodeMember reads the record of an incarnation.
func DecodeMember(e registry.Entry) (record.Member, error) {
	m, err := record.Decode[record.Member](e.Value)
	if err == nil && record.Incarnation(m.Name, m.Session) != e.Key.Name() {
		err = fmt.Errorf("record of incarnation %q at %s", record.Incarnation(m.Name, m.Session), e.Key)
	}
	return m, err
}
