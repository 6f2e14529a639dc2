package notify

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/mutex"
	"github.com/rota-dev/rota/operator"
)

const (
	// roundEvery is how often jobs are judged. A round looks at those that have changed, and those that are not ok.
	roundEvery = 2 * time.Second
	// retryPause is the pause after an error of the store.
	retryPause = 5 * time.Second
	// openTimeout bounds the first reading of a group.
	openTimeout = 30 * time.Second
)

// watcher is the state of the jobs of a group, for those runners of a process that send. It watches the group only while there are any.
type watcher struct {
	operator  *operator.Operator
	lateAfter time.Duration
	log       *slog.Logger

	mu      mutex.Mutex
	users   int
	stop    context.CancelFunc
	stopped chan struct{}
	ready   bool
	judged  time.Time                       // when the last round was
	jobs    map[string]*operator.JobSummary // all, by name
	notOK   map[string]observation          // those that are not ok, as of the last round
	due     map[string]bool                 // jobs with a due fire, which may become late without a change of a record
}

// acquire has the group watched until release is called.
func (w *watcher) acquire() (release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.users++; w.users == 1 {
		ctx, cancel := context.WithCancel(context.Background())
		before, stopped := w.stopped, make(chan struct{})
		w.stop, w.stopped = cancel, stopped
		w.ready = false
		go func() {
			defer close(stopped)
			if before != nil {
				<-before
			}
			w.run(ctx)
		}()
	}
	return w.release
}

func (w *watcher) release() {
	w.mu.Lock()
	w.users--
	last, stopped := w.users == 0, w.stopped
	if last {
		w.stop()
		w.ready = false
	}
	w.mu.Unlock()
	if last {
		<-stopped
	}
}

// run watches the group until ctx ends.
func (w *watcher) run(ctx context.Context) {
	limit := limiter{}
	for ctx.Err() == nil {
		err := w.watch(ctx)
		w.mu.Lock()
		w.ready = false
		w.mu.Unlock()
		if ctx.Err() == nil && limit.allow(time.Now()) {
			w.log.Warn("cannot watch the group for messages; trying again", "error", err)
		}
		pause(ctx, retryPause)
	}
}

// watch watches the group until ctx ends or the view does.
func (w *watcher) watch(ctx context.Context) error {
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	v, err := w.operator.Watch(opening)
	if err != nil {
		return err
	}
	defer v.Close()
	ticks := time.NewTicker(roundEvery)
	defer ticks.Stop()
	for first := true; ; first = false {
		if err := v.Err(); err != nil {
			return err
		}
		w.judge(v, first)
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// judge makes a round.
func (w *watcher) judge(v *operator.GroupView, first bool) {
	st, removed := v.Changes()
	w.mu.Lock()
	defer w.mu.Unlock()
	if first {
		w.jobs, w.notOK, w.due = map[string]*operator.JobSummary{}, map[string]observation{}, map[string]bool{}
	}
	for _, job := range removed {
		delete(w.jobs, job)
		delete(w.notOK, job)
		delete(w.due, job)
	}
	for _, j := range st.Jobs {
		w.jobs[j.Job] = &j
		w.due[j.Job] = true
	}
	for _, job := range slices.Collect(maps.Keys(w.due)) { // judgeJob changes the map
		w.judgeJob(w.jobs[job], st.At)
	}
	w.judged = time.Now()
	w.ready = true
}

// judgeJob updates the observation of a job. w.mu is held.
func (w *watcher) judgeJob(j *operator.JobSummary, now time.Time) {
	delete(w.due, j.Job)
	if !j.Overdue.IsZero() {
		w.due[j.Job] = true
	}
	delete(w.notOK, j.Job)
	if o := observe(j, now, w.lateAfter); o.state != stateOK {
		w.notOK[j.Job] = o
	}
}

// read returns the observations of the jobs that are not ok, and those of tracked, as far as wants accepts them. ok is false
// while the group is not known. They are of the instant judged.
func (w *watcher) read(tracked []string, wants func(job string) bool) (seen map[string]observation, judged time.Time, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ready {
		return nil, time.Time{}, false
	}
	seen = map[string]observation{}
	for job, o := range w.notOK {
		if wants(job) {
			seen[job] = o
		}
	}
	for _, job := range tracked {
		if _, found := seen[job]; found || !wants(job) {
			continue
		}
		if j := w.jobs[job]; j != nil {
			seen[job] = observe(j, w.judged, w.lateAfter)
		} else {
			seen[job] = observation{state: stateRemoved}
		}
	}
	return seen, w.judged, true
}
