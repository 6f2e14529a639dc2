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

// DecodeOf decodes a record of a job, which has to name the job that its key is for.
func DecodeOf[T interface{ ofJob() string }](e registry.Entry, decode func([]byte) (T, error)) (T, error) {
	v, err := decode(e.Value)
	if err == nil {
		err = CheckJobOf(e.Key, v.ofJob())
	}
	return v, err
}

func (p *Plan) ofJob() string { return p.Job }

func (c *Control) ofJob() string { return c.Job }

func (d *Defined) ofJob() string { return d.Job }

func (c Claims) ofJob() string { return c.Job }

// DecodePlanEntry decodes a plan and checks that it belongs at its key.
func DecodePlanEntry(e registry.Entry) (*Plan, error) { return DecodeOf(e, DecodePlan) }

// DecodeMemberEntry decodes a member record and checks that it belongs at its key.
func DecodeMemberEntry(e registry.Entry) (Member, error) {
	m, err := Decode[Member](e.Value)
	if err == nil && Incarnation(m.Name, m.Session) != e.Key.Name() {
		err = fmt.Errorf("record of incarnation %q at %s", Incarnation(m.Name, m.Session), e.Key)
	}
	return m, err
}
