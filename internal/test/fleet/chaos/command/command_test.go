package command

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/fleet"
	"github.com/rota-dev/rota/internal/test/judge"
)

func TestMain(m *testing.M) {
	fleet.Main(nil)
	m.Run()
}

func TestRun_PrintsRoundsAndATable(t *testing.T) {
	var out strings.Builder
	err := run(t.Context(), fleet.Stores(), &out, &out, []string{"--store", "etcd", "--members", "1", "--faults", "leave", "--rounds", "1", "--max-leave", "1ns", "--dir", t.TempDir()})
	assert.ErrorContains(t, err, "etcd-1-planned: the median from leaving to running elsewhere is", "the limit cannot be kept")
	assert.Contains(t, out.String(), "etcd-1-planned round 1 of 1: i")
	assert.Regexp(t, `(?m)^ *trial +rounds .* violations$`, out.String())
	assert.Regexp(t, `(?m)^ *etcd-1-planned +1 .* 0$`, out.String())
}

func TestRun_RefusesUnknownArguments(t *testing.T) {
	for args, why := range map[string]string{
		"--store redis":               "redis",
		"--faults kill,flood":         "flood",
		"--rounds 0":                  "--rounds",
		"--ttl 10ms":                  "--ttl",
		"--small-jobs -1":             "--small-jobs",
		"--chains -1":                 "--chains",
		"--pool -1":                   "--pool",
		"--faults roll":               "--base",
		"--members 1 --faults member": "too few members",
		"kill":                        "not a flag",
		"--speed 3":                   "speed",
	} {
		var out strings.Builder
		assert.ErrorContains(t, run(t.Context(), fleet.Stores(), &out, &out, strings.Fields(args)), why, args)
	}
}

func TestParse_DefaultsToAllStoresAndKinds(t *testing.T) {
	o, err := parse(fleet.Stores(), &strings.Builder{}, nil)
	require.NoError(t, err)
	require.Len(t, o.stores, 2)
	assert.Equal(t, "etcd", o.stores[0].Name)
	assert.Equal(t, "zookeeper", o.stores[1].Name)
	assert.Equal(t, []int{1, 3}, o.members)
	assert.Len(t, o.Kinds, len(fleet.Kinds()))
}

func TestLimits_CompareMediansAndP99(t *testing.T) {
	var times []time.Duration
	for i := range 101 {
		times = append(times, time.Duration(i)*time.Millisecond)
	}
	o := fleet.Outcome{Trial: fleet.Trial{Kinds: fleet.Kinds()}, Report: &judge.Report{}, TimesToRerun: times, TimesToLeave: times, TimesToJoin: times}
	assert.NoError(t, limits{}.check(&o), "without limits")
	assert.NoError(t, limits{99 * time.Millisecond, 50 * time.Millisecond, 50 * time.Millisecond}.check(&o))
	assert.ErrorContains(t, limits{rerun: 98 * time.Millisecond}.check(&o), "claims elsewhere is 99ms, above 98ms")
	assert.ErrorContains(t, limits{leave: 49 * time.Millisecond}.check(&o), "leaving")
	assert.ErrorContains(t, limits{join: 49 * time.Millisecond}.check(&o), "joining")
}
