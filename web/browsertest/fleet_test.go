package browsertest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/conformance/child"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/etcd"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
	"github.com/rota-dev/rota/web"
)

var storeFlag = flag.String("store", "memory", "`store` of the fleets: memory, or etcd with a process for each instance")

const (
	namespace = "billing"
	// markup is the parameter of a job. As text it does nothing.
	markup = `<img src=x onerror="alert('a parameter')">`
	// oddJob is a name that has to be escaped in addresses, in markup and in attributes.
	oddJob = `50% off/2 <b>"bold"</b>?x=1&y#z`
	// oddDefined is such a name of a job that is defined as data.
	oddDefined = "new/" + oddJob
	// secret is in an error and in parameters, which not every role may see.
	secret = "password=hunter2"
)

// members are the instances of each fleet, with their labels.
var members = map[string]map[string]string{"web-1": {"zone": "a"}, "web-2": {"zone": "a"}, "web-3": {"zone": "b"}}

// memberOptions returns the options of an instance. Its sessions are short, so that tests of crashes are too.
func memberOptions(name string) executor.Options {
	return executor.Options{
		Instance: name, Host: "host-" + strings.TrimPrefix(name, "web-"), Labels: members[name], SessionTTL: 3 * time.Second,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

// jobs are the jobs of each fleet. Runs of export last until the fleet ends, and log the lines that they get.
func jobs(exported <-chan string) []executor.Job {
	succeed := executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil })
	return []executor.Job{
		{
			Name: "settle", Description: "settles each region at night", Schedule: schedule.Cron("0 3 * * *").In("Asia/Shanghai"),
			Shards: 3, ShardParams: map[int]string{0: "Beijing", 1: "Shanghai", 2: "Guangzhou"}, Timeout: time.Hour, Handler: succeed,
		},
		{Name: "report", Schedule: schedule.AfterJob("settle"), Handler: succeed},
		{
			Name: "mail", Schedule: schedule.AfterJob("settle"), Shards: 2,
			Handler: executor.HandlerFunc(func(_ context.Context, r *executor.Run) error {
				if r.Shard == 1 {
					return errors.New("no route to host")
				}
				return nil
			}),
		},
		{
			Name: "tenants", Description: "polls each tenant", Schedule: schedule.Cron("0 4 * * *"), Shards: 64, Param: secret,
			Handler: executor.HandlerFunc(func(_ context.Context, r *executor.Run) error {
				if r.Shard == 7 || r.Shard == 41 {
					return errors.New("HTTP 503 from <script>alert('an error')</script>, " + secret)
				}
				return nil
			}),
		},
		{Name: "rebuild", Schedule: schedule.Cron("*/10 * * * *"), Shards: 12, Handler: succeed},
		{Name: "invoices", Schedule: schedule.Cron("0 * * * *"), Shards: 8, RunOn: map[string]string{"gpu": "yes"}, Handler: succeed},
		{
			Name: "export",
			Handler: executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
				for {
					select {
					case line := <-exported:
						r.Logger().Info(line)
					case <-ctx.Done():
						return ctx.Err()
					}
				}
			}),
		},
		{Name: oddJob, Param: markup, Handler: succeed},
	}
}

// reminder is the kind of the jobs that are defined as data.
func reminder() executor.Kind {
	return executor.Kind{Name: "reminder", Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil })}
}

// fleet is a group whose jobs are in fixed states.
type fleet struct {
	op *operator.Operator
	// kill ends an instance without a word to the others.
	kill func(instance string)
	// stopStore stops the store until the returned function is called.
	stopStore func() (resume func())
	history   history.Reader // nil if there is none
	exported  chan<- string  // lines for the log of the run of export; nil if it is of another process
}

// startFleet starts a fleet that ends with the test.
func startFleet(t testing.TB) *fleet {
	t.Helper()
	var f *fleet
	switch *storeFlag {
	case "memory":
		f = startInMemory(t)
	case "etcd":
		f = startOnEtcd(t)
	default:
		t.Fatalf("no store %q", *storeFlag)
	}
	f.bringAbout(t)
	return f
}

func startInMemory(t testing.TB) *fleet {
	server, ring, exported := memory.New(), history.NewRing(1000), make(chan string)
	for name := range members {
		ex, err := executor.New(server.Client(name), namespace, memberOptions(name))
		require.NoError(t, err)
		require.NoError(t, ex.Register(jobs(exported)...))
		require.NoError(t, ex.RegisterKind(reminder()))
		recorder := history.New(ring, history.Options{Namespace: namespace, Instance: name})
		t.Cleanup(func() { _ = recorder.Shutdown(context.Background()) })
		ex.Observe(recorder.Observer())
		require.NoError(t, ex.Start(t.Context()))
		t.Cleanup(func() {
			ended, cancel := context.WithCancel(context.Background())
			cancel() // runs end at once
			_ = ex.Shutdown(ended)
		})
	}
	kill := func(name string) {
		server.Partition(name)
		server.Expire(name)
	}
	return &fleet{op: newOperator(t, server.Client("console")), kill: kill, stopStore: server.Pause, history: ring.Reader(namespace, "default"), exported: exported}
}

// memberVariable makes this binary an instance of a fleet.
const memberVariable = "ROTA_BROWSERTEST_MEMBER"

// runMember runs an instance until the process is killed.
func runMember(setting string) error {
	name, rest, _ := strings.Cut(setting, " ")
	endpoint, space, _ := strings.Cut(rest, " ")
	reg, err := etcd.Open(context.Background(), etcd.Options{Endpoints: []string{endpoint}, Namespace: space})
	if err != nil {
		return err
	}
	ex, err := executor.New(reg, namespace, memberOptions(name))
	if err != nil {
		return err
	}
	if err := ex.Register(jobs(nil)...); err != nil {
		return err
	}
	if err := ex.RegisterKind(reminder()); err != nil {
		return err
	}
	return ex.Run(context.Background())
}

// fleets counts the fleets on etcd, which share a server.
var fleets atomic.Int64

func startOnEtcd(t testing.TB) *fleet {
	cluster := servertest.Etcd(t)
	endpoint, space := cluster.Addrs()[0], fmt.Sprintf("/fleet%d", fleets.Add(1))
	reg, err := etcd.Open(t.Context(), etcd.Options{Endpoints: []string{endpoint}, Namespace: space})
	require.NoError(t, err)
	t.Cleanup(func() { _ = reg.Close(context.Background()) })
	processes := map[string]*child.Process{}
	for name := range members {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), memberVariable+"="+strings.Join([]string{name, endpoint, space}, " "))
		cmd.Stderr = os.Stderr
		p, err := child.Start(cmd)
		require.NoError(t, err)
		t.Cleanup(p.Kill)
		processes[name] = p
	}
	stopStore := func() func() {
		m := cluster.Members()[0]
		require.NoError(t, m.Pause())
		return func() { require.NoError(t, m.Resume()) }
	}
	return &fleet{op: newOperator(t, reg), kill: func(name string) { processes[name].Kill() }, stopStore: stopStore}
}

func newOperator(t testing.TB, reg registry.Registry) *operator.Operator {
	op, err := operator.New(reg, namespace, "")
	require.NoError(t, err)
	return op.WithCompiler(executor.Compile)
}

// bringAbout brings the jobs into their states: tenants and mail fail, rebuild is paused, invoices has no owner, export runs, settle is fine.
func (f *fleet) bringAbout(t testing.TB) {
	t.Helper()
	f.await(t, "all shards have owners", func(st operator.GroupStatus) bool {
		return len(st.Instances) == len(members) && len(st.Jobs) == len(jobs(nil)) && !slices.ContainsFunc(st.Jobs, func(j operator.JobSummary) bool {
			return j.Shards == 0 || j.Unowned > 0 && j.Job != "invoices"
		})
	})
	kim := f.op.As("kim", `move of the <i>archive</i> & "more"`)
	require.NoError(t, kim.Pause(t.Context(), "rebuild"))
	require.NoError(t, kim.Disable(t.Context(), operator.Scope{Job: "tenants", Shards: []int{42}}))
	_, err := kim.Define(t.Context(), operator.Definition{Name: "acme/reminder", Kind: "reminder", Param: secret, Description: oddJob}, operator.AllowUnknownKind())
	require.NoError(t, err)
	for _, job := range []string{"settle", "tenants", "export"} {
		_, err := f.op.As("robin", "a look").Trigger(t.Context(), job, "", nil)
		require.NoError(t, err)
	}
	f.await(t, "the jobs have run", func(st operator.GroupStatus) bool {
		return jobIn(st, "settle").Counts.Succeeded == 3 && slices.Equal(jobIn(st, "tenants").Failing, []int{7, 41}) && jobIn(st, "tenants").Running == 0 &&
			jobIn(st, "report").Counts.Succeeded == 1 && slices.Equal(jobIn(st, "mail").Failing, []int{1}) &&
			jobIn(st, "export").Running == 1 && jobIn(st, "rebuild").Paused
	})
	if f.history != nil {
		require.Eventually(t, func() bool {
			failures, err := f.history.Failures(t.Context(), history.RunsQuery{})
			return err == nil && len(failures) == 3
		}, time.Minute, 10*time.Millisecond, "history has the failed runs")
	}
}

// jobIn returns the summary of a job.
func jobIn(st operator.GroupStatus, job string) operator.JobSummary {
	for _, j := range st.Jobs {
		if j.Job == job {
			return j
		}
	}
	return operator.JobSummary{}
}

// await waits until a condition holds.
func (f *fleet) await(t testing.TB, what string, holds func(operator.GroupStatus) bool) operator.GroupStatus {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	v, err := f.op.Watch(ctx)
	require.NoError(t, err)
	defer v.Close()
	for {
		changed := v.Changed()
		st := v.Status()
		if holds(st) {
			return st
		}
		select {
		case <-changed:
			require.NoError(t, v.Err())
		case <-ctx.Done():
			t.Fatalf("after a minute, it does not hold that %s: %+v", what, st)
		}
	}
}

// prefix is where the console is mounted.
const prefix = "/ops/rota/"

// mount serves the console of a fleet below the prefix to a user kim with a role, and returns its address. Each of wrap gets the requests
// before the console.
func (f *fleet) mount(t testing.TB, role web.Role, wrap ...func(http.Handler) http.Handler) string {
	t.Helper()
	console, err := web.New(f.op, web.Options{
		History:   f.history,
		Authorize: func(*http.Request) (web.User, error) { return web.User{Name: "kim", Role: role}, nil },
		Acts:      true,
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	require.NoError(t, err)
	t.Cleanup(console.Close)
	handler := http.StripPrefix(strings.TrimSuffix(prefix, "/"), console)
	for _, w := range wrap {
		handler = w(handler)
	}
	mux := http.NewServeMux()
	mux.Handle(prefix, handler)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections) // of streams, which do not end by themselves
	return s.URL + prefix
}

func readAll(t testing.TB, res *http.Response) string {
	t.Helper()
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(body)
}
