package executor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/schedule"
)

// defineAwake defines a job and stores the records that it has while it is awake. It returns the token of its creation.
func defineAwake(t *testing.T, server *memory.Server, namespace string, j executor.Job, kind string, kindRevision int) (created string) {
	t.Helper()
	keys, err := record.NewKeys(namespace, "default")
	require.NoError(t, err)
	created, j.Revision = record.NewToken(), 1
	def, err := executor.DefinitionOfKind(j, kind, kindRevision, created)
	require.NoError(t, err)
	now := record.InstantOf(time.Now())
	defined, err := record.Encode(&record.Defined{
		Job: j.Name, Created: created, Revision: 1, Definition: def, At: now, By: record.Act{At: now, What: "define"},
	})
	require.NoError(t, err)
	stored, err := record.Encode(def)
	require.NoError(t, err)
	segment := record.Segment(j.Name)
	ops := []registry.Op{registry.Create(keys.Defined(segment), defined), registry.Create(keys.Job(segment), stored)}
	if _, err := server.Client("console").Get(t.Context(), keys.KindCounts(), registry.ReadOptions{Fresh: true}); err != nil {
		ops = append(ops, registry.Create(keys.KindCounts(), []byte("{}")))
	}
	_, err = server.Client("console").Txn(t.Context(), registry.Txn{Then: ops})
	require.NoError(t, err)
	return created
}

// define is defineAwake on the server of the fleet, for a job that fires each minute unless it has another schedule.
func (f *fleet) define(j executor.Job, kind string) (created string) {
	f.t.Helper()
	if j.Schedule == (schedule.Schedule{}) {
		j.Schedule = schedule.Every(time.Minute)
	}
	return defineAwake(f.t, f.server, "test", j, kind, 0)
}

// undefine deletes a defined job.
func (f *fleet) undefine(job string) {
	f.t.Helper()
	require.NoError(f.t, f.operator().Delete(f.t.Context(), job))
	pass(time.Second) // the leader deletes its records
}

// withKinds starts an executor that has kinds and no job.
func (f *fleet) withKinds(name string, o executor.Options, kinds ...executor.Kind) *executor.Executor {
	f.t.Helper()
	e := f.bare(name, o)
	require.NoError(f.t, e.RegisterKind(kinds...))
	require.NoError(f.t, e.Start(f.t.Context()))
	time.Sleep(time.Second)
	return e
}

// mail is a kind whose runs are recorded.
func (f *fleet) mail(handle executor.HandlerFunc) executor.Kind {
	return executor.Kind{Name: "mail", Handler: f.job(1, handle).Handler}
}

// ran returns the recorded runs of a job.
func (f *fleet) ran(job string) (runs []executor.Run) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.runs {
		if r.Job == job {
			runs = append(runs, r)
		}
	}
	return runs
}

// owners returns the instances that own shards of a job, sorted.
func (f *fleet) owners(job string) (names []string) {
	f.t.Helper()
	synctest.Wait()
	st, err := f.operator().Status(f.t.Context(), job)
	require.NoError(f.t, err)
	for _, m := range st.Members {
		if len(m.Shards) > 0 {
			names = append(names, m.Instance)
		}
	}
	slices.Sort(names)
	return names
}

func TestKind(t *testing.T) {
	bubble(t, "a fleet runs a defined job, each shard of each fire once", func(t *testing.T, f *fleet) {
		for _, name := range []string{"a", "b", "c"} {
			f.withKinds(name, executor.Options{}, f.mail(takes(time.Second)))
		}
		created := f.define(executor.Job{Name: "digest", Shards: 6, Param: "to all", ShardParams: map[int]string{2: "two"}}, "mail")
		until(4)
		assert.Equal(t, []string{"a", "b", "c"}, f.owners("digest"))
		seen := map[string]bool{}
		for _, r := range f.ran("digest") {
			require.False(t, seen[r.Key], r.Key)
			seen[r.Key] = true
			assert.Equal(t, "mail", r.Kind)
			assert.Equal(t, created, r.Created)
			assert.Equal(t, "to all", r.Param)
			assert.Equal(t, map[bool]string{true: "two"}[r.Shard == 2], r.ShardParam)
			assert.Equal(t, fmt.Sprintf("test/default/digest@%s/%d/%s", created, r.Shard, r.FireTime.Format(time.RFC3339)), r.Key)
			assert.Equal(t, r.Key+"/1", r.ID)
			assert.True(t, strings.HasPrefix(r.Key, r.ShardKey()+"/"))
		}
		assert.Len(t, seen, 4*6)
	})
	bubble(t, "an instance without the kind owns no shard, though it leads, until it registers the kind", func(t *testing.T, f *fleet) {
		a := f.withKinds("a", executor.Options{})
		require.True(t, a.Stats().Leading)
		f.define(executor.Job{Name: "digest", Shards: 4}, "mail")
		time.Sleep(time.Second)
		assert.Empty(t, f.owners("digest"))
		b := f.withKinds("b", executor.Options{}, f.mail(takes(0)))
		until(2)
		assert.Equal(t, []string{"b"}, f.owners("digest"))
		assert.Len(t, f.ran("digest"), 8)

		require.NoError(t, a.RegisterKind(f.mail(takes(0))))
		pass(time.Second)
		assert.Equal(t, []string{"a", "b"}, f.owners("digest"))
		require.NoError(t, b.WithdrawKind(t.Context(), "mail"))
		pass(time.Second)
		assert.Equal(t, []string{"a"}, f.owners("digest"))
		require.NoError(t, b.RegisterKind(f.mail(takes(0))))
		pass(time.Second)
		assert.Equal(t, []string{"a", "b"}, f.owners("digest"))
		until(4)
		assert.Len(t, f.ran("digest"), 16)
	})
	bubble(t, "an instance with an older revision stays a candidate, except for jobs that demand a newer one", func(t *testing.T, f *fleet) {
		old, next := f.mail(takes(0)), f.mail(takes(0))
		old.Revision, next.Revision = 1, 2
		f.withKinds("a", executor.Options{}, old)
		f.withKinds("b", executor.Options{}, next)
		f.define(executor.Job{Name: "any", Shards: 4}, "mail")
		defineAwake(t, f.server, "test", executor.Job{Name: "newer", Shards: 4, Schedule: schedule.Every(time.Minute)}, "mail", 2)
		defineAwake(t, f.server, "test", executor.Job{Name: "newest", Shards: 4, Schedule: schedule.Every(time.Minute)}, "mail", 3)
		until(1)
		assert.Equal(t, []string{"a", "b"}, f.owners("any"))
		assert.Equal(t, []string{"b"}, f.owners("newer"))
		assert.Empty(t, f.owners("newest"))
		assert.Len(t, f.ran("newer"), 4)
		assert.Empty(t, f.ran("newest"))
	})
	bubble(t, "runs within the middleware of the kind, and that of the executor outside of it", func(t *testing.T, f *fleet) {
		var mu sync.Mutex
		var calls []string
		around := func(name string) executor.Middleware {
			calls = append(calls, "wrap "+name)
			return func(next executor.Handler) executor.Handler {
				return executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
					mu.Lock()
					calls = append(calls, name)
					mu.Unlock()
					return next.Handle(ctx, r)
				})
			}
		}
		kind := f.mail(takes(0))
		kind.Middleware = []executor.Middleware{around("kind")}
		f.withKinds("a", executor.Options{Middleware: []executor.Middleware{around("executor")}}, kind)
		f.define(executor.Job{Name: "one"}, "mail")
		f.define(executor.Job{Name: "two"}, "mail")
		until(1)
		assert.Equal(t, []string{"executor", "kind", "executor", "kind"}, slices.DeleteFunc(calls, func(c string) bool { return strings.HasPrefix(c, "wrap") }))
	})
	bubble(t, "a kind and a job of one name have nothing in common", func(t *testing.T, f *fleet) {
		e := f.withKinds("a", executor.Options{}, executor.Kind{Name: "job", MaxRunning: 1, Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error { return errors.New("of the kind") })})
		require.NoError(t, e.Register(f.job(3, takes(time.Second))))
		f.define(executor.Job{Name: "digest"}, "job")
		pass(time.Until(minute(1).Add(1500 * time.Millisecond)))
		st, err := f.operator().Status(t.Context(), "digest")
		require.NoError(t, err)
		assert.EqualValues(t, 1, st.Counts.Failed)
		assert.EqualValues(t, 3, f.status().Counts.Succeeded)
	})
}

func TestKind_Runs(t *testing.T) {
	bubble(t, "panic, are retried, and resume from checkpoints", func(t *testing.T, f *fleet) {
		f.withKinds("a", executor.Options{}, f.mail(func(ctx context.Context, r *executor.Run) error {
			data, err := r.Resume(ctx)
			if err != nil {
				return err
			}
			n, _ := strconv.Atoi(string(data))
			if err := r.Checkpoint(ctx, []byte(strconv.Itoa(n+1))); err != nil {
				return err
			}
			switch n {
			case 0:
				panic("first")
			case 1:
				return errors.New("second")
			}
			return nil
		}))
		f.define(executor.Job{Name: "digest", Retry: executor.Retry{Max: 3}}, "mail")
		pass(time.Until(minute(1).Add(30 * time.Second)))
		runs := f.ran("digest")
		require.Len(t, runs, 3)
		assert.Equal(t, executor.Retried, runs[2].Reason)
		assert.Equal(t, 2, runs[2].Retries)
		assert.Equal(t, runs[0].Key, runs[2].Key)
		st, err := f.operator().Status(t.Context(), "digest")
		require.NoError(t, err)
		assert.EqualValues(t, 1, st.Counts.Succeeded)
		assert.EqualValues(t, 2, st.Counts.Retried)
	})
	bubble(t, "have the parameter of a trigger, and can be cancelled", func(t *testing.T, f *fleet) {
		e := f.withKinds("a", executor.Options{}, f.mail(takes(time.Hour)))
		f.define(executor.Job{Name: "digest", Shards: 2, Param: "own", Schedule: schedule.Cron("0 0 1 1 *")}, "mail")
		time.Sleep(time.Second)
		_, err := e.Trigger(t.Context(), "digest", executor.Trigger{Param: "today", Shards: []int{1}})
		require.NoError(t, err)
		pass(time.Second)
		runs := f.ran("digest")
		require.Len(t, runs, 1)
		assert.Equal(t, "today", runs[0].Param)
		assert.Equal(t, 1, runs[0].Shard)
		assert.Regexp(t, `^test/default/digest@[a-z2-7]{13}/1/#1-[a-z2-7]{13}$`, runs[0].Key)
		_, err = e.Operator().Cancel(t.Context(), "digest")
		require.NoError(t, err)
		pass(time.Second)
		assert.Zero(t, e.Stats().Running)
	})
	bubble(t, "are handed back one by one while they wait for their instants of Spread", func(t *testing.T, f *fleet) {
		e := f.withKinds("a", executor.Options{}, f.mail(takes(0)))
		f.define(executor.Job{Name: "digest", Shards: 4, Schedule: schedule.Every(time.Minute).Spread(50 * time.Second)}, "mail")
		until(1)
		require.NotEmpty(t, e.Waiting()["digest"].Shards)
		require.NoError(t, f.operator().Pause(t.Context(), "digest"))
		pass(time.Second)
		assert.Empty(t, e.Waiting())
		require.NoError(t, f.operator().Resume(t.Context(), "digest"))
		until(4)
		for _, r := range f.ran("digest") {
			assert.Equal(t, "mail", r.Kind)
		}
	})
	bubble(t, "of all jobs of the kind together are bounded by its MaxRunning, the earliest fires first", func(t *testing.T, f *fleet) {
		var mu sync.Mutex
		busy, most := 0, 0
		kind := f.mail(func(ctx context.Context, r *executor.Run) error {
			mu.Lock()
			busy++
			most = max(most, busy)
			mu.Unlock()
			defer func() {
				mu.Lock()
				busy--
				mu.Unlock()
			}()
			return takes(10*time.Second)(ctx, r)
		})
		kind.MaxRunning = 3
		log := &logbook{}
		e := f.withKinds("a", executor.Options{Logger: log.logger(slog.LevelInfo)}, kind)
		for i := range 20 {
			f.define(executor.Job{Name: fmt.Sprint("job-", i), Shards: 1 + i%2}, "mail")
		}
		until(1)
		s := e.Stats()
		assert.Equal(t, 3, s.Running)
		assert.Equal(t, 27, s.Waiting)
		for name, j := range s.Jobs {
			assert.Equal(t, "mail", j.Kind, name)
		}
		assert.Len(t, s.Jobs, 20)
		waiting := e.Waiting()
		assert.GreaterOrEqual(t, len(waiting), 17)
		for _, w := range waiting {
			assert.Equal(t, "MaxRunning 3 of kind mail", w.Behind)
		}
		pass(20 * time.Second)
		assert.NotEmpty(t, log.lines(`remedy="raise MaxRunning of the kind, or start more instances"`))
		until(4)
		assert.Equal(t, 3, most)
		f.mu.Lock()
		defer f.mu.Unlock()
		assert.True(t, slices.IsSortedFunc(f.runs, func(a, b executor.Run) int { return a.FireTime.Compare(b.FireTime) }))
	})
	bubble(t, "that fail are logged in two lines for a kind and interval, for any number of jobs", func(t *testing.T, f *fleet) {
		log := &logbook{}
		f.withKinds("a", executor.Options{Logger: log.logger(slog.LevelInfo)}, f.mail(func(context.Context, *executor.Run) error { return errors.New("no") }))
		for i := range 10 {
			f.define(executor.Job{Name: fmt.Sprint("job-", i)}, "mail")
		}
		until(1)
		pass(20 * time.Second)
		first, more := log.lines(`msg="run failed"`), log.lines(`msg="more runs failed"`)
		require.Len(t, first, 1)
		assert.Regexp(t, `job=job-\d run=\S+ kind=mail`, first[0])
		require.Len(t, more, 1)
		assert.Contains(t, more[0], "kind=mail count=9")
	})
	bubble(t, "are observed with their kind, as are shards and skipped fires", func(t *testing.T, f *fleet) {
		var mu sync.Mutex
		kinds := map[string]int{}
		see := func(event, kind string) {
			mu.Lock()
			defer mu.Unlock()
			kinds[event+" "+kind]++
		}
		f.observe = executor.Observer{
			RunClaimed: func(e executor.RunClaimed) { see("claimed", e.Run.Kind) }, RunBegun: func(e executor.RunBegun) { see("begun", e.Run.Kind) },
			RunEnded: func(e executor.RunEnded) { see("ended", e.Run.Kind) }, ShardsChanged: func(e executor.ShardsChanged) { see("shards", e.Kind) },
			FiresSkipped: func(e executor.FiresSkipped) { see("skipped", e.Kind) },
		}
		f.withKinds("a", executor.Options{}, f.mail(takes(time.Minute+30*time.Second)))
		f.define(executor.Job{Name: "digest", OnOverlap: executor.SkipOverlapping}, "mail")
		until(3)
		require.NoError(t, f.members[0].Shutdown(t.Context())) // the shard was gained, is about to move, and moves
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, map[string]int{"claimed mail": 2, "begun mail": 2, "ended mail": 2, "shards mail": 3, "skipped mail": 1}, kinds)
	})
}

func TestKind_KeysDifferBetweenCreationsOfAName(t *testing.T) {
	bubble(t, "and so do those of shards, and IDs", func(t *testing.T, f *fleet) {
		seen := map[string]bool{}
		for range 3 {
			e := f.withKinds("a", executor.Options{}, f.mail(takes(0)))
			_, err := e.Operator().Define(t.Context(), operator.Definition{Name: "remind", Kind: "mail", Schedule: schedule.Every(24 * time.Hour)})
			require.NoError(t, err)
			defined, err := e.Operator().Definition(t.Context(), "remind")
			require.NoError(t, err)
			created := defined.Creation
			time.Sleep(time.Second)
			_, err = e.Trigger(t.Context(), "remind", executor.Trigger{})
			require.NoError(t, err)
			pass(time.Second)
			f.undefine("remind")
			require.NoError(t, e.Shutdown(t.Context()))
			r := f.ran("remind")[len(seen)/3]
			assert.Equal(t, created, r.Created)
			for _, key := range []string{r.Key, r.ShardKey(), r.ID} {
				assert.Contains(t, key, "test/default/remind@"+created+"/0")
				assert.False(t, seen[key], key)
				seen[key] = true
			}
		}
		assert.Len(t, f.ran("remind"), 3)
	})
}

func TestKind_OfADefinedJobWithTheNameOfARegisteredOne(t *testing.T) {
	bubble(t, "the defined job goes on, and the registered one is not stored", func(t *testing.T, f *fleet) {
		log := &logbook{}
		e := f.withKinds("a", executor.Options{Logger: log.logger(slog.LevelInfo)}, f.mail(takes(0)))
		f.define(executor.Job{Name: "job"}, "mail")
		time.Sleep(time.Second)
		registered := f.job(1, func(context.Context, *executor.Run) error { return errors.New("registered") })
		registered.Revision = 7
		require.NoError(t, e.Register(registered))
		until(2)
		runs := f.ran("job")
		require.Len(t, runs, 2)
		assert.Equal(t, "mail", runs[1].Kind)
		assert.EqualValues(t, 2, f.status().Counts.Succeeded)
		assert.NotEmpty(t, log.lines("level=ERROR", `msg="definition not stored: a job of its name is defined as data, and goes on"`, "job=job kind=mail"))
	})
}

func TestKind_OfEventsOfTheLeader(t *testing.T) {
	bubble(t, "crashed runs have the key of the run that its owner began, and ended fires have the kind", func(t *testing.T, f *fleet) {
		var crashed []executor.RunCrashed
		var ended []executor.FireEnded
		f.observe = executor.Observer{
			RunCrashed: func(e executor.RunCrashed) { crashed = append(crashed, e) }, FireEnded: func(e executor.FireEnded) { ended = append(ended, e) },
		}
		f.withKinds("a", executor.Options{})
		f.withKinds("b", executor.Options{}, f.mail(takes(5*time.Second)))
		f.define(executor.Job{Name: "digest", Schedule: schedule.Every(2 * time.Minute), MaxAttempts: 1}, "mail")
		f.define(executor.Job{Name: "after", Schedule: schedule.AfterJob("digest").OnEnd()}, "mail")
		until(3)
		require.NotEmpty(t, ended)
		assert.Equal(t, "mail", ended[0].Kind)
		until(4)
		f.server.Partition("b")
		until(6)
		require.Len(t, crashed, 1)
		assert.Equal(t, "mail", crashed[0].Run.Kind)
		runs := f.ran("digest")
		assert.Equal(t, runs[1].Key, crashed[0].Run.Key)
		assert.Equal(t, runs[1].Created, crashed[0].Run.Created)
	})
}

func TestKind_FailsOver(t *testing.T) {
	rotatest.Run(t, func(f *rotatest.Fleet) {
		t := f.T()
		var mu sync.Mutex
		var attempts []string
		kind := executor.Kind{Name: "mail", Handler: executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
			mu.Lock()
			attempts = append(attempts, fmt.Sprint(r.Key, r.Attempt))
			mu.Unlock()
			return takes(20*time.Second)(ctx, r)
		})}
		var last *executor.Executor
		for _, name := range []string{"b", "c", "a"} {
			last = f.Start(name)
			require.NoError(t, last.RegisterKind(kind))
		}
		defineAwake(t, f.Server(), rotatest.Namespace, executor.Job{Name: "digest", Shards: 6, Schedule: schedule.Every(time.Minute)}, "mail", 0)
		time.Sleep(time.Until(minute(1).Add(5 * time.Second)))
		f.Crash("b")
		time.Sleep(time.Until(minute(3).Add(50 * time.Second)))
		mu.Lock()
		defer mu.Unlock()
		again := 0
		for _, a := range attempts {
			if strings.HasSuffix(a, "Z2") {
				again++
				assert.Contains(t, attempts, strings.TrimSuffix(a, "2")+"1", "the key of the re-run is that of the run")
			}
		}
		assert.Equal(t, 2, again)
		st, err := last.Operator().Status(t.Context(), "digest")
		require.NoError(t, err)
		assert.EqualValues(t, 18, st.Counts.Succeeded)
	})
}

func TestRegisterKind(t *testing.T) {
	handler := executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil })
	bubble(t, "stores the defaults of the highest revision", func(t *testing.T, f *fleet) {
		stored := func() *record.Kind {
			synctest.Wait()
			keys, err := record.NewKeys("test", "default")
			require.NoError(t, err)
			e, err := f.server.Client("console").Get(t.Context(), keys.Kind("mail"), registry.ReadOptions{})
			require.NoError(t, err)
			k, err := record.DecodeKind(e.Value)
			require.NoError(t, err)
			return k
		}
		first := executor.Kind{Name: "mail", Description: "<sends>", Handler: handler, Revision: 1, MaxJobs: 50, Defaults: executor.Job{Param: "<p>", Timeout: time.Minute}}
		log := &logbook{}
		a := f.withKinds("a", executor.Options{Logger: log.logger(slog.LevelInfo)}, first)
		k := stored()
		assert.Equal(t, `{"param":"<p>","timeout":"1m"}`, string(k.Defaults))
		assert.Equal(t, "<sends>", k.Description)
		assert.Equal(t, 50, k.MaxJobs)
		assert.Equal(t, 1, k.Revision)
		second := first
		second.Revision, second.Defaults = 2, executor.Job{Tracking: executor.TrackClaims, Shards: 3}
		require.NoError(t, a.RegisterKind(second))
		assert.Equal(t, `{"shards":3,"tracking":"claims"}`, string(stored().Defaults))
		assert.Empty(t, log.lines("kind registered again"))
		f.withKinds("b", executor.Options{}, first)
		assert.Equal(t, 2, stored().Revision)
		require.NoError(t, a.RegisterKind(first))
		assert.Len(t, log.lines("kind registered again; the newer one replaces the earlier one"), 1)
	})
	bubble(t, "after a shutdown fails", func(t *testing.T, f *fleet) {
		e := f.withKinds("a", executor.Options{})
		require.NoError(t, e.Shutdown(t.Context()))
		assert.ErrorContains(t, e.RegisterKind(executor.Kind{Name: "mail", Handler: handler}), "has been shut down")
	})
	bubble(t, "copies the kinds", func(t *testing.T, f *fleet) {
		kind := executor.Kind{Name: "mail", Handler: handler, Defaults: executor.Job{RunOn: map[string]string{"zone": "a"}}}
		e := f.withKinds("a", executor.Options{}, kind)
		kind.Defaults.RunOn["zone"] = "b"
		require.NoError(t, e.WithdrawKind(t.Context(), "mail"))
	})
	bubble(t, "is undone by WithdrawKind, which names unknown kinds", func(t *testing.T, f *fleet) {
		e := f.withKinds("a", executor.Options{}, executor.Kind{Name: "mail", Handler: handler})
		err := e.WithdrawKind(t.Context(), "mail", "post")
		require.ErrorIs(t, err, executor.ErrUnknownKind)
		assert.EqualError(t, err, `withdraw kind "post": unknown kind`)
	})
}
