package record

import (
	"fmt"
	"strings"

	"github.com/rota-dev/rota/registry"
)

// InstanceOf returns the name of the instance that an incarnation belongs to.
func InstanceOf(incarnation string) string {
	return strings.TrimSuffix(incarnation, "."+string(SessionOf(incarnation)))
}

// SessionOf returns the session of an incarnation. It needs no member record.
func SessionOf(incarnation string) registry.SessionID {
	return registry.SessionID(incarnation[strings.LastIndexByte(incarnation, '.')+1:])
}

// A record names its job or incarnation, as does its key. If they differ, another writer wrote
// the record, and it counts as unreadable.

// CheckJobOf checks that a record names the job that its key is for.
func CheckJobOf(key registry.Key, job string) error {
	if Segment(job) != key.Name() {
		return fmt.Errorf("record of job %q at %s", job, key)
	}
	return nil
}

// DecodePlanEntry decodes a plan and checks that it belongs at its key.
func DecodePlanEntry(e registry.Entry) (*Plan, error) {
	p, err := DecodePlan(e.Value)
	if err == nil {
		err = CheckJobOf(e.Key, p.Job)
	}
	return p, err
}

// DecodeMemberEntry decodes a member record and checks that it belongs at its key.
func DecodeMemberEntry(e registry.Entry) (Member, error) {
	m, err := Decode[Member](e.Value)
	if err == nil && Incarnation(m.Name, m.Session) != e.Key.Name() {
		err = fmt.Errorf("record of incarnation %q at %s", Incarnation(m.Name, m.Session), e.Key)
	}
	return m, err
}
