package coordinator

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// inOffice returns the loop of an incarnation that is in office, which nobody runs.
func inOffice(t *testing.T) *officeLoop {
	reg := memory.New().Client("a")
	m, err := NewMember(reg, MemberOptions{Namespace: "test", Instance: "a"})
	require.NoError(t, err)
	s, err := reg.OpenSession(t.Context(), registry.SessionOptions{})
	require.NoError(t, err)
	in := &incarnation{id: record.Incarnation("a", s.ID()), session: s}
	o := newOfficeLoop(m, in, nil, slog.New(slog.DiscardHandler))
	txn, err := o.office.succession(m.keys, in.id, s.ID())
	require.NoError(t, err)
	rev, err := reg.Txn(t.Context(), txn)
	require.NoError(t, err)
	o.office = office{
		leader: record.Leader{Incarnation: in.id, Session: s.ID()}, leaderRev: rev,
		present: s.ID(), presentRev: rev,
	}
	return o
}

func TestOfficeLoop_KnowsWhatItWroteBeforeTheFeedDoes(t *testing.T) {
	o := inOffice(t)
	require.NoError(t, o.announce(t.Context(), []string{"b.B"}, clockNotice{}, false))
	require.NoError(t, o.announce(t.Context(), []string{"c.C", "b.B"}, clockNotice{}, false))
	assert.Equal(t, []string{"c.C", "b.B"}, o.office.successors)
}

func TestOfficeLoop_WhoDrainsIsLastToSucceedButEntersAtOnceIfNamed(t *testing.T) {
	o := inOffice(t)
	o.m.draining = true
	o.office.present, o.office.presentRev = "", registry.Rev{}
	step, wait := o.step()
	assert.Equal(t, enter, step)
	assert.Zero(t, wait, "everybody waits for the one who was named")

	o.office.leader = record.Leader{Incarnation: "b.B", Session: "B"}
	o.office.successors = []string{o.in.id}
	step, wait = o.step()
	assert.Equal(t, succeed, step)
	_, other := o.office.step("c.C", "C", 1)
	assert.Greater(t, wait, other)
}
