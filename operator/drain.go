package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// Drain takes an instance out of service from outside, and returns when it owns nothing any more. It disables the
// instance for all jobs, as Disable does with a Scope of that instance: its idle shards are reassigned at once, running
// ones after their runs, which are asked to yield (executor.Run.Yield). The instance stays in the group, and stays
// disabled after a restart, until Undrain or Enable. That is the difference to a shutdown, which ends the contexts of
// runs after a time and lets the instance leave.
//
// If ctx ends first, Drain returns an error that wraps its cause and names a job of which the instance still owns
// shards. The instance remains disabled and the moves go on; calling Drain again waits for them. Without a leader
// nothing moves. An instance that does not exist owns nothing, and owns nothing when it joins. If the instance owned
// nothing when Drain began, an assignment that the leader had just decided may follow; the leader takes it back.
func (o *Operator) Drain(ctx context.Context, instance string) error {
	if err := o.BeginDrain(ctx, instance); err != nil {
		return err
	}
	if err := o.awaitNoShards(ctx, instance); err != nil {
		return fmt.Errorf("drain %q: %w", instance, err)
	}
	return nil
}

// BeginDrain is Drain without the wait: it returns when the instance is disabled, perhaps before its shards move.
func (o *Operator) BeginDrain(ctx context.Context, instance string) error {
	return o.setDrained(ctx, "drain", instance, true)
}

// Undrain takes a Drain back: the instance may own shards again. It does not wait until the instance owns some. It is
// Enable with a Scope of that instance.
func (o *Operator) Undrain(ctx context.Context, instance string) error {
	return o.setDrained(ctx, "undrain", instance, false)
}

// setDrained disables or enables an instance for all jobs, and records the act by its verb.
func (o *Operator) setDrained(ctx context.Context, verb, instance string, drained bool) error {
	s := &Scope{Instances: []string{instance}}
	err := invalidArgument(s.validate())
	if err == nil {
		err = o.changeGroupControl(ctx, func(c *record.GroupControl) (string, error) {
			if !drained && !s.overlaps(&c.Exclusion) {
				return "", ErrUnchanged
			}
			return verb + " instance " + instance, s.setExclusion(&c.Exclusion, drained)
		})
	}
	if err != nil {
		return fmt.Errorf("%s %q: %w", verb, instance, err)
	}
	return nil
}

// errDrained ends awaitNoShards.
var errDrained = errors.New("the instance owns nothing")

// awaitNoShards waits until no plan names an incarnation of an instance. It follows the plans, so it costs one read of
// all, and then as much as has changed.
func (o *Operator) awaitNoShards(ctx context.Context, instance string) error {
	owned := map[registry.Key]string{} // why the instance may own shards, by the key of the plan
	err := registry.Follow(ctx, o.reg, o.keys.Plans(), func(b registry.Batch) error {
		if b.Kind == registry.Snapshot {
			clear(owned)
		}
		for _, e := range b.Puts {
			if why := ownsByPlan(e, instance); why != "" {
				owned[e.Key] = why
			} else {
				delete(owned, e.Key)
			}
		}
		for _, key := range b.Deletes {
			delete(owned, key)
		}
		if len(owned) == 0 {
			return errDrained
		}
		return nil
	})
	if errors.Is(err, errDrained) {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if len(owned) == 0 {
		return err
	}
	text := owned[slices.Sorted(maps.Keys(owned))[0]]
	if more := len(owned) - 1; more > 0 {
		text += ", and of " + count.Of(more, "more job")
	}
	return fmt.Errorf("%w: %s", err, text)
}

// ownsByPlan returns which shards an instance owns by a plan, or why that is unknown; "" if it owns none.
func ownsByPlan(e registry.Entry, instance string) string {
	p, err := record.DecodePlan(e.Value)
	if err != nil {
		return fmt.Sprintf("%s cannot be read", e.Key)
	}
	for inc, shards := range p.Owners {
		if record.InstanceOf(inc) == instance && !shards.IsZero() {
			return fmt.Sprintf("it owns %s of %q", shards.Text(), p.Job)
		}
	}
	return ""
}
