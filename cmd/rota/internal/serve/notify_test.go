package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/notify"
)

// hook is a server of webhooks. It closes each connection, so that no goroutine of a bubble waits for it.
type hook struct {
	*httptest.Server
	mu   sync.Mutex
	got  []notify.Message
	code int
}

func newHook(t *testing.T, code int) *hook {
	t.Helper()
	h := &hook{code: code}
	h.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m notify.Message
		_ = json.Unmarshal(body, &m)
		h.mu.Lock()
		h.got = append(h.got, m)
		h.mu.Unlock()
		w.WriteHeader(h.code)
		fmt.Fprintf(w, "path %s", r.URL.Path)
	}))
	h.Config.SetKeepAlivesEnabled(false)
	h.Start()
	t.Cleanup(h.Close)
	return h
}

func (h *hook) messages() (all []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.got {
		all = append(all, strings.TrimSpace(m.Job+" "+string(m.Transition)))
	}
	return all
}

func TestNotify_AProcessSendsMessagesAndReloadsReceivers(t *testing.T) {
	one, two := newHook(t, 200), newHook(t, 200)
	file := func(h *hook, job string) string {
		return fmt.Sprintf("namespace: billing\nnotify: {receivers: {ops: {webhook: {url: %q}}}, default: []}\njobs:\n  sad: {every: 10s, shell: \"exit 3\", notify: [ops]}\n  worse: {every: 10s, shell: \"exit 4\"%s}\n", h.URL, job)
	}
	path := writeFile(t, file(one, ""))
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(path)
		p.start(t.Context())
		time.Sleep(3 * time.Minute)
		assert.Equal(t, []string{"sad failing"}, one.messages())
		require.NoError(t, os.WriteFile(path, []byte(file(two, ", notify: [ops]")), 0o600))
		p.signals <- syscall.SIGHUP
		time.Sleep(3 * time.Minute)
		assert.Len(t, p.find(t, "file reloaded"), 1)
		assert.Equal(t, []string{"sad failing"}, one.messages())
		assert.Equal(t, []string{"worse failing"}, two.messages(), "what the receiver knows is not repeated")
		p.signals <- syscall.SIGTERM
		require.NoError(t, p.await(t))
	})
}

func TestNotify_ReceiversMayAppearLater(t *testing.T) {
	h := newHook(t, 200)
	path := writeFile(t, "jobs:\n  sad: {every: 10s, shell: \"exit 3\"}\n")
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(path)
		p.start(t.Context())
		time.Sleep(time.Minute)
		require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, "notify: {receivers: {ops: {webhook: {url: %q}}}}\njobs:\n  sad: {every: 10s, shell: \"exit 3\"}\n", h.URL), 0o600))
		p.signals <- syscall.SIGHUP
		time.Sleep(3 * time.Minute)
		assert.Equal(t, []string{"sad failing"}, h.messages())
		p.signals <- syscall.SIGTERM
		require.NoError(t, p.await(t))
	})
}

// No line of a process names the secret of a receiver.
func TestNotify_LogsHaveNoSecrets(t *testing.T) {
	h := newHook(t, 500)
	secret := filepath.Join(t.TempDir(), "hook")
	require.NoError(t, os.WriteFile(secret, []byte(h.URL+"/services/T00-secret"), 0o600))
	path := writeFile(t, fmt.Sprintf("notify: {receivers: {ops: {webhook: {url: {from_file: %q}}}}}\njobs:\n  sad: {every: 10s, shell: \"exit 3\"}\n", secret))
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(path)
		p.start(t.Context())
		time.Sleep(10 * time.Minute)
		p.signals <- syscall.SIGTERM
		require.NoError(t, p.await(t))
		failed := p.find(t, "a receiver does not accept messages; trying again")
		require.NotEmpty(t, failed)
		assert.Equal(t, fmt.Sprintf("POST %s: status 500 Internal Server Error: path /***", h.URL), failed[0]["error"])
		assert.NotContains(t, p.buf.String(), "T00-secret")
	})
}

func notifyLine(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	var b bytes.Buffer
	root := &cobra.Command{Use: "rota", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(NotifyCommand(settings.New(nil)))
	root.SetOut(&b)
	root.SetErr(&b)
	root.SetArgs(append([]string{"notify"}, args...))
	err = root.ExecuteContext(t.Context())
	return b.String(), err
}

func TestNotifyTest(t *testing.T) {
	good, bad := newHook(t, 202), newHook(t, 403)
	path := writeFile(t, fmt.Sprintf("namespace: billing\nnotify: {receivers: {ops: {webhook: {url: \"%s/a-secret\"}}, down: {webhook: {url: \"%s/a-secret\"}}}}\njobs:\n  sad: {every: 10s, command: [/no/such/program]}\n", good.URL, bad.URL))
	out, err := notifyLine(t, "test", "ops", "-f", path)
	require.NoError(t, err)
	assert.Equal(t, "receiver ops accepted the message: 202 Accepted: path /***\n", out)
	assert.Equal(t, []string{"test"}, good.messages())
	assert.Equal(t, "billing", good.got[0].Namespace)

	_, err = notifyLine(t, "test", "down", "-f", path)
	assert.EqualError(t, err, fmt.Sprintf("receiver down: POST %s: status 403 Forbidden: path /***", bad.URL))

	for _, args := range [][]string{{"test", "nobody", "-f", path}, {"test", "ops", "-f", path + "x"}} {
		_, err = notifyLine(t, args...)
		assert.Equal(t, exit.Usage, exit.CodeOf(err), args)
	}
	_, err = notifyLine(t, "test", "nobody", "-f", path)
	assert.ErrorContains(t, err, `has no receiver "nobody"; its receivers: down, ops`)
}
