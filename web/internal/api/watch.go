package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/web/internal/role"
	"github.com/rota-dev/rota/web/internal/sse"
)

// Bounds of streams.
const (
	maxStreams = 64
	maxWaiting = 16              // changes that a stream has not written; beyond them, it is dropped
	lookEvery  = time.Second     // at most
	lookAnyway = 5 * time.Second // fires come due, and jobs late, without a change of a record
)

// jobChange is a job that has changed, or was removed if event is "removed", as the data of an event.
type jobChange struct {
	job, event          string
	revealed, concealed []byte
}

// hub compares two states of the group, for all streams at once.
type hub struct {
	snapshot func(context.Context) (operator.GroupStatus, error)
	changed  func() <-chan struct{}

	mu      sync.Mutex
	streams map[chan []jobChange]bool
	stop    context.CancelFunc // ends run; nil: it does not run
}

func newHub(snapshot func(context.Context) (operator.GroupStatus, error), changed func() <-chan struct{}) *hub {
	return &hub{snapshot: snapshot, changed: changed, streams: map[chan []jobChange]bool{}}
}

// open returns a stream of the changes from now on, which is closed if its reader is too slow. The first stream starts the
// comparison.
func (h *hub) open(ctx context.Context) (chan []jobChange, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.streams) >= maxStreams {
		return nil, problemOf(tooManyStreams, fmt.Sprintf("there are %d", maxStreams))
	}
	if h.stop == nil {
		st, err := h.snapshot(ctx)
		if err != nil {
			return nil, err
		}
		run, stop := context.WithCancel(context.WithoutCancel(ctx))
		h.stop = stop
		c := &comparison{jobs: st.Jobs}
		c.update(st) // for the states
		go h.run(run, c)
	}
	stream := make(chan []jobChange, maxWaiting)
	h.streams[stream] = true
	return stream, nil
}

// close ends a stream. The last one ends the comparison.
func (h *hub) close(stream chan []jobChange) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remove(stream)
}

// remove removes a stream, unless it was dropped. h.mu is held.
func (h *hub) remove(stream chan []jobChange) {
	if !h.streams[stream] {
		return
	}
	delete(h.streams, stream)
	close(stream)
	if len(h.streams) == 0 {
		h.stop()
		h.stop = nil
	}
}

// run compares the group with last, until ctx ends.
func (h *hub) run(ctx context.Context, last *comparison) {
	for {
		var changed <-chan struct{}
		if h.changed != nil {
			changed = h.changed()
		}
		if st, err := h.snapshot(ctx); err == nil { // without an answer, the next one has the changes
			h.publish(ctx, last.update(st))
		}
		if !wait(ctx, lookEvery, nil) || !wait(ctx, lookAnyway-lookEvery, changed) {
			return
		}
	}
}

// wait waits for a while, at most until early is closed. It returns false if ctx ends.
func wait(ctx context.Context, d time.Duration, early <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
	case <-early:
	}
	return true
}

// comparison finds the jobs that have changed. Of 10,000 jobs, few do, so only those are described.
type comparison struct {
	jobs   []operator.JobSummary // sorted by name
	states map[string][]string   // of jobs with a due fire: they become late although no record changes
}

// update returns the changes since the last call.
func (c *comparison) update(st operator.GroupStatus) (changes []jobChange) {
	var differ []operator.JobSummary
	isNew := map[string]bool{}
	old := c.jobs
	removed := func(until string) {
		for ; len(old) > 0 && (until == "" || old[0].Job < until); old = old[1:] {
			line := lineOf(removedJob{old[0].Job})
			changes = append(changes, jobChange{old[0].Job, "removed", line, line})
		}
	}
	for i := range st.Jobs {
		j := &st.Jobs[i]
		removed(j.Job)
		same := len(old) > 0 && old[0].Job == j.Job && sameSummary(&old[0], j)
		if len(old) > 0 && old[0].Job == j.Job {
			old = old[1:]
		}
		if !same || !j.Overdue.IsZero() {
			differ = append(differ, *j)
			isNew[j.Job] = !same
		}
	}
	removed("")
	c.jobs = st.Jobs
	before := c.states
	c.states = map[string][]string{}
	st.Jobs = differ
	for _, j := range view.JobsOf(st, view.JobsFilter{}).Jobs {
		if !j.Overdue.IsZero() {
			c.states[j.Job] = j.States
		}
		if isNew[j.Job] || !slices.Equal(before[j.Job], j.States) {
			changes = append(changes, jobChange{j.Job, "job", lineOf(j), lineOf(view.Conceal(j))})
		}
	}
	return changes
}

// sameSummary reports whether two summaries of a job are equal. It takes a hundredth of the time of reflect.DeepEqual.
func sameSummary(a, b *operator.JobSummary) bool {
	return a.Job == b.Job && a.Revision == b.Revision && a.Schedule == b.Schedule && a.NextFire.Equal(b.NextFire) && a.Overdue.Equal(b.Overdue) && a.AwaitedPool == b.AwaitedPool &&
		a.LastFire.Equal(b.LastFire) && a.ClaimedTo.Equal(b.ClaimedTo) && a.Shards == b.Shards && a.Running == b.Running &&
		a.Unowned == b.Unowned && a.Frozen == b.Frozen && a.Disabled == b.Disabled && a.Expired == b.Expired &&
		slices.Equal(a.ExpiredOwners, b.ExpiredOwners) && a.Reruns == b.Reruns && a.Triggers == b.Triggers && slices.Equal(a.Failing, b.Failing) &&
		slices.Equal(a.LocalDiffers, b.LocalDiffers) && slices.Equal(a.Differs, b.Differs) &&
		(a.LastFailure.At.IsZero() && b.LastFailure.At.IsZero() || reflect.DeepEqual(a.LastFailure, b.LastFailure)) &&
		a.Paused == b.Paused && a.ScheduleStopped == b.ScheduleStopped && a.GroupPaused == b.GroupPaused && a.Until.Equal(b.Until) &&
		a.HeldBy == b.HeldBy && a.RetiredBy == b.RetiredBy && a.UnofferedSince.Equal(b.UnofferedSince) && a.Problem == b.Problem &&
		a.Counts == b.Counts && a.Ended.Equal(b.Ended)
}

// removedJob is the data of an event for a job that was removed.
type removedJob struct {
	Job string `json:"name"`
}

// lineOf returns the JSON of a view in one line.
func lineOf(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(view.FillLists(v)) // a view has a JSON form
	return bytes.TrimSpace(b.Bytes())
}

// publish sends changes to all streams, and drops those that are behind. Nothing is sent once ctx has ended: the streams are those
// of a later run.
func (h *hub) publish(ctx context.Context, changes []jobChange) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil || len(changes) == 0 {
		return
	}
	for stream := range h.streams {
		select {
		case stream <- changes:
		default:
			h.remove(stream)
		}
	}
}

type watchQuery struct {
	Glob glob `query:"glob" doc:"a pattern for the names of jobs"`
}

// serveWatch streams the jobs that change: an event ready, then job and removed.
func serveWatch(c *call, w http.ResponseWriter) error {
	var q watchQuery
	if err := parseQuery(c.r.URL.RawQuery, &q); err != nil {
		return err
	}
	ctx, cancel := contextWith(c.r.Context(), lookTimeout)
	stream, err := c.hub.open(ctx)
	cancel()
	if err != nil {
		return err
	}
	defer c.hub.close(stream)
	out := sse.New(w)
	if c.r.Method == http.MethodHead || !out.Send([]byte("retry: 2000\nevent: ready\ndata: {}\n\n")) {
		return nil
	}
	ping := time.NewTicker(sse.PingEvery)
	defer ping.Stop()
	for {
		select {
		case <-c.r.Context().Done():
			return nil
		case <-c.Done:
			return nil
		case <-ping.C:
			if _, err := c.Authorize(c.r, role.Look); err != nil || !out.Ping() { // a login may have expired
				return nil
			}
		case changes, ok := <-stream:
			if !ok || !out.Send(c.eventsOf(changes, string(q.Glob))) {
				return nil
			}
		}
	}
}

// eventsOf returns the events of the changes that a pattern selects.
func (c *call) eventsOf(changes []jobChange, pattern string) []byte {
	var b bytes.Buffer
	for _, change := range changes {
		if matched, _ := path.Match(pattern, change.job); pattern != "" && !matched {
			continue
		}
		data := change.concealed
		if c.mayRead {
			data = change.revealed
		}
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", change.event, data)
	}
	return b.Bytes()
}
