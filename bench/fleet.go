package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/rota-dev/rota/conformance/child"
)

// worker is a worker process as its parent sees it.
type worker struct {
	assignment
	proc    *child.Process
	runs    *runLog
	orders  io.WriteCloser
	answers chan answer // closed when the process has ended
}

// startWorker starts a process. It does not wait until the process takes part.
func startWorker(a assignment) (*worker, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &worker{assignment: a, answers: make(chan answer, 1)}
	if w.runs, err = createRunLog(); err != nil {
		return nil, err
	}
	w.RunLog = w.runs.path
	text, err := json.Marshal(w.assignment)
	if err != nil {
		return nil, err
	}
	out, in := io.Pipe()
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), workerVariable+"="+string(text))
	cmd.Stdout, cmd.Stderr = in, os.Stderr
	if w.orders, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if w.proc, err = child.Start(cmd); err != nil {
		w.runs.remove()
		return nil, err
	}
	go func() {
		<-w.proc.Done()
		in.Close()
	}()
	go w.readAnswers(json.NewDecoder(out))
	return w, nil
}

func (w *worker) readAnswers(lines *json.Decoder) {
	defer close(w.answers)
	for {
		var a answer
		if lines.Decode(&a) != nil {
			return
		}
		w.answers <- a
	}
}

// awaitAnswer waits for the answer to an order, or to the start.
func (w *worker) awaitAnswer(ctx context.Context, to string) (int, error) {
	select {
	case a, ok := <-w.answers:
		switch {
		case !ok:
			return 0, fmt.Errorf("%s: ended before it answered %q: %v", w.Instance, to, w.proc.Err())
		case a.Error != "":
			return 0, fmt.Errorf("%s: %s: %s", w.Instance, a.To, a.Error)
		case a.To != to:
			return 0, fmt.Errorf("%s: answered %q, not %q", w.Instance, a.To, to)
		}
		return a.Value, nil
	case <-ctx.Done():
		return 0, fmt.Errorf("%s: no answer to %q: %w", w.Instance, to, context.Cause(ctx))
	}
}

// do sends an order and waits for the answer.
func (w *worker) do(ctx context.Context, o order) (int, error) {
	if err := json.NewEncoder(w.orders).Encode(o); err != nil {
		return 0, fmt.Errorf("%s: %s: %w", w.Instance, o.Do, err)
	}
	return w.awaitAnswer(ctx, o.Do)
}

// leave sends SIGTERM and waits until the process has ended.
func (w *worker) leave(within time.Duration) error {
	if !w.proc.Stop(within) {
		return fmt.Errorf("%s: did not end within %v", w.Instance, within)
	}
	return w.proc.Err()
}

// fleet is the workers of a run and their store. One goroutine uses it.
type fleet struct {
	store   *store
	library string
	workers []*worker // also those that have ended
	options options
	cleanup []func()
}

// startFleet starts a store and n workers with the same jobs, and waits until all take
// part. The caller stops it, even after an error.
func startFleet(ctx context.Context, o options, library, storeKind string, n int, sets []jobSet) (*fleet, error) {
	f := &fleet{library: library, options: o}
	start, ok := storeKinds[storeKind]
	if !ok {
		return f, fmt.Errorf("unknown store %q", storeKind)
	}
	var err error
	if f.store, err = start(ctx); err != nil {
		return f, err
	}
	for range n {
		if _, err := f.add(sets); err != nil {
			return f, err
		}
	}
	return f, f.awaitJoined(ctx, f.workers)
}

// firstInstance is the name of the first worker.
const firstInstance = "w1"

// add starts another worker.
func (f *fleet) add(sets []jobSet) (*worker, error) {
	a := assignment{
		Library: f.library, Store: f.store.url, Instance: fmt.Sprintf("w%d", len(f.workers)+1), Jobs: sets,
		TTL: f.options.ttl, Skew: f.options.skew, Defined: f.options.defined,
	}
	if f.options.logs != "" {
		a.Log = filepath.Join(f.options.logs, f.options.name+"-"+a.Instance+".log")
	}
	w, err := startWorker(a)
	if err == nil {
		f.workers = append(f.workers, w)
	}
	return w, err
}

// awaitJoined waits until workers take part.
func (f *fleet) awaitJoined(ctx context.Context, workers []*worker) error {
	ctx, cancel := context.WithTimeout(ctx, f.options.patience)
	defer cancel()
	var errs []error
	for _, w := range workers {
		_, err := w.awaitAnswer(ctx, "start")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// stop kills all workers and the server, and discards the run logs.
func (f *fleet) stop() {
	for _, w := range f.workers {
		w.proc.Kill()
		w.runs.remove()
	}
	for _, clean := range f.cleanup {
		clean()
	}
	if f.store != nil {
		f.store.stop()
	}
}

// runs returns all recorded runs.
func (f *fleet) runs() [][]run {
	var all [][]run
	for _, w := range f.workers {
		all = append(all, w.runs.runs(0))
	}
	return all
}

// awaitEachRan waits until every shard of the sets has begun a run.
func (f *fleet) awaitEachRan(ctx context.Context, sets []jobSet, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	total := 0
	for _, s := range sets {
		total += s.Count * s.Shards
	}
	seen := map[shardKey]bool{}
	read := make([]int64, len(f.workers))
	for len(seen) < total {
		for i, w := range f.workers {
			for _, r := range w.runs.runs(read[i]) {
				seen[shardKey{r.job, r.shard}] = true
				read[i]++
			}
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d shards have run: %w", len(seen), total, err)
		}
	}
	return nil
}

// countSkipped shuts all workers down and returns how many fires they skipped and counted.
func (f *fleet) countSkipped(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*f.options.patience)
	defer cancel()
	var counter *worker // any that lives
	for _, w := range f.workers {
		select {
		case <-w.proc.Done():
			continue
		default:
		}
		if _, err := w.do(ctx, order{Do: "leave"}); err != nil {
			return 0, err
		}
		counter = w
	}
	return counter.do(ctx, order{Do: "skipped"})
}

// pause waits for d, or returns the cause of ctx's end.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// usage counts the resources that a fleet has used by an instant.
type usage struct {
	clientCPU, serverCPU time.Duration
	sent                 int64 // bytes that the clients wrote
	traffic
}

func (f *fleet) usage(ctx context.Context) (u usage, err error) {
	for _, w := range f.workers {
		cpu, err := processCPU(w.proc.Pid())
		if err != nil {
			return u, err
		}
		sent, err := bytesWritten(w.proc.Pid())
		if err != nil {
			return u, err
		}
		u.clientCPU += cpu
		u.sent += sent
	}
	if u.serverCPU, err = f.store.cpu(); err != nil {
		return u, err
	}
	u.traffic, err = f.store.traffic(ctx)
	return u, err
}

func (u usage) since(v usage) usage {
	return usage{
		u.clientCPU - v.clientCPU, u.serverCPU - v.serverCPU, u.sent - v.sent,
		traffic{u.bytes - v.bytes, u.transactions - v.transactions},
	}
}
