package coordinator

import (
	"context"
	"fmt"

	"github.com/rota-dev/rota/internal/record"
)

// maxFenceBase leaves room for commit numbers above it.
const maxFenceBase = 1 << 62

// RaiseFences makes the fences of instances that join from now on greater than above, in all
// groups of the namespace. It is for a store that was restored from a backup or replaced: its
// commit numbers, and with them fences, begin lower than before. Pass the greatest fence that any
// system has stored. Fences that are greater already stay.
//
// An instance keeps the base that it read when it joined. So stop all processes, restore the
// store, call RaiseFences, and start the processes again.
func (o *Operator) RaiseFences(ctx context.Context, above uint64) error {
	if above > maxFenceBase {
		return fmt.Errorf("raise fences above %d: greater than %d", above, uint64(maxFenceBase))
	}
	for again := true; again; {
		var err error
		if again, err = o.raiseFencesOnce(ctx, above); err != nil && !again {
			return fmt.Errorf("raise fences above %d: %w", above, err)
		}
	}
	return nil
}

// raiseFencesOnce reports whether another writer changed the record in between.
func (o *Operator) raiseFencesOnce(ctx context.Context, above uint64) (again bool, err error) {
	key := o.keys.Meta()
	e, found, err := o.getRecord(ctx, key)
	if err != nil {
		return false, err
	}
	meta := record.Meta{Format: record.Format}
	if found {
		if meta, err = record.DecodeMeta(e.Value); err != nil {
			return false, fmt.Errorf("read %s: %w", key, err)
		}
	}
	if meta.FenceBase >= above {
		return false, nil
	}
	meta.FenceBase = above
	return o.putRecord(ctx, key, e.Modified, meta)
}
