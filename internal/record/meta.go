package record

import (
	"crypto/rand"
	"slices"
)

// Meta is the record of a namespace.
type Meta struct {
	Format int `json:"format"`
	// FenceBase is added to commit numbers to make fences, so that fences keep growing after the
	// store has been restored or replaced.
	FenceBase uint64 `json:"fence_base"`
	// ID identifies the records of the namespace: whoever creates the record draws it at random. It is
	// empty if an older version wrote the record.
	ID string `json:"id,omitempty"`
	// Former are the latest IDs that ID has replaced, oldest first.
	Former []string `json:"former_ids,omitempty"`
	// Incident is the loss of records that a process has noticed and no operator has acknowledged.
	Incident *Incident `json:"incident,omitempty"`

	extra Fields
}

// Incident is a loss of records: a store that was wiped, replaced, or set back to an earlier state.
type Incident struct {
	Kind     string  `json:"kind"`     // IncidentReplaced or IncidentRewound
	From     string  `json:"from"`     // the ID before
	Seq      uint64  `json:"seq"`      // the highest commit that is known to be lost
	Noticed  Instant `json:"noticed"`  // by the clock of By
	By       string  `json:"by"`       // the instance that noticed it first
	Restored int     `json:"restored"` // control records that instances have written from memory
	// Operators is true if an instance that led the group has written all its knowledge of operators'
	// intents. Otherwise intents may be lost.
	Operators bool `json:"operators"`
}

// The values of Incident.Kind.
const (
	IncidentReplaced = "replaced" // the records have another ID
	IncidentRewound  = "rewound"  // the commit numbers are lower than before
)

// fenceMargin is how far a base is raised above the highest fence that a process has seen. It exceeds
// the number of commits that the process can have missed: on ZooKeeper, whose commit numbers contain
// the number of the election in their upper half, it is 256 elections.
const fenceMargin = 1 << 40

// maxFormer bounds Meta.Former.
const maxFormer = 16

// NewMetaID returns a random ID of a namespace.
func NewMetaID() string { return rand.Text() }

// Continues reports whether the records are those with the ID, or replace them with the knowledge of
// an operator or of a process.
func (m *Meta) Continues(id string) bool { return m.ID == id || slices.Contains(m.Former, id) }

// Replace makes the records replace those with the IDs.
func (m *Meta) Replace(ids ...string) {
	for _, id := range ids {
		if id != "" && !m.Continues(id) {
			m.Former = append(slices.Clone(m.Former), id)
		}
	}
	m.Former = m.Former[max(0, len(m.Former)-maxFormer):]
}

// RaiseFences makes FenceBase greater than a fence that was seen, by a margin, unless it is greater already.
func (m *Meta) RaiseFences(seen uint64) {
	if m.FenceBase <= seen {
		m.FenceBase = min(seen, MaxNumber-fenceMargin) + fenceMargin
	}
}

// MarshalJSON encodes the record with its unknown fields.
func (m Meta) MarshalJSON() ([]byte, error) {
	type plain Meta
	return marshalKeeping(plain(m), m.extra)
}
