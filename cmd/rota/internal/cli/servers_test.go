package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
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
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/schedule"
)

// TestCommands_OnServers runs the commands against real servers.
func TestCommands_OnServers(t *testing.T) {
	for kind, url := range map[string]string{
		"etcd":      "etcd://" + servertest.StartEtcd(t, testserver.EtcdOptions{}).Addrs()[0] + "/some/prefix",
		"zookeeper": "zookeeper://" + servertest.StartZooKeeper(t, testserver.ZooKeeperOptions{}).Addrs()[0] + "/some/chroot",
	} {
		t.Run(kind, func(t *testing.T) {
			command := func(ctx context.Context, line string, out, errs io.Writer) int {
				s := settings.New(nil)
				s.Getenv = func(name string) string {
					return map[string]string{"ROTA_REGISTRY": url, "ROTA_NAMESPACE": "billing"}[name]
				}
				return run(ctx, s, strings.Fields(line), Streams{In: strings.NewReader(""), Out: out, Err: errs})
			}
			expect := func(line, want string) {
				t.Helper()
				var out, errs bytes.Buffer
				assert.Equal(t, exit.OK, command(t.Context(), line, &out, &errs), errs.String())
				assert.Contains(t, out.String(), want, line)
			}
			var absent, none bytes.Buffer
			assert.Equal(t, exit.Usage, command(t.Context(), "jobs", &absent, &none))
			assert.Contains(t, absent.String(), "There is no fleet: ")
			expect("check --min-jobs 0 --min-instances 0", "ROTA OK - 0 jobs of billing/default")
			reg, err := registryurl.Open(t.Context(), url, slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			defer reg.Close(context.Background())
			e, err := executor.New(reg, "billing", executor.Options{Instance: "web-1", Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			require.NoError(t, e.Register(executor.Job{
				Name: "settle", Schedule: schedule.Cron("0 3 * * *"), Shards: 3,
				Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil }),
			}))
			require.NoError(t, e.Start(t.Context()))
			defer func() { assert.NoError(t, e.Shutdown(context.Background())) }()

			expect("wait settle --for moved --timeout 30s", "settle has moved")
			expect("trigger settle --wait --wait-timeout 30s", "trigger #1 of settle has ended")
			expect("jobs", "3/0/0         ok")
			expect("job settle", "web-1")
			expect("instances", "leader")
			expect("dump", `"key": "groups/default/plan/settle"`)
			expect("check", "ROTA OK - 1 job of billing/default")
			expect("__complete job s", "settle\n")

			ctx, cancel := context.WithCancel(t.Context())
			var shown output
			ended := make(chan int)
			go func() { ended <- command(ctx, "jobs -w -o jsonl", &shown, &shown) }()
			awaitScreen := func(state string) {
				t.Helper()
				require.Eventually(t, func() bool { return strings.Contains(shown.String(), `"state":"`+state+`"`) }, 30*time.Second, 50*time.Millisecond)
			}
			awaitScreen("ok")
			expect("pause settle", "paused settle")
			awaitScreen("paused")
			cancel()
			assert.Equal(t, exit.OK, <-ended)
			var out, errs bytes.Buffer
			assert.Equal(t, exit.NoJob, command(t.Context(), "job nosuch", &out, &errs), errs.String())

			op, err := operator.New(reg, "billing", "")
			require.NoError(t, err)
			expect("retire settle --by kim --yes", "retires settle: deleted once no instance offers it; now web-1")
			expect("check", "ROTA OK - 1 job of billing/default")
			expect("job settle", "retiring by kim")
			assert.Equal(t, exit.NotMet, command(t.Context(), "resume settle", &out, &errs))
			expect("unretire settle", "unretired settle")
			expect("resume settle", "resumed settle")
			expect("trigger settle --wait --wait-timeout 30s", "has ended")
			expect("retire settle --yes", "retires settle")
			require.NoError(t, e.Withdraw(t.Context(), "settle"))
			require.Eventually(t, func() bool {
				_, err := op.Status(t.Context(), "settle")
				return errors.Is(err, operator.ErrUnknownJob)
			}, 30*time.Second, 50*time.Millisecond)
			assert.Equal(t, exit.NoJob, command(t.Context(), "retire settle --yes", &out, &errs))
			expect("doctor", "")
		})
	}
}

// output is a buffer that one goroutine writes while another reads.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
