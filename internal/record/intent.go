package record

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// WithoutRequests returns a copy of c without pending triggers, backfills and cancelled runs: they may
// have run in a store that is lost. The numbers of the last ones stay, as a number that is used again
// would not run.
func (c *Control) WithoutRequests() *Control {
	out := *c
	out.Triggers, out.Backfills, out.Cancels = nil, nil, nil
	return &out
}

// Intent returns the operators' intent that a plan contains, for a job whose control record is not
// known: the job's own pause, its disabled shards and its override. Who is excluded from owning shards
// is not in a plan.
func (p *Plan) Intent() *Control {
	own := p.OwnHold()
	return &Control{Job: p.Job, Paused: own.Paused, Stopped: own.Stopped, Disabled: p.Disabled, Override: p.Last().override()}
}

// override returns the fields by which an epoch's definition differs from the stored one, nil if it is
// the stored one.
func (e *Epoch) override() json.RawMessage {
	var def, stored map[string]json.RawMessage
	if len(e.Stored) == 0 || json.Unmarshal(e.Def, &def) != nil || json.Unmarshal(e.Stored, &stored) != nil {
		return nil
	}
	over := map[string]json.RawMessage{}
	for name, value := range def {
		if !bytes.Equal(value, stored[name]) {
			over[name] = value
		}
	}
	for name := range stored {
		if _, has := def[name]; !has {
			over[name] = json.RawMessage("null")
		}
	}
	for _, name := range fixedFields {
		delete(over, name)
	}
	if len(over) == 0 {
		return nil
	}
	text, err := marshal(over)
	if err != nil {
		return nil
	}
	return text
}

// Describe names the intents in c, "" if there are none.
func (c *Control) Describe() string {
	var parts []string
	for _, p := range []struct {
		in   bool
		text string
	}{
		{c.Retiring != nil, "retire"},
		{c.Paused, "pause"},
		{c.Stopped, "stop schedule"},
		{!c.Disabled.IsZero(), "disable shards " + c.Disabled.String()},
		{len(c.Instances) > 0, "disable instances " + strings.Join(c.Instances, " ")},
		{len(c.Hosts) > 0, "disable hosts " + strings.Join(c.Hosts, " ")},
		{len(c.Override) > 0, "override " + strings.Join(c.overridden(), " ")},
	} {
		if p.in {
			parts = append(parts, p.text)
		}
	}
	return strings.Join(parts, "; ")
}

func (c *Control) overridden() []string {
	var over map[string]json.RawMessage
	_ = json.Unmarshal(c.Override, &over)
	return slices.Sorted(maps.Keys(over))
}

// FromMemory is the reason of an act by which an instance has written an intent that it remembered.
const FromMemory = "restored from memory"

// byRota is the By of an act of an instance.
const byRota = "rota"

// noIntent is the What of an act that restored the end of earlier intents.
const noIntent = "nothing paused, disabled or overridden"

// Remembered returns c as an instance writes it into a store that has lost it, and whether c has an intent.
func (c *Control) Remembered(now Instant) (out *Control, held bool) {
	out = c.WithoutRequests()
	what := out.Describe()
	act := Act{At: now, By: byRota, Reason: FromMemory, What: cmp.Or(what, noIntent)}.Shortened()
	out.Acts = c.Acts.With(act)
	if out.HeldBy == nil && (out.Paused || out.Stopped) {
		out.HeldBy = &act
	}
	if out.OverriddenBy == nil && len(out.Override) > 0 {
		out.OverriddenBy = &act
	}
	return out, what != ""
}

// Remembered is Control.Remembered for a group.
func (c *GroupControl) Remembered(now Instant) (out *GroupControl, held bool) {
	job := Control{Paused: c.Paused, Exclusion: c.Exclusion}
	what := job.Describe()
	remembered := *c
	act := Act{At: now, By: byRota, Reason: FromMemory, What: cmp.Or(what, noIntent)}.Shortened()
	remembered.Acts = c.Acts.With(act)
	if remembered.HeldBy == nil && remembered.Paused {
		remembered.HeldBy = &act
	}
	return &remembered, what != ""
}
