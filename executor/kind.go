package executor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/rota-dev/rota/executor/internal/pool"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/schedule"
)

// Kind is code for jobs that are defined as data: what their runs do, with defaults and bounds. A defined job names its kind,
// and has its own schedule and parameters. It is a record in the store, so it exists without any process that knows its
// name. The instances that have registered the kind own its shards. Only Name and Handler are required. RegisterKind copies
// the kind.
//
// A process keeps nothing of a defined job of which it owns no shard, and little of one of which it does. Metrics have one
// series for a kind, not one for each of its jobs.
type Kind struct {
	// Name identifies the kind in its namespace. It has 1 to 64 bytes, without a slash or control character, and does not
	// begin with a tilde. A kind and a job may have one name.
	Name string
	// Description is for people. It has up to 1000 bytes.
	Description string
	// Handler runs one shard of a job of the kind for one fire; Run.Job, Run.Param and Run.ShardParam distinguish the jobs. It
	// is not stored.
	Handler Handler
	// Middleware wraps the Handler; the first entry is the outermost. Options.Middleware is outside of it. It is not
	// stored. Nil means none.
	Middleware []Middleware
	// MaxRunning bounds the concurrent runs of all jobs of the kind together in this process. Further claimed runs wait for a
	// worker, in the order of their fires, whichever job they are of. Zero means 4 per CPU (GOMAXPROCS), and at least 16. It
	// is not stored.
	MaxRunning int
	// Revision is the number of this version of the kind. The record of the highest revision stays in the store: Description,
	// MaxJobs and Defaults. Instances with a lower one remain candidates for the shards of the kind's jobs, unless a job
	// demands a higher one, as one may that needs a new Handler.
	Revision int
	// MaxJobs bounds how many jobs of the kind may be defined. Zero means 100,000, which bounds the defined jobs of a group
	// as well.
	MaxJobs int
	// Defaults are the fields of definitions of the kind that do not set them: Shards, ShardParams, Param, Strategy, RunOn, Pool,
	// Timeout, OnCrash, OnMisfire, OnOverlap, CatchupWindow, Tracking, MaxAttempts and Retry. Its other fields must be zero.
	//
	// They are stored with the kind, and become part of a job's definition when the job is defined, so that all
	// instances run a fire by one definition. A change of them applies to the jobs that are defined after it.
	Defaults Job
}

// clone returns a copy of k that shares nothing a caller could change.
func (k Kind) clone() Kind {
	k.Middleware, k.Defaults = slices.Clone(k.Middleware), k.Defaults.clone()
	return k
}

// RegisterKind adds kinds, or replaces those of the same name, for all their jobs, those that are defined later included. It
// may be called before and after Start. If any kind is invalid, RegisterKind returns all problems of all kinds, joined,
// each wrapping ErrInvalidKind, and registers none. It copies the kinds.
//
// The store keeps the record of the highest Revision. So a changed Description, MaxJobs or Defaults needs a higher
// Revision; otherwise it is not stored, and a change of Defaults is logged at WARN. Handler, Middleware and MaxRunning
// belong to this process and apply to runs that begin after the call. Each Middleware is called once for each kind, so the
// returned handler serves all runs of all its jobs in this process.
//
// RegisterKind logs a kind that replaces another one of its name, unless the earlier one was withdrawn, or the Revision is
// higher. After Shutdown it returns an error.
func (e *Executor) RegisterKind(kinds ...Kind) error {
	if err := checkAll(ErrInvalidKind, kinds, e.knownStrategy); err != nil {
		return err
	}
	handlers, err := wrapAll(e, ErrInvalidKind, kinds)
	if err != nil {
		return err
	}
	records := make([]record.Kind, len(kinds))
	for i, k := range kinds {
		if records[i], err = k.record(); err != nil {
			return fmt.Errorf("%w %q: %w", ErrInvalidKind, k.Name, err)
		}
	}
	e.mu.Lock()
	if e.state == shutDown {
		e.mu.Unlock()
		return errors.New("register kinds: this executor has been shut down; New makes another")
	}
	var again []string
	for i, k := range kinds {
		if old, registered := e.kinds[k.Name]; registered && !e.withdrawnKinds[k.Name] && k.Revision <= old.Revision {
			again = append(again, k.Name)
		}
		own := k.clone()
		own.Handler = handlers[i]
		e.kinds[k.Name] = &own
		delete(e.withdrawnKinds, k.Name)
		e.pool.SetBound(pool.Lane{Name: k.Name, IsKind: true}, cmp.Or(k.MaxRunning, defaultMaxRunning()))
	}
	e.mu.Unlock()
	for _, name := range again {
		e.log.Warn("kind registered again; the newer one replaces the earlier one", "kind", name)
	}
	e.member.OfferKinds(records...)
	return nil
}

// WithdrawKind makes this process stop offering the jobs of kinds until the kinds are registered here again. It deletes
// nothing: other instances with the kinds own the shards then. WithdrawKind returns when the store has recorded the
// withdrawal, in one write for all kinds; the shards are reassigned afterwards. Runs that have begun here continue, with
// their contexts, and their shards move when they end.
//
// If ctx ends first, WithdrawKind returns its cause, and the withdrawal is recorded later. Before Start and after Shutdown
// there is nothing to record, and it returns at once. It fails with ErrUnknownKind if a kind was not registered here; the
// error names each such kind, and the others are withdrawn.
func (e *Executor) WithdrawKind(ctx context.Context, kinds ...string) error {
	return withdraw(ctx, e, "withdraw kind", kinds, e.kinds, e.withdrawnKinds, ErrUnknownKind, e.member.WithdrawKinds)
}

func (k Kind) problems(knows func(strategy string) bool) []problem {
	var all problems
	all.report("Name", record.CheckKindName(k.Name))
	all.report("Description", record.CheckText(k.Description, maxDescriptionBytes))
	all = append(all, checkHandler(k.Handler)...)
	all.report("Middleware", checkMiddleware(k.Middleware))
	all.report("MaxRunning", checkNotNegative(k.MaxRunning))
	all.report("Revision", checkRevision(k.Revision))
	all.report("MaxJobs", checkNotNegative(k.MaxJobs))
	for _, p := range k.defaultsProblems(knows) {
		all.report("Defaults."+p.field, p.err)
	}
	return all
}

func (k Kind) own() (name string, middleware []Middleware, h Handler) {
	return k.Name, k.Middleware, k.Handler
}

// defaultsProblems returns the rules that the defaults break.
func (k Kind) defaultsProblems(knows func(strategy string) bool) []problem {
	j := k.Defaults
	var all []problem
	for _, f := range []struct {
		name string
		set  bool
		why  string
	}{
		{"Name", j.Name != "", "each job has its own"},
		{"Description", j.Description != "", "each job has its own, and Kind.Description is that of the kind"},
		{"Schedule", j.Schedule != schedule.Schedule{}, "each job has its own"},
		{"Handler", j.Handler != nil, "it is Kind.Handler"},
		{"Middleware", len(j.Middleware) > 0, "it is Kind.Middleware"},
		{"Revision", j.Revision != 0, "the store counts the revisions of a defined job"},
		{"StartPaused", j.StartPaused, "it is no policy"},
		{"MaxRunning", j.MaxRunning != 0, "it is Kind.MaxRunning"},
		{"Local", j.Local != "", "it is of registered jobs only"},
	} {
		if f.set {
			all = append(all, problem{f.name, fmt.Errorf("must not be set: %s", f.why)})
		}
	}
	d := k.defaultDefinition()
	all = append(all, d.problems()...)
	if !knows(d.Strategy) {
		all = append(all, problem{"Strategy", errUnknownStrategy(d.Strategy)})
	}
	return all
}

// defaultDefinition returns the definition of a job that has the defaults alone.
func (k Kind) defaultDefinition() definition {
	j := k.Defaults.clone()
	j.Name, j.Description, j.Schedule, j.Revision, j.StartPaused = "job", "", schedule.OnTrigger(), 0, false
	return definitionOf(j)
}

// record returns the stored form of k.
func (k Kind) record() (record.Kind, error) {
	defaults, err := k.storedDefaults()
	return record.Kind{Name: k.Name, Description: k.Description, Revision: k.Revision, Defaults: defaults, MaxJobs: k.MaxJobs}, err
}

// storedDefaults returns the fields of a definition in which the defaults differ from those of a zero Job, nil if there are
// none.
func (k Kind) storedDefaults() (json.RawMessage, error) {
	zero, err := fieldsOf(Kind{}.defaultDefinition())
	if err != nil {
		return nil, err
	}
	own, err := fieldsOf(k.defaultDefinition())
	if err != nil {
		return nil, err
	}
	for name, value := range zero {
		if string(own[name]) == string(value) {
			delete(own, name)
		}
	}
	if len(own) == 0 {
		return nil, nil
	}
	return record.EncodeFields(struct{}{}, own)
}

// fieldsOf returns the stored fields of a definition.
func fieldsOf(d definition) (fields record.Fields, err error) {
	stored, err := d.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(stored, &fields)
	}
	return fields, err
}

// findHandler returns the handler of a job, which is that of its kind if the job is a defined one: Kind is not empty then.
func (e *Executor) findHandler(job, kind string) (Handler, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if kind != "" {
		if k, ok := e.kinds[kind]; ok {
			return k.Handler, nil
		}
		return nil, fmt.Errorf("run %q: %w: %q is not registered here", job, ErrUnknownKind, kind)
	}
	if j, ok := e.jobs[job]; ok {
		return j.Handler, nil
	}
	return nil, fmt.Errorf("run %q: %w", job, ErrUnknownJob)
}

// checkKind returns why this process cannot run jobs with a definition, nil if it can. Of a registered job it does not
// decide: the offer of the job does.
func (e *Executor) checkKind(d *definition) error {
	if d.Kind == "" {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch k, ok := e.kinds[d.Kind]; {
	case !ok:
		return fmt.Errorf("%w: %q is not registered here", ErrUnknownKind, d.Kind)
	case k.Revision < d.KindRevision:
		return fmt.Errorf("kind %q has revision %d here, and the job needs %d", d.Kind, k.Revision, d.KindRevision)
	}
	return nil
}
