// Command daemon listens to four topics, one daemon for each, over a fleet. Without arguments two instances
// share a registry in memory: one joins while the other runs, then leaves again, and each topic is handed over. With
// the address of an etcd it is one process of a fleet; start and stop some of them.
//
//	go run ./examples/daemon
//	go run ./examples/daemon 127.0.0.1:2379
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/etcd"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// listenJob listens to each topic for as long as an instance owns its shard. The context ends when the
// shard is to move; the next owner then begins at once.
func listenJob(listen func(ctx context.Context, r *executor.Run) error) executor.Job {
	return executor.Job{
		Name:        "listen",
		Schedule:    schedule.Always(),
		Shards:      4,
		ShardParams: map[int]string{0: "orders", 1: "payments", 2: "returns", 3: "reviews"},
		Handler:     executor.HandlerFunc(listen),
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	var err error
	switch len(os.Args) {
	case 1:
		err = demo(ctx, os.Stdout)
	case 2:
		err = serve(ctx, os.Stdout, os.Args[1])
	default:
		err = errors.New("usage: daemon [address]")
	}
	if err != nil {
		log.Fatal(err)
	}
}

// reporter prints when topics are listened to.
type reporter struct {
	mu  sync.Mutex
	out io.Writer
}

func (r *reporter) listen(ctx context.Context, run *executor.Run) error {
	r.print("%s listens to %s", run.Instance, run.ShardParam)
	<-ctx.Done() // a real listener reads messages until then
	r.print("%s leaves %s", run.Instance, run.ShardParam)
	return context.Cause(ctx)
}

func (r *reporter) print(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, format+"\n", args...)
}

// serve is a process of a fleet on etcd.
func serve(ctx context.Context, out io.Writer, address string) error {
	reg, err := etcd.Open(ctx, etcd.Options{Endpoints: []string{address}})
	if err != nil {
		return err
	}
	defer reg.Close(context.Background())
	ex, err := newExecutor(reg, "", &reporter{out: out}, nil)
	if err != nil {
		return err
	}
	return ex.Run(ctx)
}

// newExecutor returns an executor with the job. An empty instance stands for a name by host and process.
func newExecutor(reg registry.Registry, instance string, r *reporter, logger *slog.Logger) (*executor.Executor, error) {
	ex, err := executor.New(reg, "daemon", executor.Options{Instance: instance, Logger: logger})
	if err != nil {
		return nil, err
	}
	return ex, ex.Register(listenJob(r.listen))
}

// demo runs a, lets b join after two seconds, and stops a two seconds later.
func demo(ctx context.Context, out io.Writer) error {
	server, r, quiet := memory.New(), &reporter{out: out}, slog.New(slog.DiscardHandler)
	a, err := newExecutor(server.Client("a"), "a", r, quiet)
	if err != nil {
		return err
	}
	b, err := newExecutor(server.Client("b"), "b", r, quiet)
	if err != nil {
		return err
	}
	steps := []struct {
		what string
		do   func() error
	}{
		{"a joins", func() error { return a.Start(ctx) }},
		{"b joins", func() error { return b.Start(ctx) }},
		{"a leaves", func() error { return a.Shutdown(ctx) }},
		{"b leaves", func() error { return b.Shutdown(ctx) }},
	}
	for _, step := range steps {
		r.print("-- %s", step.what)
		if err := step.do(); err != nil {
			return err
		}
		if err := sleep(ctx, 2*time.Second); err != nil {
			return err
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
