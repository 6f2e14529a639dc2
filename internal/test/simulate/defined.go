package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// The kinds of defined jobs. All processes have the first one, and two of three the second one.
const (
	commonKind = "report"
	rareKind   = "alert"
)

// definer is a program outside of the fleet that defines, changes and deletes jobs.
type definer struct {
	client   *memory.Client
	operator *operator.Operator
}

// deletions are the Deletes that have returned, and that the judge does not know yet.
type deletions struct {
	mu  sync.Mutex
	all []returnedDelete
}

type returnedDelete struct {
	job              string
	called, returned time.Time
}

func (d *deletions) add(r returnedDelete) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, r)
}

// take returns the deletions since the last call.
func (d *deletions) take() []returnedDelete {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.all
	d.all = nil
	return all
}

// openDefiners connects two programs, and schedules their acts and the roll-out of another revision of the kinds.
func (f *fleet) openDefiners() error {
	if f.Defined == 0 {
		return nil
	}
	for i := range 2 {
		name := fmt.Sprintf("program-%d", i)
		d := &definer{client: f.server.Client(name)}
		o, err := operator.New(f.connect(d.client, name), namespace, "")
		if err != nil {
			return err
		}
		d.operator = o.WithCompiler(executor.Compile)
		f.definers = append(f.definers, d)
	}
	f.kindRevision = 1
	f.schedule(f.For/2, f.rollKinds)
	f.schedule(f.Every/2, f.defineOnce)
	return nil
}

// kindsOf returns the kinds of a process.
func (f *fleet) kindsOf(p *process, number int) []executor.Kind {
	kinds := []executor.Kind{{Name: commonKind, Revision: f.kindRevision, Handler: executor.HandlerFunc(p.handle), MaxRunning: 64}}
	if number%3 != 2 {
		kinds = append(kinds, executor.Kind{Name: rareKind, Revision: f.kindRevision, Handler: executor.HandlerFunc(p.handle), MaxRunning: 64})
	}
	return kinds
}

// rollKinds rolls out the next revision of the kinds, to one process after another. Those that start from now on have it.
func (f *fleet) rollKinds() error {
	f.kindRevision++
	f.addNote("the kinds have revision %d", f.kindRevision)
	f.report.Actions["kinds rolled"]++
	for i, s := range f.slots {
		f.schedule(time.Duration(i)*f.Every, func() error {
			if s.process == nil {
				return nil
			}
			return s.process.executor.RegisterKind(f.kindsOf(s.process, s.number)...)
		})
	}
	return nil
}

// definedName returns the name of a defined job.
func definedName(i int) string { return fmt.Sprintf("defined-%d", i) }

// defineOnce lets a program act, or both on one name, and schedules the next acts.
func (f *fleet) defineOnce() error {
	if !time.Now().Before(f.until) {
		return nil
	}
	f.schedule(time.Duration(float64(f.Faults)*(0.2+1.4*f.rng.Float64())), f.defineOnce)
	program, both, name := f.rng.IntN(2), f.rng.IntN(3) == 0, definedName(f.rng.IntN(f.Defined))
	f.disturbDefiner(fmt.Sprintf("program-%d", f.rng.IntN(2)))
	f.act(f.definers[program], name)
	if both {
		f.act(f.definers[1-program], name)
	}
	return nil
}

// disturbDefiner draws a fault of the connection of a program.
func (f *fleet) disturbDefiner(client string) {
	last := f.drawDuration()
	switch f.rng.IntN(12) {
	case 0:
		f.server.LoseReply(client, 1)
	case 1:
		f.server.LoseRequest(client, 1)
	case 2:
		f.scheduleEnd(HeldCommit, client, last, f.server.HoldCommit(client))
	case 3:
		f.scheduleEnd(Partition, client, last, f.server.Partition(client))
	}
}

// act draws one act of a program on a name.
func (f *fleet) act(d *definer, name string) {
	def := f.drawDefinition(name)
	var options []operator.DefineOption
	ifRevision := false
	what, pause := f.rng.IntN(20), time.Duration(f.rng.Float64()*float64(3*f.Every))
	switch {
	case what < 13:
		switch f.rng.IntN(3) {
		case 0:
			options = append(options, operator.IfAbsent())
		case 1:
			ifRevision = true
		}
		f.define(d, def, ifRevision, options...)
	case what < 16:
		f.deleteDefined(d, name)
	case what < 17:
		f.deleteDefined(d, name)
		f.define(d, def, false)
	case what < 19:
		f.pauseDefined(d, name, pause)
	default:
		f.report.Actions["defined job triggered"]++
		f.addNote("%s is triggered", name)
		f.callAsync(func(ctx context.Context) { _, _ = d.operator.Trigger(ctx, name, "", nil) })
	}
}

// drawDefinition draws a definition of a name. Each name is of one kind mostly.
func (f *fleet) drawDefinition(name string) operator.Definition {
	minutes := []int{1, 2, 3, 4, 5, 6, 10, 15}
	def := operator.Definition{Name: name, Kind: commonKind, Shards: 1 + f.rng.IntN(3), Policies: map[string]any{"on_misfire": "run all 1000"}}
	if (int(name[len(name)-1])+f.rng.IntN(8)/7)%2 == 1 {
		def.Kind = rareKind
	}
	n, soon := minutes[f.rng.IntN(len(minutes))], time.Now().Add(time.Duration(f.rng.Float64()*float64(4*time.Minute)))
	later := soon.Add(time.Duration(f.rng.Float64() * float64(10*time.Minute)))
	switch f.rng.IntN(4) {
	case 0:
		def.Schedule = schedule.Cron(fmt.Sprintf("*/%d * * * *", n))
	case 1:
		def.Schedule = schedule.Every(time.Duration(n) * time.Minute)
	case 2:
		def.Schedule = schedule.At(soon)
	default:
		def.Schedule = schedule.At(soon, later)
	}
	def.DeleteAfter = []time.Duration{0, time.Minute, 5 * time.Minute}[f.rng.IntN(3)]
	if f.rng.IntN(4) == 0 {
		def.Policies["on_misfire"] = "run once"
	}
	if f.rng.IntN(4) == 0 {
		def.Policies["retry"] = map[string]any{"max": 2}
	}
	if f.rng.IntN(6) == 0 {
		def.Policies["on_crash"] = "count as failed"
	}
	if f.Pool > 0 && f.rng.IntN(3) > 0 {
		def.Policies["pool"] = poolName
	}
	if f.rng.IntN(3) == 0 {
		def.KindRevision = f.kindRevision
	}
	return def
}

// define defines a job, or changes it, at times on condition of the revision that it has.
func (f *fleet) define(d *definer, def operator.Definition, ifRevision bool, options ...operator.DefineOption) {
	f.report.Actions["job defined"]++
	f.addNote("%s is defined: %v of %s from revision %d, %d shards, %v", def.Name, def.Schedule, def.Kind, def.KindRevision, def.Shards, def.Policies)
	f.callAsync(func(ctx context.Context) {
		if ifRevision {
			is, err := d.operator.Definition(ctx, def.Name)
			if err != nil {
				return
			}
			options = append(options, operator.IfRevision(is.Revision))
		}
		_, _ = d.operator.Define(ctx, def, options...)
	})
}

// deleteDefined deletes a job, and reports to the judge when that has returned.
func (f *fleet) deleteDefined(d *definer, name string) {
	f.report.Actions["job deleted"]++
	f.addNote("%s is deleted", name)
	called := time.Now()
	f.callAsync(func(ctx context.Context) {
		if err := d.operator.Delete(ctx, name); err == nil || errors.Is(err, operator.ErrUnknownJob) {
			f.deletions.add(returnedDelete{name, called, time.Now()})
		}
	})
}

// pauseDefined pauses a job, and resumes it later; at times it deletes the job at the same instant.
func (f *fleet) pauseDefined(d *definer, name string, pause time.Duration) {
	f.report.Actions["defined job paused"]++
	f.addNote("%s is paused for %v", name, pause)
	f.callAsync(func(ctx context.Context) { d.operator.Pause(ctx, name) })
	deletes := f.rng.IntN(2) == 0
	f.schedule(pause, func() error {
		f.addNote("%s is resumed", name)
		f.callAsync(func(ctx context.Context) { f.operator.Resume(ctx, name) })
		if deletes {
			f.deleteDefined(d, name)
		}
		return nil
	})
}

// resumeDefined resumes all defined jobs.
func (f *fleet) resumeDefined() {
	for i := range f.Defined {
		f.callAsync(func(ctx context.Context) { f.operator.Resume(ctx, definedName(i)) })
	}
}

// deleteAllDefined deletes all defined jobs of a settled fleet, and judges that no record of any is left.
func (f *fleet) deleteAllDefined() error {
	if f.Defined == 0 {
		return nil
	}
	for i := range f.Defined {
		f.deleteDefined(f.definers[i%2], definedName(i))
	}
	if err := f.advance(time.Now().Add(7*time.Minute + 2*f.Long)); err != nil {
		return err
	}
	f.observe()
	for _, e := range f.server.Dump() {
		for i := range f.Defined {
			if name := definedName(i); e.Key.Name() == name || e.Key.Dir().Name() == name {
				f.judge.AddViolation(15, "%s is left after all jobs were deleted: %s", e.Key, e.Value)
			}
		}
	}
	return nil
}

// closeDefiners ends the programs.
func (f *fleet) closeDefiners() error {
	for _, d := range slices.Backward(f.definers) {
		if err := d.client.Close(context.Background()); err != nil {
			return fmt.Errorf("close a program's client: %w", err)
		}
	}
	return nil
}
