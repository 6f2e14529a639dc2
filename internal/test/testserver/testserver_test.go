package testserver_test

import (
	"context"
	"crypto/rand"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv("ROTA_TEST_LISTEN_AT"); addr != "" {
		listenUntilKilled(addr)
	}
	servertest.Main(m)
}

func listenUntilKilled(addr string) {
	l, err := net.Listen("tcp4", addr)
	if err != nil {
		panic(err)
	}
	for {
		if conn, err := l.Accept(); err == nil {
			conn.Close()
		}
	}
}

// kinds are the kinds of servers that every test runs on.
var kinds = []struct {
	name   string
	store  store
	shared func(testing.TB) *testserver.Cluster
	start  func(t testing.TB, members int) *testserver.Cluster
	// requests is a counter of client requests.
	requests string
}{
	{
		"etcd",
		etcdStore{},
		servertest.Etcd,
		func(t testing.TB, members int) *testserver.Cluster {
			return servertest.StartEtcd(t, testserver.EtcdOptions{Members: members})
		},
		`grpc_server_handled_total{grpc_code="OK",grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"}`,
	},
	{
		"ZooKeeper",
		zookeeperStore{},
		servertest.ZooKeeper,
		func(t testing.TB, members int) *testserver.Cluster {
			return servertest.StartZooKeeper(t, testserver.ZooKeeperOptions{Members: members})
		},
		"zk_packets_received",
	},
}

const (
	patience = 30 * time.Second
	tick     = 20 * time.Millisecond
)

// world is a cluster with a client.
type world struct {
	*testing.T
	*testserver.Cluster
	store store
}

// awaitWrite writes through m and retries until it succeeds.
func (w *world) awaitWrite(m *testserver.Member, key string) {
	w.Helper()
	w.eventually(func(ctx context.Context) bool { return w.store.put(ctx, w.Cluster, m, key, "v") == nil },
		"%s was not written", key)
}

// awaitKey waits until m has the key.
func (w *world) awaitKey(m *testserver.Member, key string) {
	w.Helper()
	w.eventually(func(ctx context.Context) bool {
		v, err := w.store.get(ctx, w.Cluster, m, key)
		return err == nil && v == "v"
	}, "%s is absent", key)
}

// awaitAbsence waits for an answer of m, which must be that the key is absent.
func (w *world) awaitAbsence(m *testserver.Member, key string) {
	w.Helper()
	var v string
	w.eventually(func(ctx context.Context) (ok bool) {
		var err error
		v, err = w.store.get(ctx, w.Cluster, m, key)
		return err == nil
	}, "no answer to a read of %s", key)
	require.Empty(w, v)
}

func (w *world) expectRefused(m *testserver.Member, key string) {
	w.Helper()
	ctx, cancel := withCallTimeout(w.Context())
	defer cancel()
	require.Error(w, w.store.put(ctx, w.Cluster, m, key, "v"))
}

func (w *world) eventually(f func(context.Context) bool, message string, args ...any) {
	w.Helper()
	// One attempt may reach a server that does not answer, or take long on a busy machine.
	longest := shortly
	require.Eventuallyf(w, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), longest)
		defer cancel()
		longest = min(2*longest, patience/4)
		return f(ctx)
	}, patience, tick, message, args...)
}

// awaitLeader waits for a leader other than those given.
func (w *world) awaitLeader(not ...*testserver.Member) *testserver.Member {
	w.Helper()
	var leader *testserver.Member
	require.Eventually(w, func() bool {
		var err error
		leader, err = w.Leader(w.Context())
		return err == nil && !slices.Contains(not, leader)
	}, patience, tick)
	return leader
}

func TestSingleServer(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			w := &world{t, k.start(t, 1), k.store}
			m := w.Members()[0]

			t.Run("leads itself", func(t *testing.T) {
				require.Same(t, m, w.awaitLeader())
				require.Equal(t, []string{m.Addr()}, w.Addrs())
			})
			t.Run("keeps data and address across a restart", func(t *testing.T) {
				addr, pid := m.Addr(), m.Pid()
				w.awaitWrite(m, "a")
				require.NoError(t, m.Restart(t.Context()))
				require.Equal(t, addr, m.Addr())
				require.NotEqual(t, pid, m.Pid())
				w.awaitKey(m, "a")

				m.Kill()
				_, err := net.Dial("tcp", m.Addr())
				require.Error(t, err)
				require.NoError(t, w.Restart(t.Context()))
				w.awaitKey(m, "a")
			})
			t.Run("does nothing while it is paused", func(t *testing.T) {
				require.NoError(t, m.Pause())
				w.expectRefused(m, "b")
				require.NoError(t, m.Resume())
				w.awaitWrite(m, "c")
			})
			t.Run("counts", func(t *testing.T) {
				before, err := m.Counters(t.Context())
				require.NoError(t, err)
				w.awaitWrite(m, "d")
				after, err := m.Counters(t.Context())
				require.NoError(t, err)
				require.Greater(t, after[k.requests], before[k.requests])
			})
			t.Run("is unaffected by Isolate", func(t *testing.T) {
				defer m.Isolate()()
				w.awaitWrite(m, "e")
			})
			t.Run("is empty after Replace", func(t *testing.T) {
				require.NoError(t, m.Replace(t.Context()))
				w.awaitAbsence(m, "a")
			})
			t.Run("leaves no process and no files after Stop", func(t *testing.T) {
				w.Stop()
				w.Stop()
				_, err := net.Dial("tcp", m.Addr())
				require.Error(t, err)
				require.Empty(t, m.Output())
			})
		})
	}
}

func TestEnsemble(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			w := &world{t, k.start(t, 3), k.store}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()

			t.Run("has one leader and the same data", func(t *testing.T) {
				leader := w.awaitLeader()
				for i, m := range w.Members() {
					w.awaitWrite(m, string(rune('a'+i)))
				}
				for _, m := range w.Members() {
					for i := range w.Members() {
						w.awaitKey(m, string(rune('a'+i)))
					}
				}
				require.Same(t, leader, w.awaitLeader())
			})
			t.Run("continues without an isolated leader", func(t *testing.T) {
				old := w.awaitLeader()
				heal := old.Isolate()
				w.awaitWrite(w.awaitLeader(old), "cut")
				w.expectRefused(old, "late") // may be written once the member is healed
				heal()
				heal()
				w.awaitKey(old, "cut")
			})
			t.Run("continues without an isolated follower", func(t *testing.T) {
				leader := w.awaitLeader()
				follower := w.Members()[0]
				if follower == leader {
					follower = w.Members()[1]
				}
				heal := follower.Isolate()
				defer heal()
				w.expectRefused(follower, "late too")
				w.awaitWrite(leader, "still")
				require.Same(t, leader, w.awaitLeader())
				heal()
				w.awaitKey(follower, "still")
			})
			t.Run("continues without a killed leader", func(t *testing.T) {
				old := w.awaitLeader()
				old.Kill()
				w.awaitWrite(w.awaitLeader(old), "killed")
				require.NoError(t, old.Restart(ctx))
				w.awaitKey(old, "killed")
			})
			t.Run("continues without a paused leader", func(t *testing.T) {
				old := w.awaitLeader()
				require.NoError(t, old.Pause())
				w.awaitWrite(w.awaitLeader(old), "paused")
				require.NoError(t, old.Resume())
				w.awaitKey(old, "paused")
			})
			t.Run("adds an empty member", func(t *testing.T) {
				for _, m := range w.Members() {
					require.NoError(t, m.Replace(ctx))
					w.awaitKey(m, "killed")
				}
				require.NoError(t, w.Members()[0].Restart(ctx)) // now a full member
				w.awaitKey(w.Members()[0], "killed")
			})
			t.Run("keeps its data across a restart of all members", func(t *testing.T) {
				require.NoError(t, w.Restart(ctx))
				w.awaitKey(w.awaitLeader(), "killed")
			})
		})
	}
}

func TestShared_IsOneServer(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			c := k.shared(t)
			require.Same(t, c, k.shared(t))
			(&world{t, c, k.store}).awaitWrite(c.Members()[0], rand.Text()) // of this run of the test
		})
	}
}

func TestLeader_EndsWithItsContext(t *testing.T) {
	c := servertest.StartEtcd(t, testserver.EtcdOptions{})
	c.Members()[0].Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := c.Leader(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestStart_FailsWithTheServersOutput(t *testing.T) {
	before := runtime.NumGoroutine()
	_, err := testserver.Etcd(t.Context(), testserver.EtcdOptions{Flags: []string{"--no-such-flag"}})
	require.ErrorContains(t, err, "no-such-flag")
	_, err = testserver.ZooKeeper(t.Context(), testserver.ZooKeeperOptions{Lines: []string{"tickTime=soon"}})
	require.ErrorContains(t, err, "NumberFormatException")

	for start := time.Now(); runtime.NumGoroutine() > before; <-time.After(tick) {
		require.Less(t, time.Since(start), patience, "Start waited for leftover goroutines")
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "rota-servers-*", "*", "m1", "zoo.cfg"))
	require.NoError(t, err)
	for _, file := range left {
		text, _ := os.ReadFile(file) // possibly of concurrent tests
		require.NotContains(t, string(text), "tickTime=soon")
	}
}
