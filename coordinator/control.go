package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

var (
	// ErrUnknownJob means that nobody has stored a definition of the job.
	ErrUnknownJob = errors.New("unknown job")
	// ErrTooManyTriggers means that as many triggers of the job wait as may.
	ErrTooManyTriggers = errors.New("too many triggers wait")
)

// Trigger asks for a run of a job by hand. It is durable: once Trigger has returned, the
// run happens whoever crashes. shards are those to run, nil for all. The number that is
// returned stands in Run.Trigger.
func (m *Member) Trigger(ctx context.Context, job, param string, shards []int) (uint64, error) {
	number := uint64(0)
	err := m.control(ctx, job, func(c *record.Control, def record.Job) error {
		t := record.Trigger{At: record.InstantOf(time.Now()), Param: param}
		if shards != nil {
			set := shardset.Set{}
			for _, s := range shards {
				if s < 0 || s >= def.Shards {
					return fmt.Errorf("there is no shard %d of %d", s, def.Shards)
				}
				set.Add(s)
			}
			t.Shards = &set
		}
		if len(c.Triggers) >= record.MaxTriggers {
			return fmt.Errorf("%w: %d", ErrTooManyTriggers, len(c.Triggers))
		}
		c.LastTrigger++
		t.Number, number = c.LastTrigger, c.LastTrigger
		c.Triggers = append(c.Triggers, t)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("trigger %q: %w", job, err)
	}
	return number, nil
}

// Pause makes the fleet claim nothing more of a job until Resume. Runs that have begun go
// on.
func (m *Member) Pause(ctx context.Context, job string) error {
	return m.setPaused(ctx, "pause", job, true)
}

// Resume ends a Pause, at an instant that is MaxClockSkew away, so that no clock in the
// fleet has passed it. Fires that come until then are not owed.
func (m *Member) Resume(ctx context.Context, job string) error {
	return m.setPaused(ctx, "resume", job, false)
}

func (m *Member) setPaused(ctx context.Context, verb, job string, paused bool) error {
	err := m.control(ctx, job, func(c *record.Control, _ record.Job) error {
		c.Paused = paused
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s %q: %w", verb, job, err)
	}
	return nil
}

// control changes the control record of a job by compare and set.
func (m *Member) control(ctx context.Context, job string, change func(*record.Control, record.Job) error) error {
	segment := record.Segment(job)
	def, err := m.definition(ctx, segment)
	if err != nil {
		return err
	}
	key := m.keys.Control(segment)
	for {
		c := &record.Control{Job: job}
		e, err := m.reg.Get(ctx, key, registry.ReadOptions{Fresh: true})
		absent := errors.Is(err, registry.ErrNotFound)
		switch {
		case absent:
			if c.Paused, err = m.paused(ctx, segment, def); err != nil {
				return err
			}
		case err != nil:
			return err
		default:
			if c, err = record.DecodeControl(e.Value); err != nil {
				return fmt.Errorf("read %s: %w", key, err)
			}
		}
		if err := change(c, def); err != nil {
			return err
		}
		value, err := record.Encode(c)
		if err != nil {
			return err
		}
		op := registry.Set(key, e.Modified, value)
		if absent {
			op = registry.Create(key, value)
		}
		_, err = registry.Apply(ctx, m.reg, registry.Txn{Then: []registry.Op{op}})
		if _, refused := conflict(err); !refused {
			return err
		}
	}
}

// paused reports whether a job is paused for which no operator has said so. What its plan
// says is from when the job was new; later definitions do not change it.
func (m *Member) paused(ctx context.Context, segment string, def record.Job) (bool, error) {
	e, err := m.reg.Get(ctx, m.keys.Plan(segment), registry.ReadOptions{Fresh: true})
	if errors.Is(err, registry.ErrNotFound) {
		return def.StartPaused, nil
	}
	if err != nil {
		return false, err
	}
	p, err := record.DecodePlan(e.Value)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", m.keys.Plan(segment), err)
	}
	return p.Paused, nil
}

func (m *Member) definition(ctx context.Context, segment string) (record.Job, error) {
	e, err := m.reg.Get(ctx, m.keys.Job(segment), registry.ReadOptions{Fresh: true})
	if errors.Is(err, registry.ErrNotFound) {
		return record.Job{}, ErrUnknownJob
	}
	if err != nil {
		return record.Job{}, err
	}
	_, def, err := record.DecodeDefinition(e.Value)
	if err != nil {
		return record.Job{}, fmt.Errorf("read %s: %w", m.keys.Job(segment), err)
	}
	return def, nil
}
