package notify

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
)

// state is the state of a job for messages: one of the troubles, stateOK, or one of the others below.
type state string

const (
	stateOK      state = ""
	stateRemoved state = "removed" // it is retiring, or does not exist
	stateHeld    state = "held"    // it is not to run, or has no plan yet: its last state stays
)

// isTrouble reports whether a message about the state is bad news.
func (s state) isTrouble() bool { return s != stateOK && s != stateRemoved && s != stateHeld }

// observation is a job at an instant.
type observation struct {
	state state
	since time.Time // zero: not known
	text  string
	err   string
	fire  time.Time
}

// observe returns the observation of a job.
func observe(j *operator.JobSummary, now time.Time, lateAfter time.Duration) observation {
	v := view.JobOf(j, now, lateAfter)
	o := observation{text: v.Text}
	switch {
	case v.State == view.Retiring:
		return observation{state: stateRemoved}
	case j.Paused || j.Shards == 0 && j.Problem == "":
		return observation{state: stateHeld}
	case v.State == view.Late:
		o.state, o.since, o.fire, o.text = state(view.Late), j.Overdue, j.Overdue, strings.Replace(v.Text, "LATE", view.Late, 1)
	case v.State == view.Unowned:
		o.state, o.since, o.text = state(view.Unowned), j.UnofferedSince, fmt.Sprintf("%d of %d shards have no owner", j.Unowned, j.Shards)
	case v.State == view.Problem:
		o.state = state(view.Problem)
	case v.State == view.Failing:
		o.state, o.since, o.err, o.fire = state(view.Failing), j.LastFailure.At, j.LastFailure.Error, j.LastFailure.Fire
	default:
		o.since = j.Ended
	}
	return o
}

// rules are the settings of a decider.
type rules struct {
	after, quiet time.Duration
}

// decider decides for one receiver which changes to report. It keeps what no record has: states that have not lasted yet, and
// changes during a quiet time. It has no clock.
type decider struct {
	rules
	jobs map[string]*track
}

func newDecider(r rules) *decider { return &decider{rules: r, jobs: map[string]*track{}} }

// track is a job that is not ok, or was not lately.
type track struct {
	settled      state // that has lasted
	settledSince time.Time
	detail       observation // the latest in the settled state
	changes      int         // of settled since the last message
	counted      bool        // it is one of the rest, which are not reported one by one

	// A candidate is a state that has not lasted yet.
	pending         bool
	candidate       state
	since           time.Time // as Change.Since
	began, lastSeen time.Time // when it, or another trouble that it follows, was first observed, and last
	candidateDetail observation
}

// tracked returns the names of the jobs that decide needs to know about beside those that are not ok.
func (d *decider) tracked(r *record.Receiver) []string {
	names := slices.Collect(maps.Keys(d.jobs))
	for i := range r.Jobs {
		if d.jobs[r.Jobs[i].Job] == nil {
			names = append(names, r.Jobs[i].Job)
		}
	}
	return names
}

// decide returns the changes to report now, and the record after them. seen has each job that is not ok, and those of tracked. If hold is
// set, it reports nothing, since earlier messages are not delivered yet. The record that it returns shares nothing
// that is changed with r.
func (d *decider) decide(r *record.Receiver, seen map[string]observation, now time.Time, hold bool) (next record.Receiver, changes []Change, rest int) {
	known := make(map[string]*record.NotifiedJob, len(r.Jobs))
	size := 0
	for i := range r.Jobs {
		known[r.Jobs[i].Job] = &r.Jobs[i]
		size += len(r.Jobs[i].Job)
	}
	next = *r
	next.Jobs = nil
	places := len(known)
	for _, job := range slices.Sorted(maps.Keys(seen)) {
		o, was := seen[job], record.NotifiedJob{Job: job}
		if k := known[job]; k != nil {
			was = *k
			delete(known, job)
		} else if !o.state.isTrouble() && d.jobs[job] == nil {
			continue
		}
		t := d.jobs[job]
		if t == nil {
			t = &track{settled: state(was.State), settledSince: was.Since.Time()}
			d.jobs[job] = t
		}
		t.observe(o, now, d.after)
		is := was
		full := places >= record.MaxNotified || size+len(job) > record.MaxNotifiedBytes
		switch change, due := d.changeOf(t, &was, now); {
		case !due || hold:
		case was.At == 0 && t.settled.isTrouble() && full:
			t.counted = true
			rest++
		case was.At == 0 && !t.settled.isTrouble() && (full || t.counted):
			t.changes, t.counted = 0, false // its trouble was only counted, and is over
		default:
			if was.At == 0 {
				places, size = places+1, size+len(job)
			}
			t.counted = false
			changes = append(changes, change)
			is.State, is.Since = string(t.settled), record.InstantOf(t.settledSince)
			if change.Transition != Recovered || was.State == "" { // a recovery from a reported state begins no quiet time
				is.At = record.InstantOf(now)
			}
			t.changes = 0
		}
		switch quietOver := !now.Before(is.At.Time().Add(d.quiet)); {
		case t.settled == stateRemoved && (is.State == "" || is.State == string(stateRemoved)):
			delete(d.jobs, job)
			continue
		case is.State == "" && t.settled == stateOK && t.changes == 0 && !t.pending && quietOver:
			delete(d.jobs, job)
			continue
		case is.State == "" && is.At == 0:
			continue // never reported
		}
		next.Jobs = append(next.Jobs, is)
	}
	for _, job := range slices.Sorted(maps.Keys(known)) { // the receiver is no longer one of the job's
		delete(d.jobs, job)
	}
	switch {
	case hold:
	case rest == 0 || len(changes) > 0 || r.Rest == 0:
		next.Rest = rest
	}
	return next, changes, rest
}

// changeOf returns the change of a job since the last message, and whether to report it now.
func (d *decider) changeOf(t *track, was *record.NotifiedJob, now time.Time) (c Change, due bool) {
	if t.changes == 0 && t.settled == state(was.State) || t.settled == stateRemoved && was.State == "" {
		return Change{}, false
	}
	end := was.At.Time().Add(d.quiet)
	recovered := !t.settled.isTrouble() && was.State != ""
	if was.At != 0 && now.Before(end) && !recovered {
		return Change{}, false
	}
	c = Change{
		Job: was.Job, Transition: Transition(t.settled), Before: Transition(was.State), Since: t.settledSince.UTC(), Changes: max(1, t.changes),
		State: t.detail.text, Error: t.detail.err, Fire: t.detail.fire,
	}
	switch t.settled {
	case stateOK:
		c.Transition, c.State, c.Error, c.Fire = Recovered, "", "", time.Time{}
	case stateRemoved:
		c.Transition, c.State = Removed, ""
	}
	return c, true
}

// observe adds an observation. A state settles once it has lasted for a time. Trouble lasts as well if the job is ok
// in between for less than that time: a job of which every second run fails is failing.
func (t *track) observe(o observation, now time.Time, after time.Duration) {
	switch {
	case o.state == stateHeld:
		t.pending = false
		return
	case o.state == t.settled:
		t.detail = o
		if t.pending && (!t.candidate.isTrouble() || now.Sub(t.lastSeen) >= after) {
			t.pending = false
		}
		return
	}
	if !t.pending || t.candidate != o.state {
		began := now
		if t.pending && t.candidate.isTrouble() && o.state.isTrouble() {
			began = t.began
		}
		t.pending, t.candidate, t.began = true, o.state, began
		if t.since = o.since; t.since.IsZero() || !o.state.isTrouble() && t.since.Before(t.settledSince) {
			t.since = now
		}
	}
	t.lastSeen, t.candidateDetail = now, o
	if now.Sub(t.began) < after {
		return
	}
	t.settled, t.settledSince, t.detail, t.pending = t.candidate, t.since, t.candidateDetail, false
	t.changes++
}
