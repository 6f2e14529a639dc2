package executor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/rota-dev/rota/executor/internal/pool"
	"github.com/rota-dev/rota/internal/jobname"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/scheduletext"
)

// replacement is a job that is registered again with another definition.
type replacement struct {
	job         string
	differences []string
}

// replacedLocked returns those of jobs that replace another definition and are not an update,
// which has a higher Revision and comes while the executor runs. The caller holds e.mu.
func (e *Executor) replacedLocked(jobs []Job) []replacement {
	var all []replacement
	for _, j := range jobs {
		old, registered := e.jobs[j.Name]
		update := e.state == started && registered && j.Revision > old.Revision
		if !registered || e.withdrawn[j.Name] || update {
			continue
		}
		if d := differences(*old, j); len(d) > 0 {
			all = append(all, replacement{j.Name, d})
		}
	}
	return all
}

// differences describes how the definition of a job differs from an earlier one.
func differences(before, now Job) []string {
	first, _ := definitionOf(before).MarshalJSON() // both have been checked
	second, _ := definitionOf(now).MarshalJSON()
	all := record.Differences(first, "before", second, "now")
	if before.Revision != now.Revision {
		all = append(all, fmt.Sprintf("revision: %d before, %d now", before.Revision, now.Revision))
	}
	return all
}

// Register adds jobs, or replaces those of the same name. It may be called before and after
// Start. If any job is invalid, Register returns all problems of all jobs, joined, each
// wrapping ErrInvalidJob, and registers none. It copies the jobs: a later change of a map in one
// has no effect.
//
// Definitions are stored for the whole fleet, and the one with the highest Revision is in
// force. So a changed definition needs a higher Revision; otherwise it is not stored, and
// logged at WARN. Handler, Middleware and MaxRunning are not stored: they belong to this process
// and apply to runs that begin after the call.
//
// Register logs a job that replaces another definition of its name, since two jobs may have
// the same name by mistake. It does not if the earlier one was withdrawn, or if the executor
// is running and the Revision is higher. After Shutdown, Register returns an error.
func (e *Executor) Register(jobs ...Job) error {
	if err := checkAll(ErrInvalidJob, jobs, e.knownStrategy); err != nil {
		return err
	}
	handlers, err := wrapAll(e, ErrInvalidJob, jobs)
	if err != nil {
		return err
	}
	defs, locals := make(map[string]json.RawMessage, len(jobs)), map[string]string{}
	for _, j := range jobs {
		def, err := definitionOf(j).MarshalJSON()
		if err != nil {
			return fmt.Errorf("%w %q: %w", ErrInvalidJob, j.Name, err)
		}
		defs[j.Name] = def
		if j.Local != "" {
			locals[j.Name] = j.Local
		}
	}
	e.mu.Lock()
	if e.state == shutDown {
		e.mu.Unlock()
		return errors.New("register: this executor has been shut down; New makes another")
	}
	if err := e.checkCirclesLocked(jobs); err != nil {
		e.mu.Unlock()
		return err
	}
	again := e.replacedLocked(jobs)
	for i, j := range jobs {
		own := j.clone()
		own.Handler = handlers[i]
		e.jobs[j.Name] = &own
		for _, name := range own.Schedule.After() {
			e.followed[name] = true
		}
		delete(e.withdrawn, j.Name)
		e.pool.SetBound(pool.Lane{Name: j.Name}, cmp.Or(j.MaxRunning, defaultMaxRunning()))
	}
	e.mu.Unlock()
	for _, r := range again {
		e.log.Warn("job registered again; the newer definition replaces the earlier one", "job", r.job, "differences", r.differences)
	}
	e.member.OfferLocal(defs, locals)
	return nil
}

func (e *Executor) knownStrategy(name string) bool {
	_, ok := e.strategies[name]
	return ok
}

// registration is a job or a kind, as it is registered.
type registration interface {
	// problems returns the rules that it breaks. knows reports whether a strategy exists.
	problems(knows func(strategy string) bool) []problem
	own() (name string, middleware []Middleware, h Handler)
}

// checkAll returns all problems of jobs or kinds, joined, or nil. Each error wraps invalid and names the job or kind, the field
// and the rule.
func checkAll[T registration](invalid error, all []T, knows func(strategy string) bool) error {
	var errs []error
	seen := make(map[string]bool, len(all))
	for _, r := range all {
		name, _, _ := r.own()
		for _, p := range r.problems(knows) {
			errs = append(errs, fmt.Errorf("%w %.100q: %w", invalid, name, p))
		}
		if seen[name] {
			errs = append(errs, fmt.Errorf("%w %.100q: Name: given twice in one call", invalid, name))
		}
		seen[name] = true
	}
	return errors.Join(errs...)
}

func (j Job) problems(knows func(strategy string) bool) []problem {
	d := definitionOf(j)
	all := problems(d.problems())
	if jobname.Check(d.Name) == nil {
		all.report("Name", jobname.CheckNew(d.Name))
	}
	all = append(all, checkHandler(j.Handler)...)
	all.report("Middleware", checkMiddleware(j.Middleware))
	all.report("MaxRunning", checkNotNegative(j.MaxRunning))
	all.report("Local", record.CheckText(j.Local, maxLocalBytes))
	if !knows(d.Strategy) {
		all.report("Strategy", errUnknownStrategy(d.Strategy))
	}
	return all
}

func (j Job) own() (name string, middleware []Middleware, h Handler) {
	return j.Name, j.Middleware, j.Handler
}

func errUnknownStrategy(name string) error {
	return fmt.Errorf("%.100q is neither built in nor in Options.Strategies", name)
}

// checkCirclesLocked reports jobs that, with those registered before, follow each other in a circle. A circle leads
// to an added job, so there is no search from jobs that none follows: a chain of jobs that are registered one by one
// would be searched as a whole each time. The caller holds e.mu.
func (e *Executor) checkCirclesLocked(jobs []Job) error {
	added, followedNow := make(map[string]*Job, len(jobs)), map[string]bool{}
	for i := range jobs {
		added[jobs[i].Name] = &jobs[i]
		for _, name := range jobs[i].Schedule.After() {
			followedNow[name] = true
		}
	}
	followed := func(name string) []string {
		j, ok := added[name]
		if !ok && !e.withdrawn[name] {
			j = e.jobs[name]
		}
		if j == nil {
			return nil
		}
		return j.Schedule.After()
	}
	circles := scheduletext.NewCircles(followed)
	for _, j := range jobs {
		if !followedNow[j.Name] && !e.followed[j.Name] {
			continue
		}
		if circle := circles.Through(j.Name); circle != nil {
			return fmt.Errorf("%w %q: Schedule: it follows itself: %s", ErrInvalidJob, j.Name, strings.Join(append(circle, j.Name), " follows "))
		}
	}
	return nil
}

// wrapAll returns the handlers of jobs or kinds within the middleware of each, and all that within the middleware of the
// executor. Its errors wrap invalid.
func wrapAll[T registration](e *Executor, invalid error, all []T) ([]Handler, error) {
	handlers := make([]Handler, len(all))
	var errs []error
	for i, r := range all {
		name, middleware, inner := r.own()
		var p *problem
		if handlers[i], p = e.wrapHandler(middleware, inner); p != nil {
			errs = append(errs, fmt.Errorf("%w %.100q: %w", invalid, name, p))
		}
	}
	return handlers, errors.Join(errs...)
}

// wrapHandler returns a handler within the middleware of its job or kind, and all that within the middleware of the executor. If
// the handler is that of Together, the result is a batchedHandler.
func (e *Executor) wrapHandler(own []Middleware, inner Handler) (Handler, *problem) {
	h, err := applyMiddleware(own, inner)
	if err != nil {
		return nil, &problem{"Middleware", err}
	}
	if h, err = applyMiddleware(e.opts.Middleware, h); err != nil {
		return nil, &problem{"Options.Middleware", err}
	}
	if _, ok := inner.(together); ok {
		h = batchedHandler{h}
	}
	return h, nil
}

// Withdraw makes this process stop offering jobs until they are registered here again. It
// deletes nothing, and other processes still offer the jobs: [operator.Operator.Retire]
// removes them from the fleet. Withdraw returns when the store has recorded the withdrawal, in
// one write for all jobs; the shards are reassigned afterwards. Runs that have begun here
// continue, with their contexts, and their shards move when they end.
//
// If no other instance offers a job, it does not run. After an hour without an instance
// (coordinator.MaxUnoffered), its due fires are skipped.
//
// If ctx ends first, Withdraw returns its cause, and the withdrawal is recorded later. Before
// Start and after Shutdown there is nothing to record, and Withdraw returns at once. It fails
// with ErrUnknownJob if a job was not registered here; the error names each such job, and the
// others are withdrawn.
func (e *Executor) Withdraw(ctx context.Context, jobs ...string) error {
	return withdraw(ctx, e, "withdraw", jobs, e.jobs, e.withdrawn, ErrUnknownJob, e.member.Withdraw)
}

// withdraw notes that jobs or kinds are withdrawn, and has the member withdraw those that are registered. Others fail with
// unknown. what begins the errors.
func withdraw[T any](
	ctx context.Context, e *Executor, what string, names []string, registered map[string]T, withdrawn map[string]bool, unknown error, stopOffers func(...string),
) error {
	var known []string
	var errs []error
	e.mu.Lock()
	running := e.state == started
	for _, name := range names {
		if _, ok := registered[name]; !ok {
			errs = append(errs, fmt.Errorf("%s %q: %w", what, name, unknown))
			continue
		}
		withdrawn[name] = true
		known = append(known, name)
	}
	e.mu.Unlock()
	if len(known) == 0 {
		return errors.Join(errs...)
	}
	stopOffers(known...)
	if running {
		if err := e.member.AwaitJoined(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s %q: %w", what, known, err))
		}
	}
	return errors.Join(errs...)
}
