package budget_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/registry"
)

// fleet is a set of executors on one store, with the current state of their records.
type fleet struct {
	t       testing.TB
	store   store
	members []member

	log    []judge.Commit // applied commits; cleared by its reader
	plans  map[registry.Key]*record.Plan
	claims map[registry.Key]record.Claims
	leader string // name of the leading instance
}

type member struct {
	name string
	reg  registry.Registry
	ex   *executor.Executor
}

func newFleet(t testing.TB, s store) *fleet {
	return &fleet{t: t, store: s, plans: map[registry.Key]*record.Plan{}, claims: map[registry.Key]record.Claims{}}
}

// start starts an instance that offers jobs.
func (f *fleet) start(name string, jobs ...executor.Job) {
	f.t.Helper()
	for i := range jobs {
		jobs[i].MaxRunning = 400
	}
	f.startWith(name, executor.Options{}, jobs...)
}

// startWith starts an instance that offers jobs, with some options of its own.
func (f *fleet) startWith(name string, o executor.Options, jobs ...executor.Job) {
	f.t.Helper()
	reg := f.store.open(f.t, name)
	o.Instance, o.MaxClockSkew, o.Logger = name, -1, slog.New(slog.DiscardHandler)
	e, err := executor.New(reg, "test", o)
	require.NoError(f.t, err)
	require.NoError(f.t, e.Register(jobs...))
	require.NoError(f.t, e.Start(f.t.Context()))
	f.members = append(f.members, member{name, reg, e})
}

// stop ends all instances at once. Its cost is not counted.
func (f *fleet) stop() {
	var all sync.WaitGroup
	for _, m := range f.members {
		all.Go(func() {
			assert.NoError(f.t, m.reg.Close(context.Background()))
			assert.NoError(f.t, m.ex.Shutdown(context.Background()))
		})
	}
	all.Wait()
}

// applyCommits applies commits to the state of the records.
func (f *fleet) applyCommits(commits []judge.Commit) {
	f.t.Helper()
	f.log = append(f.log, commits...)
	for _, c := range commits {
		for _, op := range c.Then {
			f.applyOp(op)
		}
	}
}

func (f *fleet) applyOp(op registry.Op) {
	f.t.Helper()
	gone := op.Kind == registry.OpDelete
	switch key := string(op.Key); {
	case strings.Contains(key, "/plan/") && gone:
		delete(f.plans, op.Key)
	case strings.Contains(key, "/plan/"):
		plan, err := record.DecodePlan(op.Value)
		require.NoError(f.t, err)
		f.plans[op.Key] = plan
	case strings.Contains(key, "/claims/") && gone:
		delete(f.claims, op.Key)
	case strings.Contains(key, "/claims/"):
		f.claims[op.Key] = decode[record.Claims](f.t, op.Value)
	case strings.HasSuffix(key, "/election/leader"):
		f.leader = nameIn(decode[record.Leader](f.t, op.Value).Incarnation)
	}
}

func decode[T any](t testing.TB, value []byte) T {
	t.Helper()
	v, err := record.Decode[T](value)
	require.NoError(t, err)
	return v
}

// nameIn returns the instance name of an incarnation.
func nameIn(incarnation string) string {
	name, _, _ := strings.Cut(incarnation, ".")
	return name
}

// awaitCondition applies commits until ok returns true.
func (f *fleet) awaitCondition(what string, ok func() bool) {
	f.t.Helper()
	for end := time.Now().Add(f.store.patience()); !ok(); {
		require.True(f.t, time.Now().Before(end), "%s: not in time", what)
		time.Sleep(20 * time.Millisecond)
		f.applyCommits(f.store.follow())
	}
}

// awaitAssigned waits until this many jobs are assigned evenly to all instances except
// those named, and no shard is moving.
func (f *fleet) awaitAssigned(jobs int, but ...string) {
	f.t.Helper()
	f.awaitCondition("all shards are assigned", func() bool {
		if len(f.plans) != jobs {
			return false
		}
		share := map[string]int{}
		for _, m := range f.members {
			share[m.name] = 0
		}
		for _, name := range but {
			delete(share, name)
		}
		members, shards := len(share), 0
		for _, p := range f.plans {
			assigned := 0
			for incarnation, owned := range p.Owners {
				share[nameIn(incarnation)] += owned.Len()
				assigned += owned.Len()
			}
			if assigned != p.Shards() || !p.Frozen.IsZero() {
				return false
			}
			shards += assigned
		}
		for n := range maps.Values(share) {
			if n < shards/members || n > (shards+members-1)/members {
				return false
			}
		}
		return len(share) == members
	})
}

// countUntilAssigned returns the requests until all jobs are assigned, and for a second
// after that.
func (f *fleet) countUntilAssigned(jobs int, but ...string) counts {
	f.t.Helper()
	f.log = nil
	f.awaitAssigned(jobs, but...)
	time.Sleep(time.Second)
	c := f.store.count(f.t)
	f.applyCommits(c.commits)
	c.commits = f.log
	return c
}

// commitsWith returns the commits with a key that contains part.
func commitsWith(part string, commits []judge.Commit) []judge.Commit {
	return slices.DeleteFunc(slices.Clone(commits), func(c judge.Commit) bool { return keysWith(c, part) == 0 })
}

// keysWith returns how many keys of a commit contain part.
func keysWith(c judge.Commit, part string) int {
	n := 0
	for _, op := range c.Then {
		if strings.Contains(string(op.Key), part) {
			n++
		}
	}
	return n
}

// bytesOf returns the size of a commit's keys and values.
func bytesOf(c judge.Commit) int {
	n := 0
	for _, op := range c.Then {
		n += len(op.Key) + len(op.Value)
	}
	return n
}

func jobs(n int, like executor.Job) []executor.Job {
	out := make([]executor.Job, n)
	for i := range out {
		out[i] = like
		out[i].Name = fmt.Sprintf("%s-%05d", like.Name, i)
	}
	return out
}

// idle returns a job whose runs do nothing.
func idle(shards int) executor.Job {
	return executor.Job{Name: "job", Shards: shards, Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil })}
}
