package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rota-dev/rota/conformance/child"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// look is the command beside a large group: the time of rota jobs as a whole, and the processor time of
// rota top. The records are written, and no instance runs, so that all load is that of the command.
type look struct {
	store                   string
	jobs, instances, shards int
	firesPerSecond          int // while top runs
}

const lookNamespace = "bench"

func (c look) run(ctx context.Context, o options) (map[string]float64, error) {
	dir, err := os.MkdirTemp("", "rota-look")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	program, err := buildCommand(ctx, dir)
	if err != nil {
		return nil, err
	}
	s, err := storeKinds[c.store](ctx)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	reg, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	defer closeRegistry(reg)
	g := &lookGroup{look: c, reg: reg, revs: map[registry.Key]registry.Rev{}}
	if err := g.write(ctx); err != nil {
		return nil, err
	}
	figures := map[string]float64{}
	if err := c.measureJobs(ctx, program, s, figures); err != nil {
		return nil, err
	}
	return figures, c.measureTop(ctx, o, program, s, g, figures)
}

// buildCommand builds the command of the repository without the race detector.
func buildCommand(ctx context.Context, dir string) (string, error) {
	work, err := filepath.Abs("../go.work")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "rota")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, ".")
	cmd.Dir, cmd.Stderr = "../cmd/rota", os.Stderr
	cmd.Env = append(os.Environ(), "GOWORK="+work)
	return program, cmd.Run()
}

func (c look) command(program string, s *store, args ...string) *exec.Cmd {
	cmd := exec.Command(program, append(args, "--registry", s.url, "--namespace", lookNamespace)...)
	cmd.Env = append(os.Environ(), "ROTA_CONFIG="+os.DevNull)
	return cmd
}

// measureJobs runs rota jobs once to warm the server up, and then a few times.
func (c look) measureJobs(ctx context.Context, program string, s *store, figures map[string]float64) error {
	var took, cpu []float64
	for n := range 8 {
		before, err := s.requests(ctx)
		if err != nil {
			return err
		}
		cmd := c.command(program, s, "jobs")
		began := time.Now()
		out, err := cmd.Output()
		elapsed := time.Since(began)
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			return fmt.Errorf("rota jobs: %w: %s", err, exit.Stderr)
		} else if err != nil {
			return err
		}
		if lines := strings.Count(string(out), "\nj"); lines != c.jobs {
			return fmt.Errorf("rota jobs lists %d of %d jobs", lines, c.jobs)
		}
		if n == 0 {
			continue
		}
		after, err := s.requests(ctx)
		if err != nil {
			return err
		}
		took = append(took, milliseconds(elapsed))
		cpu = append(cpu, milliseconds(cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()))
		figures["jobs requests"] = after - before
	}
	figures["jobs"], figures["jobs max"], figures["jobs CPU"] = quantile(took, 0.5), quantile(took, 1), quantile(cpu, 0.5)
	return nil
}

// measureTop measures the processor time of rota top, first beside a group at rest and then while fires are claimed.
func (c look) measureTop(ctx context.Context, o options, program string, s *store, g *lookGroup, figures map[string]float64) error {
	p, err := child.Start(c.command(program, s, "top"))
	if err != nil {
		return err
	}
	defer p.Kill()
	if err := pause(ctx, 10*time.Second); err != nil { // for the first screen, and the garbage collection after it
		return err
	}
	share := func() (float64, error) {
		first, err := processCPU(p.Pid())
		if err != nil {
			return 0, err
		}
		began := time.Now()
		if err := pause(ctx, o.duration); err != nil {
			return 0, err
		}
		last, err := processCPU(p.Pid())
		return 100 * float64(last-first) / float64(time.Since(began)), err
	}
	if figures["top at rest"], err = share(); err != nil {
		return err
	}
	firing, cancel := context.WithCancel(ctx)
	fired := make(chan error, 1)
	go func() { fired <- g.fire(firing) }()
	figures["top"], err = share()
	cancel()
	return errors.Join(err, <-fired)
}

// lookGroup writes the records of a group.
type lookGroup struct {
	look
	reg  registry.Registry
	keys record.Keys
	inc  []string

	mu   sync.Mutex
	revs map[registry.Key]registry.Rev // of claims
}

func (g *lookGroup) jobName(n int) string { return fmt.Sprintf("job-%05d", n) }

// owner returns the incarnation that owns a shard.
func (g *lookGroup) owner(job, shard int) string { return g.inc[(job+shard)%len(g.inc)] }

func (g *lookGroup) claims(job, shard int, fire record.Instant) record.Claims {
	return record.Claims{
		Job: g.jobName(job), Counts: record.Counts{Claimed: 1, Succeeded: 1}, Ended: fire,
		Watermarks: record.Watermarks(nil).Raise(shardset.Of(shard), record.Watermark{Epoch: 1, Fire: fire, Attempt: 1}),
	}
}

// write writes the records of the group.
func (g *lookGroup) write(ctx context.Context) (err error) {
	if g.keys, err = record.NewKeys(lookNamespace, "default"); err != nil {
		return err
	}
	session, err := g.reg.OpenSession(ctx, registry.SessionOptions{TTL: 30 * time.Second})
	if err != nil {
		return err
	}
	var names []string
	for n := range g.jobs {
		names = append(names, g.jobName(n))
	}
	now := record.InstantOf(time.Now())
	if err := g.put(ctx, keyed{g.keys.Meta(), record.Meta{Format: record.Format}}); err != nil {
		return err
	}
	for i := range g.instances {
		name := fmt.Sprintf("instance-%02d", i)
		g.inc = append(g.inc, record.Incarnation(name, session.ID()))
		member := record.Member{Name: name, Session: session.ID(), Host: "host", Jobs: names}
		if err := g.put(ctx, keyed{g.keys.Member(g.inc[i]), member}); err != nil {
			return err
		}
		value, err := record.Encode(record.Instance{Session: session.ID(), Group: "default", Host: "host", Started: now})
		if err != nil {
			return err
		}
		if _, err := g.reg.Txn(ctx, registry.Txn{Then: []registry.Op{registry.CreateOwned(g.keys.Instance(name), value, session.ID())}}); err != nil {
			return err
		}
	}
	batches := make([][]int, 8)
	for n := range g.jobs {
		batches[n%len(batches)] = append(batches[n%len(batches)], n)
	}
	return runConcurrently(ctx, batches, func(ctx context.Context, jobs []int) error {
		for _, n := range jobs {
			if err := g.writeJob(ctx, n, now); err != nil {
				return err
			}
		}
		return nil
	})
}

func (g *lookGroup) writeJob(ctx context.Context, n int, now record.Instant) error {
	name := g.jobName(n)
	def := json.RawMessage(fmt.Sprintf(`{"name":%q,"revision":1,"shards":%d,"schedule":"every 1h"}`, name, g.shards))
	epoch, err := record.NewEpoch(1, now, def)
	if err != nil {
		return err
	}
	plan := &record.Plan{Format: record.Format, Job: name, Epochs: []record.Epoch{epoch}, Owners: map[string]shardset.Set{}}
	for shard := range g.shards {
		plan.Owners[g.owner(n, shard)] = shardset.Of(shard)
	}
	all := []keyed{{g.keys.Job(name), def}, {g.keys.Plan(name), plan}}
	for shard := range g.shards {
		all = append(all, keyed{g.keys.Claims(g.owner(n, shard), name), g.claims(n, shard, now)})
	}
	return g.put(ctx, all...)
}

// keyed is a record and its key.
type keyed struct {
	key   registry.Key
	value any
}

// put creates records in one transaction.
func (g *lookGroup) put(ctx context.Context, all ...keyed) error {
	var ops []registry.Op
	for _, k := range all {
		value, err := record.Encode(k.value)
		if err != nil {
			return err
		}
		ops = append(ops, registry.Create(k.key, value))
	}
	rev, err := g.reg.Txn(ctx, registry.Txn{Then: ops})
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, k := range all {
		g.revs[k.key] = rev
	}
	return nil
}

// fire writes claims of job after job until ctx ends.
func (g *lookGroup) fire(ctx context.Context) error {
	ticks := time.NewTicker(time.Second / time.Duration(g.firesPerSecond))
	defer ticks.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
		job := n % g.jobs
		key := g.keys.Claims(g.owner(job, 0), g.jobName(job))
		value, err := record.Encode(g.claims(job, 0, record.InstantOf(time.Now())))
		if err != nil {
			return err
		}
		rev, err := g.reg.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Set(key, g.revs[key], value)}})
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		g.revs[key] = rev
	}
}

func lookCases() (cases []benchCase) {
	for _, store := range []string{"etcd", "zookeeper"} {
		for _, shards := range []int{1, 4} {
			// As if each job had a fire every ten minutes.
			c := look{store: store, jobs: 10_000, instances: 50, shards: shards, firesPerSecond: 17}
			cases = append(cases, benchCase{
				name: fmt.Sprintf("look-%s-%d", store, shards),
				about: fmt.Sprintf("rota jobs, and rota top beside %d fires per second, of %d jobs of %d shards on %d instances; %s",
					c.firesPerSecond, c.jobs, shards, c.instances, store),
				run: c.run,
			})
		}
	}
	return cases
}
