package simulate

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// process is one process of an instance, from its start to a crash or a shutdown.
type process struct {
	fleet      *fleet
	instance   string
	clientName string // of its client; unique among all processes
	client     *memory.Client
	gate       *stoppable
	executor   *executor.Executor
	crashed    chan struct{}
	stop       context.CancelFunc
	done       chan struct{} // closed when Run has returned
	err        error         // the result of Run
	ahead      time.Duration // of its clock, while WrongClock does not apply
	clock      atomic.Int64  // the current difference from the right time
	stopped    time.Time     // when it was stopped or crashed; zero: not yet
	didCrash   bool          // it crashed
}

// startProcess starts a process on one of two hosts.
func (f *fleet) startProcess(instance string, number int) (*process, error) {
	f.report.Processes++
	machine := fmt.Sprintf("%s#%d", instance, f.report.Processes)
	p := &process{
		fleet: f, instance: instance, clientName: machine, client: f.server.Client(machine),
		crashed: make(chan struct{}), done: make(chan struct{}),
	}
	p.gate = newStoppable(f.connect(p.client, machine))
	p.ahead = f.drawClockError()
	p.clock.Store(int64(p.ahead))
	weight := 0
	if f.Weights {
		weight = 1 + number%3
	}
	var err error
	p.executor, err = executor.New(p.gate, namespace, executor.Options{
		Instance: instance, Host: hostOf(number), SessionTTL: f.TTL, DrainTimeout: f.Drain, RestartGrace: f.Grace, MaxClockSkew: f.Skew,
		Clock:   func() time.Time { return time.Now().Add(time.Duration(p.clock.Load())) },
		Workers: 256, Labels: map[string]string{"zone": zoneOf(number)}, Weight: weight, Logger: f.Logger,
	})
	if err != nil {
		return nil, err
	}
	jobs := make([]executor.Job, 0, len(f.specs))
	for _, s := range f.specs {
		if !s.withdrawn {
			jobs = append(jobs, s.withHandlerOf(p))
		}
	}
	if err := p.executor.Register(jobs...); err != nil {
		return nil, err
	}
	if f.Defined > 0 {
		if err := p.executor.RegisterKind(f.kindsOf(p, number)...); err != nil {
			return nil, err
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	go func() {
		defer close(p.done)
		p.err = p.executor.Run(ctx)
	}()
	f.processes = append(f.processes, p)
	return p, nil
}

// connect returns the registry of a client, with delays of its messages.
func (f *fleet) connect(c *memory.Client, machine string) registry.Registry {
	if f.Latency > 0 {
		f.server.Delay(machine, f.Latency, f.Latency)
	}
	if f.Jitter > 0 {
		return newJittery(c, f.Jitter, f.Seed<<16+uint64(f.report.Processes))
	}
	return c
}

func hostOf(slot int) string { return fmt.Sprint("h", slot%2) }

// zoneOf divides the fleet otherwise than hostOf.
func zoneOf(slot int) string { return fmt.Sprint("z", (slot+1)/2%2) }

// drawClockError draws how far a clock is ahead of the right time; a negative value is behind.
func (f *fleet) drawClockError() time.Duration {
	if f.Clocks == 0 {
		return 0
	}
	return f.Clocks - time.Duration(f.rng.Int64N(2*int64(f.Clocks)+1))
}

// crash cuts the process off for good and ends its handlers.
func (p *process) crash() {
	p.didCrash, p.stopped = true, time.Now()
	p.fleet.server.Partition(p.clientName) // for good
	close(p.crashed)
	now, cancel := context.WithCancel(context.Background())
	cancel()
	p.client.Close(now) // its goroutines end; the store does not learn of it
	p.stop()
}

// leave shuts the process down with a drain.
func (p *process) leave() {
	p.stopped = time.Now()
	p.stop()
}

// hasEnded reports whether the process has ended.
func (p *process) hasEnded() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// judgeEnd judges the result of a process that has ended.
func (p *process) judgeEnd() {
	var abandoned *executor.AbandonedError
	switch {
	case p.didCrash, p.err == nil, errors.As(p.err, &abandoned):
	case p.stopped.IsZero() && p.fleet.judge.HasClaimed(p.clientName):
		p.fleet.judge.AddViolation(7, "%s ended by itself: %v", p.clientName, p.err)
	}
}
