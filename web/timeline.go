package web

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
)

const (
	// eventsOnPage is how many events a page of the timeline has.
	eventsOnPage = 200
	// eventsKept bounds the events that the console has observed itself.
	eventsKept = 1000
	// leaveKnownWithin is the time between the end of a session and the failover, by which they are the same event.
	leaveKnownWithin = time.Minute
)

// eventKinds are the kinds of events, as the form of the timeline lists them.
var eventKinds = []operator.EventKind{operator.EventDecision, operator.EventAct, operator.EventLeader, operator.EventJoin, operator.EventLeave}

// timelineBody is the page of what happened in the group.
type timelineBody struct {
	Stale         string
	Job, From, To string
	Kind          operator.EventKind
	Kinds         []operator.EventKind
	Sections      []section
	Older         string // the address of earlier events
	Observed      string // since when the console observes the group
}

func (c *Console) showTimeline(w http.ResponseWriter, r *request) error {
	_, stale, err := c.readGroup(r)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	b := timelineBody{
		Stale: stale, Job: query.Get("job"), From: query.Get("from"), To: query.Get("to"), Kind: operator.EventKind(query.Get("kind")), Kinds: eventKinds,
	}
	if b.Kind != "" && !slices.Contains(eventKinds, b.Kind) {
		return problemf(http.StatusBadRequest, "There is no kind of events %q.", b.Kind)
	}
	q := operator.EventsQuery{Job: b.Job, Kind: b.Kind, Limit: eventsOnPage + 1}
	if q.Since, err = c.instantOf(r, "from"); err != nil {
		return err
	}
	if q.Until, err = c.instantOf(r, "to"); err != nil {
		return err
	}
	events := c.events(q)
	if len(events) > eventsOnPage {
		events = events[:eventsOnPage]
		older := keep(query, "job", "kind", "from", "zone")
		older.Set("to", events[eventsOnPage-1].At.UTC().Format(time.RFC3339Nano))
		b.Older = "?" + older.Encode()
	}
	if begun := c.chronicle.since(); !begun.IsZero() {
		b.Observed = c.times(r).At(begun)
	}
	times := c.times(r)
	times.Mode = "local" // a clock time is what the question names
	b.Sections = screenOf(view.Events{Events: events}.Screen, times, linkColumns(""))
	c.render(w, r, http.StatusOK, "timeline", page{Title: "Timeline", Group: c.group(), Body: b})
	return nil
}

// events returns the events on record and those that the console has observed, the latest first.
func (c *Console) events(q operator.EventsQuery) []operator.Event {
	known := c.feed.events(q)
	for _, e := range c.chronicle.list() {
		isIn := !e.At.Before(q.Since) && (q.Until.IsZero() || !e.At.After(q.Until)) && (q.Kind == "" || e.Kind == q.Kind)
		isKnown := slices.ContainsFunc(known, func(k operator.Event) bool { return isSameEvent(k, e) })
		if isIn && !isKnown {
			known = append(known, e)
		}
	}
	slices.SortStableFunc(known, func(a, b operator.Event) int { return b.At.Compare(a.At) })
	return known
}

// isSameEvent reports whether an event that the console has observed is one on record.
func isSameEvent(known, observed operator.Event) bool {
	if known.Kind != observed.Kind || known.Instance != observed.Instance {
		return false
	}
	if known.Kind == operator.EventLeave {
		return known.At.Sub(observed.At).Abs() < leaveKnownWithin
	}
	return known.At.Equal(observed.At)
}

// chronicle keeps what the console observes of the group and the records do not keep: instances that leave in order, joins of those that have left
// since, and a leader that has decided nothing.
type chronicle struct {
	mu      sync.Mutex
	begun   time.Time
	events  []operator.Event
	leader  operator.LeaderStatus
	members map[string]operator.InstanceStatus // live ones, by incarnation
}

// observe compares a snapshot with the last one.
func (c *chronicle) observe(st operator.GroupStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	isFirst := c.members == nil
	if isFirst {
		c.begun = st.At
	}
	live := map[string]operator.InstanceStatus{}
	for i := range st.Instances {
		if m := st.Instances[i]; m.Alive {
			live[m.Incarnation] = m
			if _, known := c.members[m.Incarnation]; !known && !m.Started.IsZero() {
				c.add(operator.Event{At: m.Started, Kind: operator.EventJoin, Instance: m.Instance, What: m.Instance + " joined"})
			}
		}
	}
	for incarnation, m := range c.members {
		if _, there := live[incarnation]; !there {
			what := m.Instance + ": its session ended"
			if m.Draining {
				what = m.Instance + " left"
			}
			c.add(operator.Event{At: st.At, Kind: operator.EventLeave, Instance: m.Instance, What: what})
		}
	}
	if st.Leader != c.leader && !isFirst {
		what := fmt.Sprintf("%s leads, in term %d", st.Leader.Instance, st.Leader.Term)
		if st.Leader.Instance == "" {
			what = "the group has no leader"
		}
		c.add(operator.Event{At: st.At, Kind: operator.EventLeader, Instance: cmp.Or(st.Leader.Instance, "-"), What: what})
	}
	c.members, c.leader = live, st.Leader
}

// add adds an event. The mutex is held.
func (c *chronicle) add(e operator.Event) {
	c.events = append(c.events, e)
	if more := len(c.events) - eventsKept; more > 0 {
		c.events = slices.Delete(c.events, 0, more)
	}
}

func (c *chronicle) list() []operator.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.events)
}

// since returns when the console began to observe, zero if it has not.
func (c *chronicle) since() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun
}
