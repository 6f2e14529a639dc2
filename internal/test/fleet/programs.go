package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/schedule"
)

// definedKind is the kind of all defined jobs. All workers have it.
const definedKind = "defined"

// programs is how many programs define, change and delete jobs at the same time.
const programs = 2

// The parts of a program.
const (
	programActs    = "act"    // defines, changes and deletes jobs until a signal
	programDeletes = "delete" // deletes all jobs
)

// deleted is the report of a program that a Delete has returned.
type deleted struct {
	Job              string
	Called, Returned time.Time
}

// logLag is the longest time from a commit to its instant in the log of the store, which is that of its delivery on etcd.
const logLag = 500 * time.Millisecond

// definedName returns the name of a defined job.
func definedName(i int) string { return fmt.Sprintf("defined-%02d", i) }

// program is a process that defines jobs. It is not of the fleet.
type program struct {
	assignment
	operator *operator.Operator
	rng      *rand.Rand

	mu  sync.Mutex
	out *json.Encoder
}

// runProgram runs a program.
func runProgram(a assignment, schemes registryurl.Schemes, out io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	reg, err := schemes.Open(ctx, a.Registry, registryurl.Options{})
	for errors.Is(err, registry.ErrUnavailable) && ctx.Err() == nil { // the servers are being restarted
		time.Sleep(100 * time.Millisecond)
		reg, err = schemes.Open(ctx, a.Registry, registryurl.Options{})
	}
	if err != nil {
		return err
	}
	defer reg.Close(context.Background())
	o, err := operator.New(reg, a.Namespace, "")
	if err != nil {
		return err
	}
	p := &program{assignment: a, operator: o.WithCompiler(executor.Compile), rng: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0)), out: json.NewEncoder(out)}
	if a.Program == programDeletes {
		return p.deleteAll(ctx)
	}
	for ctx.Err() == nil {
		p.act(ctx)
		select {
		case <-time.After(time.Duration(50+p.rng.IntN(250)) * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}

// act defines, changes or deletes a job. What fails while the store does not answer is left.
func (p *program) act(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	def := p.drawDefinition()
	switch p.rng.IntN(10) {
	case 0, 1:
		_ = p.delete(ctx, def.Name)
	case 2:
		_ = p.delete(ctx, def.Name)
		_, _ = p.operator.Define(ctx, def)
	case 3, 4:
		_, _ = p.operator.Define(ctx, def, operator.IfAbsent())
	case 5:
		if is, err := p.operator.Definition(ctx, def.Name); err == nil {
			_, _ = p.operator.Define(ctx, def, operator.IfRevision(is.Revision))
		}
	default:
		_, _ = p.operator.Define(ctx, def)
	}
}

// drawDefinition draws a definition: of fires each second or two, of a few instants, or of fires that are so far apart that the job rests.
func (p *program) drawDefinition() operator.Definition {
	def := operator.Definition{
		Name: definedName(p.rng.IntN(p.Defines)), Kind: definedKind, Shards: 1 + p.rng.IntN(2), DeleteAfter: time.Second,
		Policies: map[string]any{"on_misfire": "run all 1000", "max_attempts": 100},
	}
	if p.Pooled && strings.HasSuffix(def.Name, "7") {
		def.Policies["pool"] = poolName
	}
	soon := time.Now().Add(time.Duration(20+p.rng.IntN(4000)) * time.Millisecond)
	switch p.rng.IntN(4) {
	case 0:
		def.Schedule = schedule.Every(time.Duration(1+p.rng.IntN(2)) * time.Second)
	case 1:
		def.Schedule = schedule.Every(5 * time.Minute)
	case 2:
		def.Schedule = schedule.At(soon)
	default:
		def.Schedule = schedule.At(soon, soon.Add(5*time.Second), soon.Add(time.Minute))
	}
	return def
}

// delete deletes a job, and reports when that has returned.
func (p *program) delete(ctx context.Context, job string) error {
	called := time.Now()
	err := p.operator.Delete(ctx, job)
	if errors.Is(err, operator.ErrUnknownJob) {
		err = nil
	}
	if err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		err = p.out.Encode(line{Deleted: &deleted{job, called, time.Now()}})
	}
	return err
}

// deleteAll deletes all jobs.
func (p *program) deleteAll(ctx context.Context) error {
	var errs []error
	for i := range p.Defines {
		errs = append(errs, p.delete(ctx, definedName(i)))
	}
	return errors.Join(errs...)
}

// startProgram starts a program.
func (f *Fleet) startProgram(part string) (*Process, error) {
	f.processes++
	client := fmt.Sprintf("program-%d", f.processes)
	return startProcess(f.Server, assignment{Namespace: "fleet", Client: client, Pooled: f.Pool > 0, Defines: f.Defines, Program: part}, "", f.Dir)
}

// startPrograms starts the programs that act, in place of those that were killed.
func (f *Fleet) startPrograms() error {
	for f.Defines > 0 && len(f.programs) < programs {
		p, err := f.startProgram(programActs)
		if err != nil {
			return err
		}
		f.programs = append(f.programs, p)
	}
	return nil
}

// replaceProgram kills a program during an act, and starts another.
func (f *Fleet) replaceProgram() error {
	if f.Defines == 0 {
		return nil
	}
	f.programs[0].Kill()
	f.killed = append(f.killed, f.programs[0])
	f.programs = f.programs[1:]
	return f.startPrograms()
}

// judgeDeletions passes the reports of the programs to the judge.
func (f *Fleet) judgeDeletions() {
	for _, p := range slices.Concat(f.killed, f.programs) {
		for _, d := range p.takeDeleted() {
			f.Judge.JudgeDelete(d.Job, d.Called, d.Returned.Add(logLag))
			f.Deletes++
		}
	}
	f.killed = nil
}

// stopPrograms ends the programs that act.
func (f *Fleet) stopPrograms() error {
	var errs []error
	for _, p := range f.programs {
		errs = append(errs, p.Leave(leaving))
	}
	f.killed, f.programs = append(f.killed, f.programs...), nil
	return errors.Join(errs...)
}

// deleteDefined deletes all defined jobs, and waits until nothing is left of any, not even a tombstone.
func (f *Fleet) deleteDefined(ctx context.Context) error {
	if f.Defines == 0 {
		return nil
	}
	p, err := f.startProgram(programDeletes)
	if err != nil {
		return err
	}
	f.killed = append(f.killed, p)
	if err := f.Until(ctx, "all jobs are deleted", recovery, p.hasEnded); err != nil {
		return err
	}
	<-p.outputRead
	p.release()
	if err := p.proc.Err(); err != nil {
		return fmt.Errorf("%s: %w", p.Client, err)
	}
	f.killed = append(f.killed, p)
	return f.Until(ctx, "the tombstones are deleted", 7*time.Minute, func() bool { return len(f.Judge.LeftOfDeleted()) == 0 })
}
