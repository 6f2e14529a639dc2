package record

import (
	"fmt"
	"slices"

	"github.com/rota-dev/rota/internal/shardset"
)

// Control is operators' intent for a job. It survives everything but the job.
type Control struct {
	Job         string       `json:"job"`
	Paused      bool         `json:"paused,omitempty"`
	Stopped     bool         `json:"schedule_stopped,omitempty"` // not with Paused
	Disabled    shardset.Set `json:"disabled_shards,omitzero"`   // perhaps beyond the total, which may grow again
	Exclusion                // from this job
	Triggers    []Trigger    `json:"triggers,omitempty"`     // not yet in the plan
	LastTrigger uint64       `json:"last_trigger,omitempty"` // the highest number given out
	Resets      uint64       `json:"resets,omitempty"`       // how often the job was to start afresh

	extra fields
}

// GroupControl is operators' intent for all jobs of a group.
type GroupControl struct {
	Exclusion // from all jobs

	extra fields
}

// Exclusion is who is disabled: may own no shards.
type Exclusion struct {
	Instances []string `json:"disabled_instances,omitempty"` // by name, sorted
	Hosts     []string `json:"disabled_hosts,omitempty"`     // sorted
}

// Trigger is a run asked for by hand.
type Trigger struct {
	Number uint64        `json:"number"`
	At     Instant       `json:"at"`
	Gen    int           `json:"gen,omitempty"` // set in plans: whose definition holds
	Param  string        `json:"param,omitempty"`
	Shards *shardset.Set `json:"shards,omitempty"` // nil for all
}

// MaxTriggers bounds the triggers of a job that wait.
const MaxTriggers = 64

// MaxExcluded bounds the instances that an Exclusion names, and the hosts.
const MaxExcluded = 256

// IsZero reports whether x excludes nobody.
func (x *Exclusion) IsZero() bool { return len(x.Instances)+len(x.Hosts) == 0 }

// Excludes reports whether x excludes a member. One that names no host, as older versions
// do, is on none that could be excluded.
func (x *Exclusion) Excludes(m *Member) bool {
	_, named := slices.BinarySearch(x.Instances, m.Name)
	_, hosted := slices.BinarySearch(x.Hosts, m.Host)
	return named || hosted
}

// check checks what was read, and puts in order what was perhaps written by hand.
func (x *Exclusion) check() error {
	if err := checkNames(x.Instances, CheckName); err != nil {
		return fmt.Errorf("disabled_instances: %w", err)
	}
	if err := checkNames(x.Hosts, CheckHost); err != nil {
		return fmt.Errorf("disabled_hosts: %w", err)
	}
	slices.Sort(x.Instances)
	slices.Sort(x.Hosts)
	return nil
}

func checkNames(names []string, check func(string) error) error {
	if len(names) > MaxExcluded {
		return fmt.Errorf("%d names, at most %d", len(names), MaxExcluded)
	}
	for _, name := range names {
		if err := check(name); err != nil {
			return err
		}
	}
	return nil
}

// checkDisabled checks a set of shards that are disabled.
func checkDisabled(shards shardset.Set) error {
	if most, ok := shards.Max(); ok && most >= MaxShards {
		return fmt.Errorf("shard %d, of at most %d", most, MaxShards)
	}
	return nil
}

// DecodeControl reads and checks a control record.
func DecodeControl(b []byte) (*Control, error) {
	c, extra, err := decodeKeeping[Control](b)
	if err != nil {
		return nil, err
	}
	c.extra = extra
	if err := checkDisabled(c.Disabled); err != nil {
		return nil, fmt.Errorf("disabled_shards: %w", err)
	}
	last := uint64(0)
	for _, t := range c.Triggers {
		if t.Number <= last || t.Number > c.LastTrigger {
			return nil, fmt.Errorf("triggers: number %d after %d, and the highest is %d", t.Number, last, c.LastTrigger)
		}
		last = t.Number
	}
	return c, c.check()
}

// DecodeGroupControl reads and checks the control record of a group.
func DecodeGroupControl(b []byte) (*GroupControl, error) {
	c, extra, err := decodeKeeping[GroupControl](b)
	if err != nil {
		return nil, err
	}
	c.extra = extra
	return c, c.check()
}

// MarshalJSON writes the record and what an earlier reader did not understand of it.
func (c *Control) MarshalJSON() ([]byte, error) {
	type plain Control
	return marshalKeeping((*plain)(c), c.extra)
}

// MarshalJSON writes the record and what an earlier reader did not understand of it.
func (c *GroupControl) MarshalJSON() ([]byte, error) {
	type plain GroupControl
	return marshalKeeping((*plain)(c), c.extra)
}
