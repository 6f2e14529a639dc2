package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/group/batch"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// StoreLoss is a loss of the namespace's records that instances have noticed: the store was wiped,
// replaced, or set back to an earlier state, while they were running. Each process remembers the ID of
// the records, the highest commit, and the intents in the plans; one that led remembers all intents.
// Before an instance claims anything in the other store, it raises the fences of the namespace above all
// that it has seen, and writes pauses, disabled shards and overrides that the store lacks.
//
// A loss is on record until AcknowledgeLoss. No process notices a loss that happens while none runs.
type StoreLoss struct {
	Kind    StoreLossKind `json:"kind"`
	Noticed time.Time     `json:"noticed"` // by the clock of By
	By      string        `json:"by"`      // the instance that noticed it first
	// Restored counts the control records that instances have written from memory. Their acts have the
	// reason "restored from memory".
	Restored int `json:"restored"`
	// Complete reports whether an instance that led a group has written what it knew. Otherwise
	// disabled instances and hosts are lost, and who paused what. Pending triggers are always lost.
	Complete bool `json:"complete"`
}

// StoreLossKind is the kind of a StoreLoss.
type StoreLossKind string

// The kinds.
const (
	StoreReplaced StoreLossKind = record.IncidentReplaced // the records have another ID: the store was wiped or replaced
	StoreRewound  StoreLossKind = record.IncidentRewound  // commit numbers are lower than before: an earlier state was restored
)

// StoreLoss returns the loss that instances have noticed and no operator has acknowledged, or nil, by one
// read. It concerns all groups of the namespace.
func (o *Operator) StoreLoss(ctx context.Context) (*StoreLoss, error) {
	meta, _, err := o.readMeta(ctx)
	if err != nil {
		return nil, fmt.Errorf("read loss of the store: %w", err)
	}
	in := meta.Incident
	if in == nil {
		return nil, nil
	}
	return &StoreLoss{Kind: StoreLossKind(in.Kind), Noticed: in.Noticed.Time(), By: in.By, Restored: in.Restored, Complete: in.Operators}, nil
}

// AcknowledgeLoss ends the report of a StoreLoss: records have been restored, or the store is new on
// purpose. Instances that join later and remember the lost records raise the fences if they have seen
// higher ones, and neither report the loss nor restore intents. Without a loss it does nothing. The act is
// among those on all jobs of the group.
func (o *Operator) AcknowledgeLoss(ctx context.Context) error {
	for {
		meta, rev, err := o.readMeta(ctx)
		if err != nil {
			return fmt.Errorf("acknowledge loss of the store: %w", err)
		}
		if meta.Incident == nil {
			return o.orNil(fmt.Errorf("acknowledge loss of the store: %w", ErrUnchanged))
		}
		kind := meta.Incident.Kind
		meta.Incident = nil
		ended, err := putOp(o.keys.Meta(), rev, meta)
		if err != nil {
			return err
		}
		control, err := o.readGroupControl(ctx)
		if err != nil {
			return fmt.Errorf("acknowledge loss of the store: %w", err)
		}
		control.Acts = control.Acts.With(o.newAct("acknowledge the loss of records: " + kind))
		act, err := putOp(o.keys.GroupControl(), control.Rev, control.GroupControl)
		if err != nil {
			return err
		}
		_, err = registry.Apply(ctx, o.reg, registry.Txn{Then: []registry.Op{ended, act}})
		if _, again := batch.FindConflict(err); !again {
			return err
		}
	}
}
