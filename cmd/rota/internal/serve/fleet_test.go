//go:build unix

package serve

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
)

const fleetShards = 12

// ranKeys returns the keys of the runs that a file lists, each with the instances that ran it.
func ranKeys(t *testing.T, path string) map[string][]string {
	t.Helper()
	content, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	keys := map[string][]string{}
	for line := range strings.Lines(string(content)) {
		key, instance, ok := strings.Cut(strings.TrimSpace(line), " ")
		require.True(t, ok, line)
		keys[key] = append(keys[key], instance)
	}
	return keys
}

// firesOf returns the fires of which shards are among keys, in their order.
func firesOf(keys map[string][]string) (fires []string) {
	for key := range keys {
		fires = append(fires, key[strings.LastIndex(key, "/")+1:])
	}
	slices.Sort(fires)
	return slices.Compact(fires)
}

func TestFleet_LosesNothingWhenAProcessIsKilled(t *testing.T) {
	for scheme, server := range map[string]func(testing.TB) *testserver.Cluster{"etcd": servertest.Etcd, "zk": servertest.ZooKeeper} {
		t.Run(scheme, func(t *testing.T) {
			url := scheme + "://" + strings.Join(server(t).Addrs(), ",") + "/run-" + scheme
			list := filepath.Join(t.TempDir(), "ran")
			path := writeFile(t, fmt.Sprintf(`namespace: fleet
registry: %s
jobs:
  mark:
    every: 1s
    shards: %d
    misfire: run all 1000
    env: {LIST: %q}
    shell: 'echo "$ROTA_KEY $ROTA_INSTANCE" >> "$LIST"'
`, url, fleetShards, list))
			fleet := map[string]*command{}
			for _, name := range []string{"a", "b", "c"} {
				fleet[name] = startRun(t, path, "--instance", name, "--ttl", "2s")
			}
			ran := func(instance string) (n int) {
				for _, instances := range ranKeys(t, list) {
					if slices.Contains(instances, instance) {
						n++
					}
				}
				return n
			}
			for name := range fleet {
				require.Eventually(t, func() bool { return ran(name) > fleetShards/3 }, patience, tick, "%s runs shards", name)
			}
			fleet["a"].Kill()
			killed := time.Now().UTC().Truncate(time.Second)
			until := killed.Add(10 * time.Second).Format(time.RFC3339)
			complete := func(fire string) bool {
				keys := ranKeys(t, list)
				for shard := range fleetShards {
					if keys[fmt.Sprintf("fleet/default/mark/%d/%s", shard, fire)] == nil {
						return false
					}
				}
				return true
			}
			require.Eventually(t, func() bool { return complete(until) }, patience, 100*time.Millisecond)

			fires := firesOf(ranKeys(t, list))
			first, err := time.Parse(time.RFC3339, fires[0])
			require.NoError(t, err)
			for at := first; at.Format(time.RFC3339) <= until; at = at.Add(time.Second) {
				assert.True(t, complete(at.Format(time.RFC3339)), "all shards of %v ran", at)
			}
			for _, name := range []string{"b", "c"} {
				fleet[name].Terminate()
				assert.Equal(t, 0, fleet[name].exitCode(t))
			}
		})
	}
}
