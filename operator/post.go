package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/group/feed"
	"github.com/rota-dev/rota/internal/parallel"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// TriggerIn requests a run of a job in tx, a transaction of the caller on the database that is also the store of the registry: a pgx.Tx or a
// *sql.Tx for a registry of package postgres. With the commit of tx, the request is as durable as one by Trigger, and usually takes effect within a
// second. Without it, there is none.
//
// Posted acts take effect in the order of the commits, each once. TriggerIn checks its arguments, and not the job, which may be defined in the same
// transaction. An act that turns out to be impossible, say for a job that is unknown by then, has no effect; the leader logs it, and adds it to
// the acts of the group. While 64 triggers of the job wait, the next ones wait before them.
//
// It fails with registry.ErrNoPoster if the store has no such transactions. See docs/guide/exactly-once.md.
func (o *Operator) TriggerIn(ctx context.Context, tx any, job, param string, shards []int) error {
	fail := func(err error) error { return fmt.Errorf("trigger %q: %w", job, err) }
	t := record.PostedTrigger{Param: param}
	if shards != nil {
		set, err := postedShards(shards)
		if err != nil {
			return fail(invalidArgument(err))
		}
		t.Shards = &set
	}
	if err := record.CheckParam(param); err != nil {
		return fail(fmt.Errorf("the parameter %w", invalidArgument(err)))
	}
	if err := o.post(ctx, tx, &record.Posted{Job: job, Trigger: &t}); err != nil {
		return fail(err)
	}
	return nil
}

// postedShards returns shards of a job whose definition is not known yet.
func postedShards(shards []int) (shardset.Set, error) {
	if len(shards) == 0 {
		return shardset.Set{}, errors.New("no shard is named; nil means all")
	}
	return shardSetOf(shards, slices.Max(shards)+1)
}

// DefineIn is Define in tx; see TriggerIn. It checks the definition by itself and by its kind, and fails as Define does. ErrExists,
// ErrOtherRevision and other errors about the job are found when the act takes effect. The options are those of Define but DryRun.
func (o *Operator) DefineIn(ctx context.Context, tx any, def Definition, options ...DefineOption) error {
	d := &definer{Operator: o, options: defineOptionsOf(options)}
	fail := func(errs ...error) error { return nameErrors("define", []string{def.Name}, [][]error{errs}) }
	if d.options.dryRun {
		return fail(invalidArgument(errors.New("a dry run needs no transaction: call Define")))
	}
	if err := d.begin(ctx, []Definition{def}); err != nil {
		return fail(err)
	}
	_, errs := o.encodeDefinition(&def, d.kinds[def.Kind].Kind)
	if len(errs) > 0 {
		return fail(errs...)
	}
	if err := d.checkKind(&def); err != nil {
		return fail(err)
	}
	own, err := def.ownFields()
	if err != nil {
		return fail(invalidArgument(err))
	}
	fields, err := record.EncodeFields(own, nil)
	if err != nil {
		return fail(err)
	}
	err = o.post(ctx, tx, &record.Posted{Job: def.Name, Define: &record.PostedDefine{
		Fields: fields, DeleteAfter: record.Duration(def.DeleteAfter), IfAbsent: d.options.ifAbsent, IfRevision: d.options.revision,
		AllowUnknownKind: d.options.allowUnknownKind, AllowNoFires: d.options.allowNoFires,
	}})
	if err != nil {
		return fail(err)
	}
	return nil
}

func (o *Operator) post(ctx context.Context, tx any, p *record.Posted) error {
	act := o.newAct("")
	p.At, p.By, p.Reason = act.At, act.By, act.Reason
	value, err := record.Encode(p)
	if err != nil {
		return err
	}
	return registry.Post(ctx, o.reg, tx, o.keys.Posted(), value)
}

// errSettled means that the record of a posted act is gone: another process has done the act.
var errSettled = errors.New("another process has done the act")

// settling returns a copy of o whose call does the act of a record, which it deletes in the same commit.
func (o *Operator) settling(e registry.Entry) *Operator {
	with := *o
	with.posted = &e
	return &with
}

// settle adds the deletion of the record of a posted act to a transaction, if o is to settle one. The condition comes first, so that a
// conflict about it is the one that is reported.
func (o *Operator) settle(t registry.Txn) registry.Txn {
	if e := o.posted; e != nil {
		t.If = slices.Insert(slices.Clone(t.If), 0, registry.At(e.Key, e.Modified))
		t.Then = append(slices.Clip(t.Then), registry.Delete(e.Key, e.Modified))
	}
	return t
}

// isSettled reports whether a conflict means that another process has settled the act.
func (o *Operator) isSettled(c *registry.ConflictError) bool { return o.posted != nil && c.Index == 0 }

// applyAgain is the pause before a posted act that had to wait is tried again.
const applyAgain = time.Second

// ApplyPosted does the acts that transactions have posted, until ctx ends or the registry is closed. Executors call it while they lead. Several
// processes may call it at once.
func (o *Operator) ApplyPosted(ctx context.Context, log *slog.Logger) error {
	changed := make(chan struct{}, 1)
	posted := feed.New(o.keys.Posted(), log, func(e registry.Entry) (registry.Entry, error) { return e, nil })
	reader := posted.NewReader(func() { parallel.Signal(changed) })
	ctx, cancel := context.WithCancelCause(ctx)
	var followed sync.WaitGroup
	defer followed.Wait()
	defer cancel(nil)
	followed.Go(func() { cancel(posted.Run(ctx, o.reg)) })
	waiting := map[string]registry.Entry{} // by name
	again := time.NewTimer(applyAgain)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		case <-again.C:
		}
		reader.Drain(func(n feed.Update[registry.Entry]) {
			if n.Deleted {
				delete(waiting, n.Name)
			} else {
				waiting[n.Name] = n.Value
			}
		})
		o.applyAll(ctx, waiting, log)
		again.Reset(applyAgain)
	}
}

// applyAll does posted acts in order, and removes those that are settled. One that has to wait holds back later ones on its job.
func (o *Operator) applyAll(ctx context.Context, waiting map[string]registry.Entry, log *slog.Logger) {
	blocked := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(waiting)) {
		e := waiting[name]
		p, err := record.DecodePosted(e.Value)
		if err != nil {
			err = fmt.Errorf("read %s: %w", e.Key, err)
		} else if blocked[p.Job] {
			continue
		}
		o := o.settling(e).As(p.By, p.Reason)
		if err == nil {
			err = o.apply(ctx, &p)
		}
		if err != nil && ctx.Err() == nil && !mayPass(err) {
			cause := err
			if err = o.refuse(ctx, cause); err == nil {
				log.Warn("refused an act that a transaction had posted", "job", p.Job, "record", string(e.Key), "error", cause)
			}
		}
		switch {
		case err == nil, errors.Is(err, errSettled):
			delete(waiting, name)
		case ctx.Err() != nil:
			return
		default:
			blocked[p.Job] = true
		}
	}
}

// mayPass reports whether an act that failed may succeed later, or has been done.
func mayPass(err error) bool {
	for _, passing := range []error{errSettled, ErrTooManyTriggers, ErrTooManyChanges, ErrDeleting, ErrNoCompiler} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return registry.Retryable(err) || errors.Is(err, registry.ErrUnknownOutcome) || errors.Is(err, registry.ErrQuota)
}

// apply does a posted act, and deletes its record in the same commit.
func (o *Operator) apply(ctx context.Context, p *record.Posted) error {
	switch {
	case p.Trigger != nil:
		return o.applyTrigger(ctx, p)
	case p.Define != nil:
		return o.applyDefine(ctx, p)
	}
	return errors.New("this version does not know the act")
}

func (o *Operator) applyTrigger(ctx context.Context, p *record.Posted) error {
	var shards []int
	if p.Trigger.Shards != nil {
		shards = slices.Collect(p.Trigger.Shards.All())
	}
	_, err := o.Trigger(ctx, p.Job, p.Trigger.Param, shards)
	return err
}

func (o *Operator) applyDefine(ctx context.Context, p *record.Posted) error {
	const some = "posted" // a record without a creation is that of a deleted job
	def, err := decodeDefinition(&record.Defined{Job: p.Job, Created: some, Definition: p.Define.Fields, DeleteAfter: p.Define.DeleteAfter})
	if err != nil {
		return err
	}
	options := defineOptions{
		ifAbsent: p.Define.IfAbsent, hasRevision: p.Define.IfRevision > 0, revision: p.Define.IfRevision,
		allowUnknownKind: p.Define.AllowUnknownKind, allowNoFires: p.Define.AllowNoFires,
	}
	results, errs := o.defineAll(ctx, p.At, []Definition{def}, options)
	if err := nameErrors("define", []string{p.Job}, errs); err != nil || results[0].Outcome != DefineUnchanged {
		return err
	}
	return o.commitSettled(ctx, registry.Txn{})
}

// commitSettled commits a transaction that deletes the record of a posted act.
func (o *Operator) commitSettled(ctx context.Context, t registry.Txn) error {
	_, err := registry.Apply(ctx, o.reg, o.settle(t))
	if errors.Is(err, registry.ErrConflict) {
		return errSettled
	}
	return err
}

// refuse adds a posted act that cannot be done to the acts of the group.
func (o *Operator) refuse(ctx context.Context, cause error) error {
	return o.changeGroupControl(ctx, func(*record.GroupControl) (string, error) {
		return fmt.Sprintf("refused, posted by a transaction: %v", cause), nil
	})
}
