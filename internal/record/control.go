package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/rota-dev/rota/internal/shardset"
)

// Control is the intent of operators for a job. It is deleted with the job only.
type Control struct {
	Job          string       `json:"job"`
	Paused       bool         `json:"paused,omitempty"`
	Stopped      bool         `json:"schedule_stopped,omitempty"` // not with Paused
	Disabled     shardset.Set `json:"disabled_shards,omitzero"`   // may exceed the total, which may grow again
	Exclusion                 // from owning shards of this job
	Triggers     []Trigger    `json:"triggers,omitempty"`      // not yet in the plan
	LastTrigger  uint64       `json:"last_trigger,omitempty"`  // the highest number in use
	Resets       uint64       `json:"resets,omitempty"`        // how often operators have asked for a fresh start of the job
	Cancels      Runs         `json:"cancels,omitempty"`       // cancelled runs that are not yet in the plan
	Backfills    []Backfill   `json:"backfills,omitempty"`     // with fires that are not yet triggers
	LastBackfill uint64       `json:"last_backfill,omitempty"` // the highest number in use
	Retries      Retries      `json:"retries,omitempty"`       // the latest ones
	LostRetries  LostRetries  `json:"lost_retries,omitzero"`   // what is known of earlier ones
	// Override holds the fields of the definition that operators have replaced, a JSON object.
	Override     json.RawMessage `json:"override,omitempty"`
	OverriddenBy *Act            `json:"overridden_by,omitempty"`
	// Retiring is the act that retires the job, nil if none does: the job is paused, and the leader deletes its
	// records once no instance offers it.
	Retiring *Act `json:"retiring,omitempty"`
	Hold
	Acts Acts `json:"acts,omitempty"`

	extra Fields
}

// GroupControl is the intent of operators for all jobs of a group.
type GroupControl struct {
	Exclusion      // from owning shards of any job
	Paused    bool `json:"paused,omitempty"` // all jobs, present and future, besides the pause of each
	Hold
	Pools map[string]int `json:"pools,omitempty"` // their sizes, by name
	Acts  Acts           `json:"acts,omitempty"`

	extra Fields
}

// Exclusion names the disabled instances and hosts, which may own no shards.
type Exclusion struct {
	Instances []string `json:"disabled_instances,omitempty"` // by name, sorted
	Hosts     []string `json:"disabled_hosts,omitempty"`     // sorted
}

// Trigger is the request for a run by hand.
type Trigger struct {
	Number uint64        `json:"number"`
	At     Instant       `json:"at"`
	Epoch  int           `json:"epoch,omitempty"` // the epoch number of its definition; set in plans only
	Param  string        `json:"param,omitempty"`
	Shards *shardset.Set `json:"shards,omitempty"` // nil for all

	Fire     Instant `json:"fire,omitzero"`      // of its runs, if it is not At
	Reason   string  `json:"reason,omitempty"`   // TriggerRetry or TriggerBackfill
	Backfill uint64  `json:"backfill,omitempty"` // the number of its backfill

	Token string `json:"token,omitempty"` // makes its Name unique; of older versions, empty
	Work  string `json:"work,omitempty"`  // the work that is done again, if it is not named by Fire
	Again bool   `json:"again,omitempty"` // its runs do new work, not that which Fire or Work names
}

// KeepsAwake reports whether operators want something of a job that its definition alone does not say.
func (c *Control) KeepsAwake() bool {
	return len(c.Triggers)+len(c.Cancels)+len(c.Backfills) > 0 || c.Describe() != ""
}

// HasActsSince reports whether the latest act is not older than an instant.
func (c *Control) HasActsSince(at Instant) bool {
	return len(c.Acts) > 0 && c.Acts[len(c.Acts)-1].At >= at
}

// MaxTriggers bounds the pending triggers of a job.
const MaxTriggers = 64

// MaxExcluded bounds the instances of an Exclusion, and its hosts.
const MaxExcluded = 256

// IsZero reports whether x is empty.
func (x *Exclusion) IsZero() bool { return len(x.Instances)+len(x.Hosts) == 0 }

// Excludes reports whether x excludes a member. A member of an older version names no host,
// so that an excluded host does not match it.
func (x *Exclusion) Excludes(m *Member) bool {
	_, named := slices.BinarySearch(x.Instances, m.Name)
	_, hosted := slices.BinarySearch(x.Hosts, m.Host)
	return named || hosted
}

// check checks the names and sorts them, since a person may have written the record.
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

// checkDisabled checks a set of disabled shards.
func checkDisabled(shards shardset.Set) error {
	if most, ok := shards.Max(); ok && most >= MaxShards {
		return fmt.Errorf("shard %d, of at most %d", most, MaxShards)
	}
	return nil
}

// DecodeControl decodes and checks a control record.
func DecodeControl(b []byte) (*Control, error) {
	c, extra, err := decodeKeeping[Control](b)
	if err != nil {
		return nil, err
	}
	c.extra = extra
	if err := checkDisabled(c.Disabled); err != nil {
		return nil, fmt.Errorf("disabled_shards: %w", err)
	}
	if err := errors.Join(c.Cancels.check("cancels"), checkEntries("triggers", len(c.Triggers)), checkEntries("acts", len(c.Acts)), checkEntries("retries", len(c.Retries))); err != nil {
		return nil, err
	}
	last := uint64(0)
	for _, t := range c.Triggers {
		if t.Number <= last || t.Number > c.LastTrigger {
			return nil, fmt.Errorf("triggers: number %d after %d, with last_trigger %d", t.Number, last, c.LastTrigger)
		}
		last = t.Number
	}
	if err := c.checkBackfills(); err != nil {
		return nil, err
	}
	return c, c.check()
}

// DecodeGroupControl decodes and checks the control record of a group.
func DecodeGroupControl(b []byte) (*GroupControl, error) {
	c, extra, err := decodeKeeping[GroupControl](b)
	if err != nil {
		return nil, err
	}
	c.extra = extra
	return c, errors.Join(checkEntries("acts", len(c.Acts)), checkPools(c.Pools), c.check())
}

// MarshalJSON encodes the record with its unknown fields.
func (c *Control) MarshalJSON() ([]byte, error) {
	type plain Control
	return marshalKeeping((*plain)(c), c.extra)
}

// MarshalJSON encodes the record with its unknown fields.
func (c *GroupControl) MarshalJSON() ([]byte, error) {
	type plain GroupControl
	return marshalKeeping((*plain)(c), c.extra)
}
