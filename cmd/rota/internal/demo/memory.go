package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// memoryFleet is a fleet in this process. Each instance has its own connection to a registry in
// memory; to kill one is to disconnect it.
type memoryFleet struct {
	demoOptions
	keys      record.Keys
	census    *census
	server    *memory.Server
	story     *story
	running   map[registry.Key]record.Runs // by claims record, as last written
	instances []*executor.Executor

	mu    sync.Mutex
	heals []func()
}

func newMemoryFleet(o demoOptions, keys record.Keys, c *census, s *story) *memoryFleet {
	f := &memoryFleet{
		demoOptions: o, keys: keys, census: c, server: memory.New(), story: s, running: map[registry.Key]record.Runs{},
	}
	f.server.Record()
	return f
}

// start starts the instances, waits until all own shards, and triggers the job.
func (f *memoryFleet) start(ctx context.Context) error {
	for i := range f.demoOptions.instances {
		name := fmt.Sprintf("instance-%d", i+1)
		e, err := newExecutor(f.server.Client(name), f.census, name, f.shards, f.ttl)
		if err != nil {
			return err
		}
		f.instances = append(f.instances, e)
		if err := e.Start(ctx); err != nil {
			return err
		}
	}
	if err := awaitAssigned(ctx, f.server.Client("observer"), f.keys, f.demoOptions); err != nil {
		return err
	}
	_, err := f.instances[0].Trigger(ctx, jobName, executor.Trigger{})
	return err
}

// kill disconnects an instance from the registry. Its handlers run until the session is lost.
func (f *memoryFleet) kill(instance string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heals = append(f.heals, f.server.Partition(instance))
}

// stop reconnects disconnected instances, and shuts all instances down.
func (f *memoryFleet) stop() {
	f.mu.Lock()
	for _, heal := range f.heals {
		heal()
	}
	f.mu.Unlock()
	var all sync.WaitGroup
	for _, e := range f.instances {
		all.Go(func() { _ = e.Shutdown(context.Background()) })
	}
	all.Wait()
}

// read passes the commits since the last call to the story, by the server's own log.
func (f *memoryFleet) read() {
	for _, c := range f.server.Log() {
		if c.Err != nil {
			continue
		}
		if c.Ended != "" {
			f.story.recordSessionEnd(c.At, c.Client)
		}
		for _, op := range c.Then {
			f.observeOp(c, op)
		}
	}
}

// observeOp passes a written record to the story.
func (f *memoryFleet) observeOp(c memory.Commit, op registry.Op) {
	switch {
	case op.Key == f.keys.Plan(jobName) && op.Kind != registry.OpDelete:
		if p, err := record.DecodePlan(op.Value); err == nil {
			f.story.recordPlan(c.At, p)
		}
	case strings.HasSuffix(string(op.Key), "/"+jobName) && op.Key.Dir().Dir() == f.keys.ClaimsOf("x").Dir():
		f.observeClaims(c, op)
	case op.Key == f.keys.Leader():
		f.story.recordLeader(c.At, c.Client)
	case op.Key.Dir() == resultKey(f.census.namespace, 0).Dir():
		var shard int
		var t tally
		_, err := fmt.Sscanf(op.Key.Name(), "%d", &shard)
		if errors.Join(err, json.Unmarshal(op.Value, &t)) == nil {
			f.story.recordResult(c.At, shard, t)
		}
	}
}

// observeClaims passes the new runs of a claims record to the story.
func (f *memoryFleet) observeClaims(c memory.Commit, op registry.Op) {
	if op.Kind == registry.OpDelete {
		delete(f.running, op.Key)
		return
	}
	claims, err := record.DecodeClaims(op.Value)
	if err != nil {
		return
	}
	before := f.running[op.Key]
	f.running[op.Key] = claims.Running
	for _, g := range claims.Running {
		for shard := range g.Shards.All() {
			if old, ok := before.Of(shard); !ok || old != g.Ref {
				f.story.recordClaim(c.At, c.Client, shard, g.Attempt)
			}
		}
	}
}
