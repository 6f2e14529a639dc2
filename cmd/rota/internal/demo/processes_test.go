package demo

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/registry"
)

// TestDemo_OnServers runs instances as processes, of which some are killed.
func TestDemo_OnServers(t *testing.T) {
	dir, size := tree(t, 2000)
	for kind, url := range map[string]string{
		"etcd": "etcd://" + servertest.StartEtcd(t, testserver.EtcdOptions{}).Addrs()[0],
		"zk":   "zk://" + servertest.StartZooKeeper(t, testserver.ZooKeeperOptions{}).Addrs()[0],
	} {
		for _, kills := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, %d killed", kind, kills), func(t *testing.T) {
				o := options(dir)
				o.registry, o.kill, o.ttl = url, kills, time.Second
				var out bytes.Buffer
				require.NoError(t, demo(t.Context(), o, &out), out.String())
				lines := strings.Split(strings.TrimSpace(out.String()), "\n")
				want := fmt.Sprintf(`^demo ok: shards=12 runs=\d+ failovers=[1-9]\d* lost=0 doubled=0 files=2000 bytes=%d$`, size)
				assert.Regexp(t, regexp.MustCompile(want), lines[len(lines)-1])
				assert.Regexp(t, `^kill to session ended: \d.*; session ended to runs claimed again: \d`, lines[len(lines)-2])
			})
		}
	}
}

func TestDeleteRecords_LeavesNothing(t *testing.T) {
	dir, _ := tree(t, 50)
	files, err := listFiles(dir)
	require.NoError(t, err)
	keys, err := record.NewKeys("ns", "default")
	require.NoError(t, err)
	b := newBoard(4, 0)
	o := options(dir)
	o.shards = 4
	f := newMemoryFleet(o, keys, &census{files: files, namespace: "ns", report: func(e event) { b.handleEvent(e) }}, newStory(b))
	require.NoError(t, f.start(t.Context()))
	require.NoError(t, b.await(t.Context()))
	f.stop()
	require.NotEmpty(t, f.server.Dump())
	require.NoError(t, deleteRecords(t.Context(), f.server.Client("broom"), keys, "ns"))
	assert.Empty(t, f.server.Dump())
}

func TestDemo_StartsAServer(t *testing.T) {
	dir, _ := tree(t, 200)
	for _, kind := range []string{"etcd", "zk"} {
		o := options(dir)
		o.registry, o.ttl = kind, time.Second
		var out bytes.Buffer
		require.NoError(t, demo(t.Context(), o, &out), out.String())
		assert.Contains(t, out.String(), "starting a")
	}
}

func TestVisitChanges_VisitsNewAndDeletedEntries(t *testing.T) {
	var told []string
	known := map[registry.Key]registry.Rev{}
	take := func(b registry.Batch) []string {
		told = nil
		require.NoError(t, visitChanges(b, known, func(e registry.Entry, gone bool) error {
			told = append(told, fmt.Sprint(e.Key, " ", gone))
			return nil
		}))
		return told
	}
	entry := func(key registry.Key, seq uint64) registry.Entry {
		return registry.Entry{Key: key, Modified: registry.Rev{Seq: seq}}
	}
	assert.Equal(t, []string{"d/~a false", "d/~b false"}, take(registry.Batch{
		Kind: registry.Snapshot, Puts: []registry.Entry{entry("d/~a", 1), entry("d/~b", 2)},
	}))
	assert.Equal(t, []string{"d/~a true"}, take(registry.Batch{Kind: registry.Delta, Deletes: []registry.Key{"d/~a"}}))
	assert.Equal(t, []string{"d/~b true", "d/~c false"}, take(registry.Batch{
		Kind: registry.Snapshot, Puts: []registry.Entry{entry("d/~c", 3)},
	}))
	assert.Empty(t, take(registry.Batch{Kind: registry.Snapshot, Puts: []registry.Entry{entry("d/~c", 3)}}))
}
