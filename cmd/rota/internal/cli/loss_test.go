package cli

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/schedule"
)

// TestStoreLoss has the part of docs/operating/backup.md about a store that is wiped while the fleet runs.
func TestStoreLoss(t *testing.T) {
	var r ran
	jobs := func(string) []executor.Job {
		return []executor.Job{
			{Name: "tenants", Schedule: schedule.Every(time.Minute), Shards: 2, Handler: &r},
			{Name: "export", Schedule: schedule.Every(time.Minute), Handler: &r},
		}
	}
	inNight(t, jobs, func(t *testing.T, n *night) {
		n.startThree()
		n.do(t, "pause export --reason 'quarter end'", "disable --instance web-9")
		time.Sleep(time.Minute)
		saved := n.runUnedited(t.Context(), "dump --params", "")
		require.Equal(t, exit.OK, saved.code, saved.err)
		file := filepath.Join(t.TempDir(), "rota.json")
		require.NoError(t, os.WriteFile(file, []byte(saved.out), 0o600))
		require.Equal(t, exit.OK, n.run("check").code)
		r.take()
		atDump := r.highest()

		n.server.Wipe()
		time.Sleep(5 * time.Minute)
		assert.Equal(t, map[string]int{"tenants": 10}, perJob(r.take()))
		check := n.run("check")
		assert.Equal(t, 2, check.code)
		assert.Contains(t, check.out, "the store was wiped or replaced")
		doctor := n.run("doctor")
		assert.NotEqual(t, exit.OK, doctor.code)
		for _, text := range []string{"the store was wiped or replaced", "rota restore", "acknowledge.", "rota raise-fences"} {
			assert.Contains(t, doctor.out, text)
		}
		restored := n.run("restore " + file + " --yes")
		require.Equal(t, exit.OK, restored.code, restored.err)
		assert.Contains(t, restored.out, "the loss of records is acknowledged")
		assert.Equal(t, exit.OK, n.run("check").code)
		assert.NotContains(t, n.run("restore "+file+" --yes").out, "acknowledged", "once")

		n.server.Wipe()
		time.Sleep(5 * time.Minute)
		assert.Equal(t, 2, n.run("check").code)
		done := n.run("acknowledge --by kim --reason 'new disk'")
		require.Equal(t, exit.OK, done.code, done.err)
		assert.Contains(t, done.out, "acknowledged: the store was wiped or replaced, as web-")
		assert.Equal(t, exit.OK, n.run("check").code)
		assert.Contains(t, n.run("acknowledge").out, "no loss of records is on record")
		acts := n.run("acts").out
		for _, text := range []string{"kim", "acknowledge the loss of records: replaced", "new disk"} {
			assert.Contains(t, acts, text)
		}
		n.server.Expire("web-1")
		time.Sleep(time.Minute)
		assert.Equal(t, exit.OK, n.run("check").code)
		assert.Zero(t, perJob(r.take())["export"])

		n.stopAll()
		r.fence = 0
		n.replaceStore(t, nil)
		require.Equal(t, exit.OK, n.run("restore "+file+" --yes").code)
		n.launch("web-1")
		time.Sleep(2 * time.Minute)
		assert.NotZero(t, perJob(r.take())["tenants"])
		assert.Greater(t, r.highest(), atDump)
		assert.Equal(t, exit.OK, n.run("check").code, "nobody remembers")
	})
}

// perJob counts runs by job.
func perJob(runs map[string]int) map[string]int {
	all := map[string]int{}
	for text, count := range runs {
		for i := range text {
			if text[i] == ' ' {
				all[text[:i]] += count
				break
			}
		}
	}
	return all
}

// TestStoreLoss_OnServers replaces a server by an empty one while a process runs.
func TestStoreLoss_OnServers(t *testing.T) {
	t.Run("etcd", func(t *testing.T) {
		server := servertest.StartEtcd(t, testserver.EtcdOptions{})
		testReplacedServer(t, server.Members()[0], "etcd://"+server.Addrs()[0]+"/prefix")
	})
	t.Run("zookeeper", func(t *testing.T) {
		server := servertest.StartZooKeeper(t, testserver.ZooKeeperOptions{})
		testReplacedServer(t, server.Members()[0], "zookeeper://"+server.Addrs()[0]+"/prefix")
	})
}

func testReplacedServer(t *testing.T, server *testserver.Member, url string) {
	command := func(line string) result {
		s := settings.New(nil)
		s.Getenv = func(name string) string {
			return map[string]string{"ROTA_REGISTRY": url, "ROTA_NAMESPACE": "billing"}[name]
		}
		var out, errs bytes.Buffer
		code := run(t.Context(), s, strings.Fields(line), Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		return result{code, out.String(), errs.String()}
	}
	reg, err := registryurl.Open(t.Context(), url, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer reg.Close(context.Background())
	var logged output
	e, err := executor.New(reg, "billing", executor.Options{Instance: "web-1", SessionTTL: 4 * time.Second, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	require.NoError(t, err)
	var held, free ran
	require.NoError(t, e.Register(
		executor.Job{Name: "held", Schedule: schedule.Every(time.Second), Handler: &held},
		executor.Job{Name: "free", Schedule: schedule.Every(time.Second), Handler: &free},
	))
	require.NoError(t, e.Start(t.Context()))
	defer func() { assert.NoError(t, e.Shutdown(context.Background())) }()
	await := func(ok func() bool) {
		t.Helper()
		require.Eventually(t, ok, time.Minute, 50*time.Millisecond, logged.String())
	}
	await(func() bool { return free.highest() > 0 })
	require.Equal(t, exit.OK, command("pause held").code)
	await(func() bool { return strings.Contains(command("jobs").out, "paused") })
	held.take()

	before := free.highest()
	require.NoError(t, server.Replace(t.Context()))
	await(func() bool { return free.highest() > before })
	assert.Contains(t, logged.String(), "the store has lost records")
	assert.Contains(t, command("jobs").out, "paused")
	assert.Empty(t, held.take())
	assert.Equal(t, 2, command("check").code)
	require.Equal(t, exit.OK, command("acknowledge").code)
	assert.NotContains(t, command("check").out, "wiped")
}

// fenceLog records the fences of a shard's runs, in order.
type fenceLog struct {
	mu     sync.Mutex
	fences []uint64
}

func (l *fenceLog) Handle(_ context.Context, run *executor.Run) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fences = append(l.fences, run.Fence)
	return nil
}

func (l *fenceLog) all() []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.fences)
}

// TestStoreLoss_SetBackUnderALiveSession restores an earlier state of a server so quickly that the session
// of the process survives.
func TestStoreLoss_SetBackUnderALiveSession(t *testing.T) {
	server := servertest.StartEtcd(t, testserver.EtcdOptions{}).Members()[0]
	url := "etcd://" + server.Addr() + "/prefix"
	reg, err := registryurl.Open(t.Context(), url, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer reg.Close(context.Background())
	var logged output
	e, err := executor.New(reg, "billing", executor.Options{Instance: "web-1", SessionTTL: time.Minute, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	require.NoError(t, err)
	var runs fenceLog
	require.NoError(t, e.Register(executor.Job{Name: "free", Schedule: schedule.Every(time.Second), Handler: &runs}))
	require.NoError(t, e.Start(t.Context()))
	defer func() { assert.NoError(t, e.Shutdown(context.Background())) }()
	awaitRuns := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool { return len(runs.all()) >= n }, time.Minute, 50*time.Millisecond, logged.String())
	}
	awaitRuns(2)
	server.Kill()
	saved := filepath.Join(t.TempDir(), "saved")
	require.NoError(t, os.CopyFS(saved, os.DirFS(server.DataDir())))
	require.NoError(t, server.Restart(t.Context()))
	awaitRuns(len(runs.all()) + 12) // more commits than those of joining again
	server.Kill()
	require.NoError(t, os.RemoveAll(server.DataDir()))
	require.NoError(t, os.CopyFS(server.DataDir(), os.DirFS(saved)))
	require.NoError(t, os.Chmod(server.DataDir(), 0o700))
	before := len(runs.all())
	require.NoError(t, server.Restart(t.Context()))
	awaitRuns(before + 4)
	all := runs.all()
	for i := 1; i < len(all); i++ {
		assert.Greater(t, all[i], all[i-1], "run %d of %v", i, all)
	}
	assert.Equal(t, 1, strings.Count(logged.String(), "the store has lost records"))
	assert.Contains(t, logged.String(), "kind=rewound")
}
