//go:build !race

// The race detector makes the reading of megabytes ten times slower, and nothing here depends on it.

package fleet

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/internal/test/hostile"
	"github.com/rota-dev/rota/registry"
)

// attack writes hostile records into the store of a fleet.
type attack struct {
	*Fleet
	t       *testing.T
	reg     registry.Registry
	keys    record.Keys
	began   map[string][]time.Time  // by job
	records map[registry.Key]string // the job that each hostile record belongs to
	put     func(a *attack, key registry.Key, value []byte)
}

func TestFleet_RunsOnBesideHostileRecords(t *testing.T) {
	for name, store := range map[string]struct {
		start func(ctx context.Context, members int) (*Server, error)
		put   func(a *attack, key registry.Key, value []byte)
	}{"etcd": {Etcd, (*attack).putEtcd}, "zookeeper": {ZooKeeper, (*attack).putZooKeeper}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of the time is spent waiting
			server, err := store.start(t.Context(), 1)
			require.NoError(t, err)
			defer server.Stop()
			a := startAttack(t, server)
			a.put = store.put
			defer a.Close()
			a.inject()
			a.observe("beside hostile records", late)
			a.requireNamed()
			for i := range a.slots {
				a.slots[i].Kill()
				require.NoError(t, a.Replace(i))
			}
			a.requireRuns(a.Small)
			a.observe("after a start beside hostile records", 5*time.Second)
			a.remove()
			a.requireRuns(a.Jobs + a.Small)
		})
	}
}

func startAttack(t *testing.T, server *Server) *attack {
	jobs := 0
	for _, records := range hostile.Records() {
		jobs += len(records)
	}
	f, err := Start(t.Context(), server, Config{
		Instances: 2, Jobs: jobs, Shards: 2, Every: time.Second, Takes: 10 * time.Millisecond, Small: 12,
		TTL: 5 * time.Second, Drain: 10 * time.Second, Dir: t.TempDir(),
	})
	require.NoError(t, err)
	reg, err := registryurl.Open(t.Context(), server.URL(server.Addrs()), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { reg.Close(t.Context()) })
	keys, err := record.NewKeys("fleet", "default")
	require.NoError(t, err)
	a := &attack{Fleet: f, t: t, reg: reg, keys: keys, began: map[string][]time.Time{}, records: map[registry.Key]string{}}
	a.requireRuns(a.Jobs + a.Small)
	return a
}

// inject writes a hostile record for each job, and plans of jobs that nobody offers.
func (a *attack) inject() {
	jobs := 0
	all := hostile.Records()
	for kind, records := range all {
		for _, r := range records {
			job := jobName(jobs)
			jobs++
			switch kind {
			case "plan":
				a.write(a.keys.Plan(job), job, r.Of(job))
			case "control":
				a.write(a.keys.Control(job), job, r.Of(job))
			case "definition":
				a.write(a.keys.Job(job), job, r.Of(job))
			case "claims":
				a.write(a.keys.Claims("ghost.none", job), job, r.Of(job))
			case "group control":
				a.write(a.keys.GroupControl(), "", r.Of(job))
			case "meta": // which only processes that start read, and refuse
			default:
				a.t.Errorf("no key for the kind %q", kind)
			}
		}
	}
	for i := range 60 {
		for prefix, reason := range map[string]string{"foreign": "inflate: longer than", "epochs": `"epochs": a list of more than`} {
			job := fmt.Sprintf("%s-%02d", prefix, i)
			a.write(a.keys.Plan(job), "", all["plan"][reason].Of(job))
		}
	}
}

func (a *attack) write(key registry.Key, job string, value []byte) {
	a.records[key] = job
	if len(value) > a.reg.Limits().ValueBytes {
		a.put(a, key, value)
		return
	}
	a.apply(key, func(e registry.Entry, exists bool) (registry.Op, bool) {
		if exists {
			return registry.Set(key, e.Modified, value), true
		}
		return registry.Create(key, value), true
	})
}

// putEtcd overwrites a value by the store's own client, which knows no limits of a registry.
func (a *attack) putEtcd(key registry.Key, value []byte) {
	client, err := clientv3.New(clientv3.Config{Endpoints: a.Server.Addrs(), Logger: zap.NewNop()})
	require.NoError(a.t, err)
	defer client.Close()
	path := root + "/" + string(key.Dir()) + "//" + key.Name()
	old, err := client.Get(a.t.Context(), path)
	require.NoError(a.t, err)
	require.Len(a.t, old.Kvs, 1, "%s", path)
	heading, _, _ := bytes.Cut(old.Kvs[0].Value, []byte("\n")) // of the registry
	_, err = client.Put(a.t.Context(), path, string(heading)+"\n"+string(value))
	require.NoError(a.t, err)
}

func (a *attack) putZooKeeper(key registry.Key, value []byte) {
	conn, events, err := zk.Connect(a.Server.Addrs(), 10*time.Second, zk.WithLogInfo(false))
	require.NoError(a.t, err)
	defer func() {
		conn.Close()
		for range events { // waits for the library's goroutines
		}
	}()
	content, _, err := conn.Get(root + "/" + string(key))
	require.NoError(a.t, err)
	heading, _, _ := bytes.Cut(content, []byte("\n")) // of the registry
	_, err = conn.Set(root+"/"+string(key), slices.Concat(heading, []byte("\n"), value), -1)
	require.NoError(a.t, err)
}

// remove deletes all hostile records that are left.
func (a *attack) remove() {
	for key := range a.records {
		a.apply(key, func(e registry.Entry, exists bool) (registry.Op, bool) {
			return registry.Delete(key, e.Modified), exists
		})
	}
}

// apply applies what edit makes of the entry of a key, until nobody else changes it meanwhile.
func (a *attack) apply(key registry.Key, edit func(e registry.Entry, exists bool) (registry.Op, bool)) {
	for {
		e, err := a.reg.Get(a.t.Context(), key, registry.ReadOptions{Fresh: true})
		if err != nil {
			require.ErrorIs(a.t, err, registry.ErrNotFound)
		}
		op, ok := edit(e, err == nil)
		if !ok {
			return
		}
		if _, err = registry.Apply(a.t.Context(), a.reg, registry.Txn{Then: []registry.Op{op}}); err == nil {
			return
		}
		require.ErrorIs(a.t, err, registry.ErrConflict, "%s", key)
	}
}

// read adds the begins of runs.
func (a *attack) read() {
	events, err := a.readReports()
	require.NoError(a.t, err)
	for _, e := range events {
		if e.End.IsZero() {
			a.began[e.Job] = append(a.began[e.Job], e.Start)
		}
	}
	for _, p := range a.slots {
		require.False(a.t, p.hasEnded(), "%s has ended: %s", p.Client, p.lastLog())
	}
}

// late is a pause between runs of a job of each second that neither the load of a machine nor a failover explains.
const late = 15 * time.Second

// maxMemory bounds the resident bytes of a process beside hostile records.
const maxMemory = 200 << 20

// observe requires for some time that the other jobs run on, and that no process needs much memory.
func (a *attack) observe(when string, d time.Duration) {
	begin := time.Now()
	for time.Since(begin) < d {
		a.read()
		require.NoError(a.t, sleepFor(a.t.Context(), 100*time.Millisecond))
	}
	for i := range a.Small {
		job := fmt.Sprintf("%s%04d", smallJobPrefix, i)
		last := begin
		for _, at := range append(a.began[job], time.Now()) {
			assert.Less(a.t, at.Sub(last), late, "%s: %s", when, job)
			last = at
		}
	}
	for _, p := range a.slots {
		peak := a.peakMemory(p)
		a.t.Logf("%s: %s: at most %d MiB resident", when, p.Client, peak>>20)
		assert.Less(a.t, peak, maxMemory, "%s: %s", when, p.Client)
	}
}

// peakMemory returns the most bytes that a process had resident.
func (a *attack) peakMemory(p *Process) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.proc.Pid()))
	require.NoError(a.t, err)
	_, rest, ok := strings.Cut(string(status), "VmHWM:")
	require.True(a.t, ok)
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(a.t, err)
	return kib << 10
}

// requireNamed waits until each job with a hostile record runs on, or a log names the record.
func (a *attack) requireNamed() {
	var silent []registry.Key
	require.Eventually(a.t, func() bool {
		a.read()
		silent = a.listSilent()
		return len(silent) == 0
	}, recovery, time.Second, "the first key stops its job, and no line of the log names it: %v", &silent)
}

// listSilent returns the keys of hostile records that no log names, though their jobs do not run.
func (a *attack) listSilent() (silent []registry.Key) {
	var logs []byte
	for _, p := range a.slots {
		text, err := os.ReadFile(p.stderr.Name())
		require.NoError(a.t, err)
		logs = append(logs, text...)
	}
	for key, job := range a.records {
		runs := a.began[job]
		if job != "" && len(runs) > 0 && time.Since(runs[len(runs)-1]) < late {
			continue
		}
		named := strings.Contains(string(key), "ghost") // claims of nobody are of interest to nobody
		for line := range bytes.Lines(logs) {
			named = named || bytes.Contains(line, []byte(key)) && !bytes.Contains(line, []byte("level=DEBUG"))
		}
		if !named {
			silent = append(silent, key)
		}
	}
	return silent
}

// requireRuns waits until so many jobs have run since.
func (a *attack) requireRuns(jobs int) {
	a.read()
	clear(a.began)
	require.Eventually(a.t, func() bool {
		a.read()
		return len(a.began) >= jobs
	}, recovery, 100*time.Millisecond, "all jobs run")
}
