package fleet

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/internal/test/long"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/schedule"
)

// withoutKinds is the last commit before kinds and pools whose processes are tested beside those of this version.
const withoutKinds = "de3956a"

// countDefined returns the runs of a defined job that have begun since the last call, by client.
func countDefined(f *Fleet) (take func() map[string]int) {
	runs := map[string]int{}
	f.began = func(c *judge.Call) {
		if c.Job == definedName(0) {
			runs[c.Client]++
		}
	}
	return func() map[string]int {
		taken := runs
		runs = map[string]int{}
		return taken
	}
}

// It needs the history of the repository, and builds a commit of it: it is one of the long tests.
func TestMixedFleet_OlderVersionsLeaveDefinedJobsToNewerOnes(t *testing.T) {
	for range long.Pick(0, 1) {
		t.Run("de3956a", testOlderVersion)
	}
}

func testOlderVersion(t *testing.T) {
	base, err := BuildBase(t.Context(), withoutKinds, Stores()[0].Chaos, t.TempDir())
	require.NoError(t, err)
	server, err := Etcd(t.Context(), 1)
	require.NoError(t, err)
	defer server.Stop()
	f, err := Start(t.Context(), server, Config{
		Instances: 2, Jobs: 1, Shards: 4, Every: time.Second, Takes: 100 * time.Millisecond, Base: base,
		TTL: 2 * time.Second, Drain: 10 * time.Second, Dir: t.TempDir(),
	})
	require.NoError(t, err)
	defer f.Close()
	faults := &Faults{Fleet: f}
	require.NoError(t, faults.awaitWhole(t.Context()))

	f.Defines = 1 // later processes have the kind
	leader, ok := f.Leader()
	require.True(t, ok)
	newer := 1 - leader
	require.NoError(t, f.Process(newer).Leave(leaving))
	require.NoError(t, f.replaceBy(newer, false))
	require.NoError(t, faults.awaitWhole(t.Context()))
	reg, err := server.open(t.Context())
	require.NoError(t, err)
	defer reg.Close(t.Context())
	op, err := operator.New(reg, "fleet", "default")
	require.NoError(t, err)
	take := countDefined(f)
	_, err = op.WithCompiler(executor.Compile).Define(t.Context(), operator.Definition{
		Name: definedName(0), Kind: definedKind, Schedule: schedule.Every(time.Second), Shards: 2,
		Policies: map[string]any{"on_misfire": "run all 1000"},
	})
	require.NoError(t, err)
	require.NoError(t, f.ObserveFor(t.Context(), 5*time.Second))
	assert.Empty(t, take(), "under an older leader")

	f.Judge.Disturb("", time.Hour) // from here on the job waits at times
	f.Process(leader).Kill()
	require.NoError(t, f.replaceBy(leader, true))
	began := map[string]int{}
	require.NoError(t, f.Until(t.Context(), "a newer leader has the job run", recovery, func() bool {
		for client, n := range take() {
			began[client] += n
		}
		return began[f.Process(newer).Client] > 4
	}))
	assert.Len(t, began, 1, "only newer processes run it")

	f.Process(newer).Kill() // the older one leads again
	require.NoError(t, f.replaceBy(newer, false))
	require.NoError(t, f.Until(t.Context(), "the older process leads", recovery, func() bool {
		slot, ok := f.Leader()
		return ok && slot == leader
	}))
	require.NoError(t, f.ObserveFor(t.Context(), 5*time.Second))
	assert.Zero(t, take()[f.Process(leader).Client])

	require.NoError(t, f.Process(leader).Leave(leaving))
	require.NoError(t, f.replaceBy(leader, false))
	count := 0
	require.NoError(t, f.Until(t.Context(), "the job runs again", recovery, func() bool {
		for _, n := range take() {
			count += n
		}
		return count > 2*5
	}))
	f.Defines = 0 // the job stays: no tombstone is waited for
	require.NoError(t, f.Finish(t.Context()))
}

func TestBuildBase_NamesAMissingCommit(t *testing.T) {
	dir, repository := t.TempDir(), t.TempDir()
	require.NoError(t, exec.Command("git", "init", "--quiet", repository).Run())
	t.Chdir(repository)
	_, err := BuildBase(t.Context(), strings.Repeat("0", 40), Stores()[0].Chaos, dir)
	require.ErrorContains(t, err, "build base "+strings.Repeat("0", 40)+": the history has no such commit")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)

	t.Chdir(t.TempDir())
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(t.TempDir()))
	_, err = BuildBase(t.Context(), withoutKinds, Stores()[0].Chaos, dir)
	require.ErrorContains(t, err, "no repository")
}
