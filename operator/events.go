package operator

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/internal/record"
)

// EventKind is a kind of events of a group.
type EventKind string

// The kinds of events.
const (
	EventDecision EventKind = "decision" // of a leader about a job
	EventAct      EventKind = "act"      // of an operator, or of the leader in place of one
	EventLeader   EventKind = "leader"   // the first decision on record of a term
	EventJoin     EventKind = "join"     // of an instance that is alive
	EventLeave    EventKind = "leave"    // of an instance that owned shards and whose session has ended
)

// Event is something that happened in a group. Its texts are for people and not stable across versions.
type Event struct {
	At       time.Time `json:"at"` // by the clock of who did it
	Kind     EventKind `json:"kind"`
	Job      string    `json:"job,omitempty"`      // empty for an event of the whole group
	Instance string    `json:"instance,omitempty"` // that leads or has joined
	By       string    `json:"by,omitempty"`
	What     string    `json:"what"`
	Reason   string    `json:"reason,omitempty"`
}

// EventsQuery selects events.
type EventsQuery struct {
	Job          string    // with those of the whole group; empty: all
	Kind         EventKind // empty: all
	Since, Until time.Time // zero: no bound
	Limit        int       // the latest ones; zero: all
}

// Events returns what is on record of the past of the group, the latest first: the last eight decisions about each job, the last 32 acts on
// it and on the group, the leaders that decided, when the live instances joined, and when the sessions of owners were found to have ended. It reads nothing.
func (v *GroupView) Events(q EventsQuery) []Event {
	v.mu.Lock()
	defer v.mu.Unlock()
	c := eventCollector{EventsQuery: q}
	records := v.answers.records
	if group := records.Group.GroupControl; group != nil {
		c.addActs("", group.Acts)
	}
	for segment := range records.Plans {
		p := records.Plans[segment].Plan
		if p == nil {
			continue
		}
		for i := range p.Decisions {
			c.addDecision(p.Job, &p.Decisions[i])
		}
	}
	for segment, control := range records.Control {
		if control.Control != nil {
			c.addActs(records.Definition(segment).Name, control.Acts)
		}
	}
	for _, m := range records.Members {
		i, alive := records.Live[m.Session]
		if alive && i.Started != 0 {
			c.add(Event{At: i.Started.Time(), Kind: EventJoin, Instance: m.Name, What: m.Name + " joined"})
		}
	}
	for inc, l := range c.losses {
		name := record.InstanceOf(inc)
		what := fmt.Sprintf("%s: its session ended; its shards of %s fail over", name, count.Of(l.jobs, "job"))
		c.add(Event{At: l.at.Time(), Kind: EventLeave, Instance: name, What: what})
	}
	for term, first := range c.leaders {
		c.add(Event{At: first.At.Time(), Kind: EventLeader, Instance: first.By, What: fmt.Sprintf("%s leads: the first decision on record of term %d", first.By, term)})
	}
	c.cut()
	return c.events
}

// eventCollector collects the latest events that a query selects.
type eventCollector struct {
	EventsQuery
	events  []Event
	leaders map[uint64]*record.Decision // the first decision of each term
	losses  map[string]loss             // by incarnation
}

// loss is the end of an owner's session, as decisions tell.
type loss struct {
	at   record.Instant // of the first failover
	jobs int
}

func (c *eventCollector) add(e Event) {
	isIn := !e.At.Before(c.Since) && (c.Until.IsZero() || !e.At.After(c.Until))
	if !isIn || c.Job != "" && e.Job != "" && e.Job != c.Job || c.Kind != "" && e.Kind != c.Kind {
		return
	}
	c.events = append(c.events, e)
	if c.Limit > 0 && len(c.events) >= 4*c.Limit { // ten thousand jobs have hundreds of thousands
		c.cut()
	}
}

// cut sorts the events and drops those beyond the limit.
func (c *eventCollector) cut() {
	slices.SortStableFunc(c.events, func(a, b Event) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Job, b.Job), cmp.Compare(a.What, b.What))
	})
	if c.Limit > 0 {
		c.events = c.events[:min(c.Limit, len(c.events))]
	}
}

func (c *eventCollector) addDecision(job string, d *record.Decision) {
	what := d.What
	if d.Again > 0 {
		what += fmt.Sprintf(" (and %s before)", count.Of(d.Again, "time"))
	}
	c.add(Event{At: d.At.Time(), Kind: EventDecision, Job: job, By: d.By, What: what})
	if c.leaders == nil {
		c.leaders, c.losses = map[uint64]*record.Decision{}, map[string]loss{}
	}
	for _, inc := range d.Lost {
		l := c.losses[inc]
		c.losses[inc] = loss{min(cmp.Or(l.at, d.At), d.At), l.jobs + 1}
	}
	if first := c.leaders[d.Term]; first == nil || d.At < first.At {
		c.leaders[d.Term] = d
	}
}

func (c *eventCollector) addActs(job string, acts record.Acts) {
	for i := range acts {
		a := actOf(&acts[i])
		c.add(Event{At: a.At, Kind: EventAct, Job: job, By: a.By, What: a.What, Reason: a.Reason})
	}
}
