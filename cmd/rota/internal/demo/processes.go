package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/rota-dev/rota/conformance/child"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/registry"
)

// processFleet is a fleet of processes with a registry on a server.
type processFleet struct {
	demoOptions
	url    string
	keys   record.Keys
	census *census
	board  *board
	story  *story
	reg    registry.Registry // this process's own handle
	stopAt context.CancelFunc
	tasks  sync.WaitGroup

	mu        sync.Mutex
	instances map[string]*child.Process
}

// newProcessFleet connects to the registry, whose server must be running.
func newProcessFleet(ctx context.Context, o demoOptions, url string, keys record.Keys, c *census, b *board, s *story) (*processFleet, error) {
	reg, err := o.schemes.Open(ctx, url, registryurl.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	f := &processFleet{
		demoOptions: o, url: url, keys: keys, census: c, board: b, story: s, reg: reg, instances: map[string]*child.Process{},
	}
	var following context.Context
	following, f.stopAt = context.WithCancel(context.Background())
	f.follow(following)
	return f, nil
}

// follow passes the changes of the registry to the story, until ctx ends.
func (f *processFleet) follow(ctx context.Context) {
	for dir, changed := range map[registry.Key]func(e registry.Entry, gone bool) error{
		f.keys.Plan(jobName).Dir(): func(e registry.Entry, gone bool) error {
			p, err := record.DecodePlan(e.Value)
			if err == nil {
				f.story.recordPlan(time.Now(), p)
			}
			return err
		},
		f.keys.Leader().Dir(): func(e registry.Entry, gone bool) error {
			if e.Key != f.keys.Leader() {
				return nil
			}
			l, err := record.Decode[record.Leader](e.Value)
			if err == nil {
				f.story.recordLeader(time.Now(), nameOf(l.Incarnation))
			}
			return err
		},
		f.keys.Instances(): func(e registry.Entry, gone bool) error {
			if gone {
				f.story.recordSessionEnd(time.Now(), e.Key.Name()[1:])
			}
			return nil
		},
		resultKey(f.census.namespace, 0).Dir(): func(e registry.Entry, gone bool) error {
			var shard int
			var t tally
			_, err := fmt.Sscanf(e.Key.Name(), "%d", &shard)
			if err := errors.Join(err, json.Unmarshal(e.Value, &t)); err != nil {
				return err
			}
			f.story.recordResult(time.Now(), shard, t)
			return nil
		},
	} {
		f.tasks.Go(func() {
			known := map[registry.Key]registry.Rev{}
			_ = registry.Follow(ctx, f.reg, dir, func(b registry.Batch) error { return visitChanges(b, known, changed) })
		})
	}
}

// visitChanges calls changed for each new or changed entry, and each owned key that was deleted, in
// a batch.
func visitChanges(b registry.Batch, known map[registry.Key]registry.Rev, changed func(e registry.Entry, gone bool) error) error {
	gone := b.Deletes
	if b.Kind == registry.Snapshot {
		there := map[registry.Key]bool{}
		for _, e := range b.Puts {
			there[e.Key] = true
		}
		for key := range known {
			if !there[key] {
				gone = append(gone, key)
			}
		}
	}
	var errs []error
	for _, key := range gone {
		delete(known, key)
		if key.Owned() {
			errs = append(errs, changed(registry.Entry{Key: key}, true))
		}
	}
	for _, e := range b.Puts {
		if known[e.Key] != e.Modified {
			known[e.Key] = e.Modified
			errs = append(errs, changed(e, false))
		}
	}
	return errors.Join(errs...)
}

// start starts the instances, waits until all own shards, and triggers the job.
func (f *processFleet) start(ctx context.Context) error {
	for i := range f.demoOptions.instances {
		if err := f.startProcess(fmt.Sprintf("instance-%d", i+1)); err != nil {
			return err
		}
	}
	if err := awaitAssigned(ctx, f.reg, f.keys, f.demoOptions); err != nil {
		return err
	}
	asker, err := newExecutor(f.reg, f.census, "asker", f.shards, f.ttl) // it never starts
	if err != nil {
		return err
	}
	_, err = asker.Trigger(ctx, jobName, executor.Trigger{})
	return err
}

// startProcess starts the process of an instance.
func (f *processFleet) startProcess(name string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	out, in := io.Pipe()
	cmd := exec.Command(program, instanceCommandName, "--registry", f.url, "--namespace", f.census.namespace, "--name", name,
		"--shards", fmt.Sprint(f.shards), "--ttl", f.ttl.String(), "--dir", f.dir)
	cmd.Env = append(os.Environ(), extraEnv...)
	cmd.Stdout, cmd.Stderr = in, os.Stderr
	answers, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	p, err := child.Start(cmd)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.instances[name] = p
	f.mu.Unlock()
	f.tasks.Go(func() {
		<-p.Done()
		in.Close()
	})
	f.tasks.Go(func() { f.readEvents(out, answers) })
	return nil
}

// extraEnv is for tests, whose binary is not the command.
var extraEnv []string

// readEvents reads the events of a process from its output. It answers each eventCounts, so that the
// run goes on, unless the process is killed in the middle of the run.
func (f *processFleet) readEvents(out io.Reader, answers io.WriteCloser) {
	defer answers.Close()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			e = event{Kind: eventFails, Error: fmt.Sprintf("%q is no event: %v", lines.Text(), err)}
		}
		if e.Kind == eventBegins {
			f.story.recordClaim(e.At, e.Instance, e.Shard, e.Attempt)
		}
		if killed := f.board.handleEvent(e); !killed && e.Kind == eventCounts {
			_, _ = answers.Write([]byte{'\n'}) // the process may have ended
		}
	}
}

// kill sends SIGKILL to the process of an instance, and does not wait for its end.
func (f *processFleet) kill(instance string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.instances[instance]; p != nil {
		f.tasks.Go(p.Kill)
	}
}

// read does nothing, as follow and listen push events.
func (f *processFleet) read() {}

// stop ends all processes and deletes their records.
func (f *processFleet) stop() {
	f.mu.Lock()
	for _, p := range f.instances {
		f.tasks.Go(func() { p.Stop(10 * time.Second) }) // then it is killed
	}
	f.mu.Unlock()
	f.stopAt()
	f.tasks.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = deleteRecords(ctx, f.reg, f.keys, f.census.namespace) // after an error, records of this demo's own namespace remain
	_ = f.reg.Close(ctx)
}

// deleteRecords deletes the records of a demo.
func deleteRecords(ctx context.Context, reg registry.Registry, keys record.Keys, namespace string) error {
	dirs := []registry.Key{
		registry.Key(namespace), keys.Leader().Dir(), keys.Members(), keys.Jobs(), keys.Controls(), keys.Plan(jobName).Dir(),
		resultKey(namespace, 0).Dir(),
	}
	members, err := reg.List(ctx, keys.Members(), registry.ReadOptions{})
	if err != nil {
		return err
	}
	for _, m := range members.Entries {
		dirs = append(dirs, keys.ClaimsOf(m.Key.Name()))
	}
	for _, dir := range dirs {
		listing, err := reg.List(ctx, dir, registry.ReadOptions{})
		if err != nil {
			return err
		}
		for _, e := range listing.Entries {
			if e.Key.Owned() {
				continue
			}
			if _, err := reg.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Delete(e.Key, e.Modified)}}); err != nil {
				return err
			}
		}
	}
	return nil
}
