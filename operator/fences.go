package operator

import (
	"context"
	"errors"
	"fmt"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// RaiseFences makes the fences of all claims from now on greater than above, in all
// groups of the namespace. It is for a store that was restored from a backup or replaced: its
// commit numbers, and with them fences, begin lower than before. Pass the greatest fence that any
// system has stored. Fences that are greater already stay. Processes that run while a store is
// replaced or set back raise the base themselves, see StoreLoss.
//
// Fences of claims that were made before it stay lower. So stop all processes, restore the
// store, call RaiseFences, and start the processes again.
func (o *Operator) RaiseFences(ctx context.Context, above uint64) error {
	if above > record.MaxNumber {
		return fmt.Errorf("raise fences above %d: %w", above, invalidArgument(fmt.Errorf("greater than %d", uint64(record.MaxNumber))))
	}
	if err := o.changeFenceBase(ctx, above); err != nil {
		return fmt.Errorf("raise fences above %d: %w", above, err)
	}
	return nil
}

// changeFenceBase stores base unless the stored one is at least as great. A record that cannot be read is replaced: the
// caller knows how great fences have become.
func (o *Operator) changeFenceBase(ctx context.Context, base uint64) error {
	for {
		meta, rev, err := o.readMeta(ctx)
		switch {
		case err != nil && rev != (registry.Rev{}) && !errors.Is(err, record.ErrNewerFormat):
			meta = record.Meta{Format: record.Format, ID: record.NewMetaID()}
		case err != nil || meta.FenceBase >= base:
			return err
		}
		meta.FenceBase = base
		if again, err := o.putRecord(ctx, o.keys.Meta(), rev, meta); !again {
			return err
		}
	}
}
