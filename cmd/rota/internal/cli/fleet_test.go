package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// fleet is a fleet in a bubble, on a registry in memory, which the tested commands reach.
type fleet struct {
	t       *testing.T
	server  *memory.Server
	members []*executor.Executor
	env     map[string]string
	wrap    func(registry.Registry) registry.Registry // around the handle of a command
}

// inFleet calls f with a fleet without instances, in a bubble whose time begins at 2000-01-01.
func inFleet(t *testing.T, f func(*testing.T, *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		all := &fleet{t: t, server: memory.New(), env: map[string]string{
			"ROTA_REGISTRY": "etcd://store", "ROTA_NAMESPACE": "billing", "ROTA_CONFIG": t.TempDir() + "/config.yaml",
			"ROTA_BY": "kim",
		}}
		defer func() {
			for _, e := range all.members {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				_ = e.Shutdown(ctx)
				cancel()
			}
		}()
		f(t, all)
	})
}

// start starts an instance on a host of its own.
func (f *fleet) start(name string, labels map[string]string, jobs ...executor.Job) *executor.Executor {
	f.t.Helper()
	return f.startWith(f.server.Client(name), executor.Options{Instance: name, Labels: labels, Logger: slog.New(slog.DiscardHandler)}, jobs...)
}

// startWith is start with a handle and options.
func (f *fleet) startWith(reg registry.Registry, o executor.Options, jobs ...executor.Job) *executor.Executor {
	f.t.Helper()
	o.Host, o.Workers, o.DrainTimeout = strings.Replace(o.Instance, "web", "n", 1), 64, time.Second
	e, err := executor.New(reg, "billing", o)
	require.NoError(f.t, err)
	require.NoError(f.t, e.Register(jobs...))
	f.members = append(f.members, e)
	require.NoError(f.t, e.Start(f.t.Context()))
	time.Sleep(time.Second)
	return e
}

// result is what a command line printed.
type result struct {
	code     int
	out, err string
}

// run runs a command line, whose words are separated by spaces; a word in single quotes may have some.
func (f *fleet) run(line string) result {
	f.t.Helper()
	return f.runContext(f.t.Context(), line, "")
}

var word = regexp.MustCompile(`'[^']*'|[^ ]+`)

func (f *fleet) runContext(ctx context.Context, line, input string) result {
	f.t.Helper()
	r := f.runUnedited(ctx, line, input)
	return result{r.code, stable(r.out), stable(r.err)}
}

// runUnedited is runContext with output that differs from run to run.
func (f *fleet) runUnedited(ctx context.Context, line, input string) result {
	f.t.Helper()
	var args []string
	for _, w := range word.FindAllString(line, -1) {
		args = append(args, strings.Trim(w, "'"))
	}
	s := settings.New(nil)
	s.Getenv = func(name string) string { return f.env[name] }
	s.OpenRegistry = func(context.Context, string, registryurl.Options) (registry.Registry, error) {
		var reg registry.Registry = f.server.Client("console")
		if f.wrap != nil {
			reg = f.wrap(reg)
		}
		return reg, nil
	}
	var out, errs bytes.Buffer
	code := run(ctx, s, args, Streams{In: strings.NewReader(input), Out: &out, Err: &errs})
	return result{code, out.String(), errs.String()}
}

// steady replaces what differs from run to run in the records that a command reads: terms and process
// IDs. So tables have the same widths each time.
type steady struct{ registry.Registry }

var unsteady = regexp.MustCompile(`"(term|pid)":\d+`)

func (s steady) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	e, err := s.Registry.Get(ctx, key, o)
	return settle(e), err
}

func (s steady) List(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
	l, err := s.Registry.List(ctx, dir, o)
	for i := range l.Entries {
		l.Entries[i] = settle(l.Entries[i])
	}
	return l, err
}

func (s steady) Watch(ctx context.Context, dir registry.Key, o registry.WatchOptions) (registry.Watcher, error) {
	w, err := s.Registry.Watch(ctx, dir, o)
	return steadyWatcher{w}, err
}

type steadyWatcher struct{ registry.Watcher }

func (w steadyWatcher) Next(ctx context.Context) (registry.Batch, error) {
	b, err := w.Watcher.Next(ctx)
	for i := range b.Puts {
		b.Puts[i] = settle(b.Puts[i])
	}
	return b, err
}

func settle(e registry.Entry) registry.Entry {
	e.Value = unsteady.ReplaceAll(e.Value, []byte(`"$1":88017`))
	if e.Key.Name() == "leader" {
		e.Modified.Seq = 88017
	}
	return e
}

var sessionID = regexp.MustCompile(`\b[A-Z2-7]{26}\b`)

// stable replaces the names of sessions, in the order in which they appear.
func stable(text string) string {
	names := map[string]string{}
	return sessionID.ReplaceAllStringFunc(text, func(id string) string {
		if names[id] == "" {
			names[id] = fmt.Sprintf("SESSION-%018d", len(names)+1)
		}
		return names[id]
	})
}

// incident is the fleet of the screens: three instances and six jobs, of which some are in trouble. It ends
// at 01:09:12.
func incident(f *fleet) {
	f.t.Helper()
	f.wrap = func(reg registry.Registry) registry.Registry { return steady{reg} }
	ok := executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil })
	jobs := []executor.Job{
		{
			Name: "settle", Description: "settles each region at night", Revision: 7, Schedule: schedule.Cron("0 3 * * *").In("Asia/Shanghai"),
			Shards: 3, Param: "secret", CatchupWindow: 6 * time.Hour, Timeout: 90 * time.Minute,
			Retry: executor.Retry{Max: 2, Initial: 30 * time.Second, MaxInterval: 10 * time.Minute}, Handler: ok,
		},
		{Name: "tenants", Schedule: schedule.Every(time.Minute), Shards: 16, Handler: executor.HandlerFunc(tenants)},
		{Name: "rebuild", Schedule: schedule.Cron("*/10 * * * *"), Shards: 12, Handler: ok},
		{Name: "invoices", Schedule: schedule.Cron("0 * * * *"), Shards: 8, RunOn: map[string]string{"gpu": "yes"}, Handler: ok},
		{Name: "export", Schedule: schedule.OnTrigger(), Param: "all", Handler: ok},
		{Name: "backup", Schedule: schedule.Cron("30 * * * *"), Shards: 2, StartPaused: true, Handler: ok},
	}
	f.start("web-1", map[string]string{"zone": "a"}, jobs...)
	f.start("web-2", map[string]string{"zone": "a"}, jobs...)
	f.start("web-3", map[string]string{"zone": "b"}, jobs...)
	time.Sleep(12*time.Minute - 3*time.Second)
	for _, line := range []string{
		"pause rebuild --reason 'new tables'", "trigger export --param west", "disable tenants --shards 9",
	} {
		r := f.run(line)
		require.Zero(f.t, r.code, r.err)
	}
	time.Sleep(57*time.Minute + 12*time.Second)
}

// tenants fails in shard 7, and has run in shard 11 since 01:08.
func tenants(ctx context.Context, r *executor.Run) error {
	switch {
	case r.Shard == 7:
		return errors.New("POST https://tenants.internal/poll/7: 503 Service Unavailable")
	case r.Shard == 11 && r.FireTime.Hour() == 1 && r.FireTime.Minute() == 8:
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return nil
}
