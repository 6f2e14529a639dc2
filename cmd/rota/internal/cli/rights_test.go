package cli

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/test/testserver"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/etcd"
	"github.com/rota-dev/rota/registry/zookeeper"
	"github.com/rota-dev/rota/schedule"
)

// looks has the arguments with which each command that looks is tested. A command without arguments needs an entry too.
var looks = map[string]string{
	"jobs": "", "job": "settle", "shards": "settle", "instances": "", "next": "settle", "decisions": "settle", "acts": "", "top": "",
	"check": "", "wait": "settle --for moved", "moves": "settle", "explain": "settle", "doctor": "", "dump": "",
	"definitions": "", "kinds": "", "pools": "",
}

// looksAtHistory are the commands that read the database of runs only.
var looksAtHistory = []string{"runs", "fires", "logs"}

// lookCommands returns the command lines of all commands under "Look" that read the store.
func lookCommands(t *testing.T) []string {
	root, _ := newRoot(settings.New(nil), Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard})
	var all []string
	var add func(c *cobra.Command)
	add = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			add(sub)
		}
		if name := strings.TrimPrefix(c.CommandPath(), "rota "); c.Runnable() && !slices.Contains(looksAtHistory, name) {
			args, ok := looks[name]
			assert.True(t, ok, "rota %s is new under Look: add it to looks", name)
			all = append(all, strings.TrimSpace(name+" "+args))
		}
	}
	for _, c := range root.Commands() {
		if c.GroupID == groupLook {
			add(c)
		}
	}
	require.GreaterOrEqual(t, len(all), 10)
	return all
}

// readableStore is a server on which the user "reader" may read the keys below /rota and nothing else, and "owner" may
// write them.
type readableStore struct {
	url   string
	owner func(t *testing.T) registry.Registry
}

func readableEtcd(t *testing.T) readableStore {
	const password = "root's"
	cluster := servertest.StartEtcd(t, testserver.EtcdOptions{RootPassword: password, Flags: []string{"--bcrypt-cost", "4"}})
	root, err := clientv3.New(clientv3.Config{Endpoints: cluster.Addrs(), Username: "root", Password: password, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { root.Close() })
	for user, right := range map[string]clientv3.PermissionType{
		"reader": clientv3.PermissionType(clientv3.PermRead), "owner": clientv3.PermissionType(clientv3.PermReadWrite),
	} {
		_, err := root.UserAdd(t.Context(), user, "pw")
		require.NoError(t, err)
		_, err = root.RoleAdd(t.Context(), user)
		require.NoError(t, err)
		_, err = root.RoleGrantPermission(t.Context(), user, "/rota/", clientv3.GetPrefixRangeEnd("/rota/"), right)
		require.NoError(t, err)
		_, err = root.UserGrantRole(t.Context(), user, user)
		require.NoError(t, err)
	}
	return readableStore{
		url: "etcd://" + cluster.Addrs()[0],
		owner: func(t *testing.T) registry.Registry {
			c, err := etcd.Open(t.Context(), etcd.Options{
				Endpoints: cluster.Addrs(), Username: "owner", Password: "pw", Logger: slog.New(slog.DiscardHandler),
			})
			require.NoError(t, err)
			return c
		},
	}
}

func readableZooKeeper(t *testing.T) readableStore {
	cluster := servertest.StartZooKeeper(t, testserver.ZooKeeperOptions{})
	return readableStore{
		url: "zookeeper://" + cluster.Addrs()[0],
		owner: func(t *testing.T) registry.Registry {
			c, err := zookeeper.Open(t.Context(), zookeeper.Options{
				Endpoints: cluster.Addrs(), Username: "owner", Password: "pw", Logger: slog.New(slog.DiscardHandler),
				ACL: append(zk.DigestACL(zk.PermAll, "owner", "pw"), zk.DigestACL(zk.PermRead, "reader", "pw")...),
			})
			require.NoError(t, err)
			return c
		},
	}
}

func TestLook_NeedsTheRightToReadOnly(t *testing.T) {
	for kind, start := range map[string]func(*testing.T) readableStore{"etcd": readableEtcd, "zookeeper": readableZooKeeper} {
		t.Run(kind, func(t *testing.T) {
			store := start(t)
			command := func(user, line string) (code int, out, errs string) {
				s := settings.New(nil)
				s.Getenv = func(name string) string {
					return map[string]string{
						"ROTA_REGISTRY": store.url, "ROTA_NAMESPACE": "billing", "ROTA_USER": user, "ROTA_PASSWORD": "pw",
						"ROTA_CONFIG": t.TempDir() + "/config.yaml", "ROTA_TIMEOUT": "30s",
					}[name]
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var o, e bytes.Buffer
				shown := io.Writer(&o)
				if strings.HasPrefix(line, "top") { // runs until it is interrupted
					shown = writerFunc(func(b []byte) (int, error) {
						cancel()
						return o.Write(b)
					})
				}
				code = run(ctx, s, strings.Fields(line), Streams{In: strings.NewReader(""), Out: shown, Err: &e})
				return code, o.String(), e.String()
			}
			reg := store.owner(t)
			defer reg.Close(context.Background())
			e, err := executor.New(reg, "billing", executor.Options{Instance: "web-1", Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			require.NoError(t, e.Register(executor.Job{
				Name: "settle", Schedule: schedule.Cron("0 3 * * *"),
				Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil }),
			}))
			require.NoError(t, e.Start(t.Context()))
			defer func() { assert.NoError(t, e.Shutdown(context.Background())) }()
			require.Eventually(t, func() bool {
				_, out, _ := command("owner", "check")
				return strings.Contains(out, "ROTA OK")
			}, 30*time.Second, 50*time.Millisecond)

			for _, line := range lookCommands(t) {
				code, out, errs := command("reader", line)
				want := exit.OK
				if line == "explain settle" {
					want = exit.NotMet // it has not run yet
				}
				assert.Equal(t, want, code, "rota %s: %s", line, errs)
				assert.NotEmpty(t, out, line)
				assert.NotContains(t, out+errs, "permission", line)
			}
			code, _, errs := command("reader", "pause settle")
			assert.Equal(t, exit.Failed, code)
			assert.Contains(t, errs, "permission denied")
			assert.Contains(t, errs, "/rota")
			code, out, errs := command("reader", "__complete job s")
			assert.Equal(t, exit.OK, code, errs)
			assert.Contains(t, out, "settle\n")
		})
	}
}

type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
