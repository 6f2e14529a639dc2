package importing

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	v3 "github.com/rota-dev/rota/cmd/rota/internal/importing/imported/v3"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/registry/zookeeper"
)

// fakeZnodes are znodes in memory, by path.
type fakeZnodes struct {
	values map[string]string
	fail   map[string]error // of Get, by path
	hide   string           // a path that Get does not find, though Children lists it
}

func (f *fakeZnodes) children(path string) (names []string) {
	seen := map[string]bool{}
	for p := range f.values {
		if rest, ok := strings.CutPrefix(p, path+"/"); ok {
			name, _, _ := strings.Cut(rest, "/")
			seen[name] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

func (f *fakeZnodes) Get(path string) ([]byte, *zk.Stat, error) {
	children := f.children(path)
	value, ok := f.values[path]
	switch {
	case f.fail[path] != nil:
		return nil, nil, f.fail[path]
	case path == f.hide || !ok && len(children) == 0:
		return nil, nil, zk.ErrNoNode
	}
	return []byte(value), &zk.Stat{NumChildren: int32(len(children))}, nil
}

func (f *fakeZnodes) Children(path string) ([]string, *zk.Stat, error) {
	if children := f.children(path); len(children) > 0 {
		return children, nil, nil
	}
	return nil, nil, zk.ErrNoNode
}

func newFakeZnodes(t *testing.T, file, root string) *fakeZnodes {
	t.Helper()
	_, records := readTestTree(t, file)
	f := &fakeZnodes{values: map[string]string{}}
	for path, value := range records {
		f.values[root+"/"+path] = value
	}
	return f
}

func TestReadNamespace_ReadsWhatTheConversionNeeds(t *testing.T) {
	for _, file := range []string{"testdata/elasticjob-2.yaml", "testdata/elasticjob-3.yaml"} {
		root, err := readNamespace(newFakeZnodes(t, file, "/a/billing"), "/a/billing")
		require.NoError(t, err)
		d, err := convertElasticJob(root, elasticJobOptions{source: "the namespace billing", namespace: "billing", startPaused: true})
		require.NoError(t, err)
		assert.Equal(t, convertTestTree(t, file), d)
		assert.Nil(t, root.at("settle/leader/election"))
		assert.Nil(t, root.at("settle/instances"))
	}
}

func TestReadNamespace_LeavesOutWhatIsDeletedMeanwhile(t *testing.T) {
	f := newFakeZnodes(t, "testdata/elasticjob-3.yaml", "/n")
	f.hide = "/n/settle/sharding/0/running"
	root, err := readNamespace(f, "/n")
	require.NoError(t, err)
	assert.NotNil(t, root.at("settle/sharding/0/instance"))
	assert.Nil(t, root.at("settle/sharding/0/running"))
	f.hide = "/n/settle"
	root, err = readNamespace(f, "/n")
	require.NoError(t, err)
	assert.Nil(t, root.at("settle"))
	assert.NotNil(t, root.at("echo/config"))
}

func TestReadNamespace_ReportsErrors(t *testing.T) {
	f := newFakeZnodes(t, "testdata/elasticjob-3.yaml", "/n")
	_, err := readNamespace(f, "/m")
	assert.EqualError(t, err, "there is no namespace /m")
	f.fail = map[string]error{"/n/settle/config": zk.ErrNoAuth}
	_, err = readNamespace(f, "/n")
	assert.ErrorIs(t, err, zk.ErrNoAuth)
	assert.ErrorContains(t, err, "read /n/settle/config: zk: not authenticated: give the credentials of Elastic-Job's digest with --digest-file")
	f.fail = map[string]error{path.Join("/n", "poll"): zk.ErrConnectionClosed}
	_, err = readNamespace(f, "/n")
	assert.ErrorIs(t, err, zk.ErrConnectionClosed)
}

func TestWatchConnection_EndsWithoutAServer(t *testing.T) {
	state := func(s zk.State) zk.Event { return zk.Event{State: s} }
	for name, c := range map[string]struct {
		after  map[time.Duration]zk.State
		endsAt time.Duration // 0: not
	}{
		"no server":                     {nil, 5 * time.Second},
		"a connection without session":  {map[time.Duration]zk.State{time.Second: zk.StateConnected}, 5 * time.Second},
		"a session":                     {map[time.Duration]zk.State{time.Second: zk.StateHasSession}, 0},
		"a session, then no connection": {map[time.Duration]zk.State{time.Second: zk.StateHasSession, 9 * time.Second: zk.StateDisconnected}, 14 * time.Second},
		"a short interruption": {map[time.Duration]zk.State{
			time.Second: zk.StateHasSession, 2 * time.Second: zk.StateDisconnected, 6 * time.Second: zk.StateHasSession,
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancelCause(t.Context())
				events, connected := make(chan zk.Event, 6), make(chan struct{})
				go watchConnection(ctx, events, connected, end)
				began := time.Now()
				for _, at := range slices.Sorted(maps.Keys(c.after)) {
					time.Sleep(at - time.Since(began))
					events <- state(c.after[at])
				}
				if c.endsAt == 0 {
					time.Sleep(time.Minute)
					assert.NoError(t, ctx.Err())
					end(nil)
					return
				}
				<-ctx.Done()
				assert.Equal(t, errNoServer, context.Cause(ctx))
				assert.Equal(t, c.endsAt, time.Since(began))
			})
		})
	}
}

// Both systems use one ZooKeeper. The import reads the jobs of Elastic-Job, in both layouts, beside
// those of rota, and changes no record.
func TestCommand_ReadsElasticJobOnAServer(t *testing.T) {
	server := servertest.StartZooKeeper(t, testserver.ZooKeeperOptions{}).Addrs()[0]
	conn, events, err := zk.Connect([]string{server}, 10*time.Second, zk.WithLogger(silentLogger{}))
	require.NoError(t, err)
	defer conn.Close()
	go func() {
		for range events {
		}
	}()
	for _, version := range []string{"2", "3"} {
		_, records := readTestTree(t, "testdata/elasticjob-"+version+".yaml")
		namespace := "/v" + version + "/billing"
		for _, p := range slices.Sorted(maps.Keys(records)) {
			createZnode(t, conn, namespace+"/"+p, records[p])
		}
	}
	runBesideElasticJob(t, server)
	before := readVersions(t, conn, "/")

	for _, version := range []string{"2", "3"} {
		url := "zookeeper://" + server + "/v" + version + "/billing"
		name := "the namespace v" + version + "/billing"
		root, _ := readTestTree(t, "testdata/elasticjob-"+version+".yaml")
		d, err := convertElasticJob(root, elasticJobOptions{source: name, namespace: "billing", startPaused: true})
		require.NoError(t, err)

		jobs, errs, err := execute(t, "", "elasticjob", url)
		require.NoError(t, err)
		assert.Equal(t, writeJobsFile(d), jobs)
		assert.Contains(t, errs, "imported ")
		want, err := writeGoFile(d, "billing")
		require.NoError(t, err)
		got, _, err := execute(t, "", "elasticjob", url, "--to", "go", "--package", "billing")
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	assert.Equal(t, before, readVersions(t, conn, "/"))

	_, _, err = execute(t, "", "elasticjob", "zk://"+server+"/nosuch")
	assert.EqualError(t, err, "there is no namespace /nosuch")
	_, _, err = execute(t, "", "elasticjob", "zk://"+server+"/v3")
	assert.EqualError(t, err, "the namespace v3 has no jobs of Elastic-Job")
}

// createZnode creates a znode and those above it.
func createZnode(t *testing.T, conn *zk.Conn, path, value string) {
	t.Helper()
	for i := 1; i < len(path); i++ {
		if path[i] == '/' {
			if _, err := conn.Create(path[:i], nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
				require.ErrorIs(t, err, zk.ErrNodeExists)
			}
		}
	}
	_, err := conn.Create(path, []byte(value), 0, zk.WorldACL(zk.PermAll))
	if errors.Is(err, zk.ErrNodeExists) {
		_, err = conn.Set(path, []byte(value), -1)
	}
	require.NoError(t, err)
}

// runBesideElasticJob runs the imported jobs of 3.x on the same server, paused, below the namespace of
// Elastic-Job, and stops.
func runBesideElasticJob(t *testing.T, server string) {
	t.Helper()
	reg, err := zookeeper.Open(t.Context(), zookeeper.Options{Endpoints: []string{server}, Namespace: "/v3/billing"})
	require.NoError(t, err)
	defer reg.Close(context.Background())
	ex, err := executor.New(reg, "billing", executor.Options{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	runs := 0
	for _, j := range v3.Jobs() {
		j.Handler = executor.HandlerFunc(func(context.Context, *executor.Run) error { runs++; return nil })
		j.Shards = min(j.Shards, maxShards)
		require.NoError(t, ex.Register(j))
	}
	require.NoError(t, ex.Start(t.Context()))
	require.NoError(t, ex.Shutdown(t.Context()))
	assert.Zero(t, runs, "the jobs start paused")
}

// readVersions returns the transaction of the last change of each znode.
func readVersions(t *testing.T, conn *zk.Conn, path string) map[string]int64 {
	t.Helper()
	versions := map[string]int64{}
	var read func(path string)
	read = func(path string) {
		children, stat, err := conn.Children(path)
		require.NoError(t, err)
		versions[path] = max(stat.Mzxid, stat.Pzxid)
		for _, c := range children {
			if below := strings.TrimSuffix(path, "/") + "/" + c; below != "/zookeeper" {
				read(below)
			}
		}
	}
	read(path)
	return versions
}
