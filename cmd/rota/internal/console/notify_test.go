package console

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/internal/secret"
	"github.com/rota-dev/rota/notify"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// hook is a server of webhooks. It closes each connection, so that no goroutine of a bubble waits for it.
type hook struct {
	*httptest.Server
	mu  sync.Mutex
	got []notify.Message
}

func newHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{}
	h.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var m notify.Message
		_ = json.Unmarshal(body, &m)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.got = append(h.got, m)
	}))
	h.Config.SetKeepAlivesEnabled(false)
	h.Start()
	t.Cleanup(h.Close)
	return h
}

// messages returns the jobs and the transitions of the messages.
func (h *hook) messages() (all []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.got {
		all = append(all, fmt.Sprintf("%s %s %s", m.Namespace, m.Job, m.Transition))
	}
	return all
}

// receiversFile writes a file for --notify with a receiver at a hook.
func receiversFile(t *testing.T, h *hook) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify.yaml")
	writeReceivers(t, path, h)
	return path
}

func writeReceivers(t *testing.T, path string, h *hook) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, "notify: {receivers: {ops: {webhook: {url: %q}}}}\n", h.URL), 0o600))
}

// startInstance starts an instance of a fleet with a job, and returns how to end it without a word to the others.
func startInstance(t *testing.T, store *memory.Server, namespace string) (kill func()) {
	t.Helper()
	ex, err := executor.New(store.Client(namespace), namespace, executor.Options{Instance: "a", SessionTTL: 10 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, ex.Register(executor.Job{Name: "settle", Schedule: schedule.Every(time.Minute), Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil })}))
	require.NoError(t, ex.Start(t.Context()))
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = ex.Shutdown(ended)
	})
	return func() {
		store.Partition(namespace)
		store.Expire(namespace)
	}
}

// openFleets opens the fleets of a server whose store is in memory, until the returned function is called.
func openFleets(t *testing.T, store *memory.Server, o options) (s *server, log *journal, stop func()) {
	t.Helper()
	var clients atomic.Int64 // fleets open at once
	s, log = newRealServer(t, o, func(string, registryurl.Options) (registry.Registry, error) {
		return store.Client(fmt.Sprint("web-", clients.Add(1))), nil
	})
	s.secrets = &secret.Masker{}
	files, _, err := s.load()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var tasks sync.WaitGroup
	tasks.Go(func() { watchFiles(ctx, files, s.log) })
	for _, f := range s.fleets {
		tasks.Go(func() { f.serve(ctx, s.open, s.log) })
	}
	return s, log, func() {
		cancel()
		tasks.Wait()
		s.sessions.Close()
	}
}

// Nobody of the fleet is left that could send a message.
func TestNotify_ReportsAFleetThatIsGone(t *testing.T) {
	h := newHook(t)
	path := receiversFile(t, h)
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		kill := startInstance(t, store, "billing")
		_, _, stop := openFleets(t, store, options{notify: []string{path}})
		time.Sleep(10 * time.Minute)
		require.Empty(t, h.messages())
		kill()
		time.Sleep(5 * time.Minute)
		assert.Equal(t, []string{"billing settle late"}, h.messages())
		stop()
	})
}

// A console that only looks sends messages too, on a connection of its own.
func TestNotify_NeedsNoRightToAct(t *testing.T) {
	h := newHook(t)
	path := receiversFile(t, h)
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		readOnly := map[bool]int{}
		s, _ := newRealServer(t, options{notify: []string{path}}, func(_ string, o registryurl.Options) (registry.Registry, error) {
			readOnly[o.ReadOnly]++
			return store.Client("web"), nil
		})
		s.secrets = &secret.Masker{}
		_, _, err := s.load()
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		_, closeFleet, err := s.open(ctx, s.fleets[0])
		require.NoError(t, err)
		assert.Equal(t, map[bool]int{true: 1, false: 1}, readOnly, "the pages have a connection for reading")
		time.Sleep(time.Minute)
		cancel()
		require.NoError(t, closeFleet.Close())
		s.sessions.Close()
	})
}

func TestNotify_FollowsTheFile(t *testing.T) {
	one, two := newHook(t), newHook(t)
	path := receiversFile(t, one)
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		kill := startInstance(t, store, "billing")
		_, log, stop := openFleets(t, store, options{notify: []string{path}})
		time.Sleep(2 * time.Minute)
		require.NoError(t, os.WriteFile(path, []byte("notify: {}"), 0o600))
		time.Sleep(time.Minute)
		assert.Contains(t, log.String(), "a changed file cannot be used")
		writeReceivers(t, path, two)
		time.Sleep(time.Minute)
		kill()
		time.Sleep(5 * time.Minute)
		assert.Empty(t, one.messages())
		assert.Equal(t, []string{"billing settle late"}, two.messages())
		stop()
	})
}

func TestNotify_EachFleetHasItsFile(t *testing.T) {
	all, own := newHook(t), newHook(t)
	ofAll, ofSearch := receiversFile(t, all), receiversFile(t, own)
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		killBilling, killSearch := startInstance(t, store, "billing"), startInstance(t, store, "search")
		s, _, stop := openFleets(t, store, options{contexts: []string{"billing", "search"}, notify: []string{"search=" + ofSearch, ofAll}})
		assert.Equal(t, "It sends messages about billing to ops; search to ops.\n", s.describeReceivers())
		time.Sleep(time.Minute)
		killBilling()
		killSearch()
		time.Sleep(5 * time.Minute)
		assert.Equal(t, []string{"billing settle late"}, all.messages())
		assert.Equal(t, []string{"search settle late"}, own.messages())
		stop()
	})
}

func TestNotify_RefusesToStart(t *testing.T) {
	good := receiversFile(t, newHook(t))
	open := filepath.Join(t.TempDir(), "open.yaml")
	require.NoError(t, os.WriteFile(open, []byte("notify: {}"), 0o600))
	require.NoError(t, os.Chmod(open, 0o622))
	for want, files := range map[string][]string{
		"neither FILE nor CONTEXT=FILE":                        {""},
		"names the fleet \"prod\", which is not served":        {"prod=" + good},
		"names two files for the fleet billing":                {good, receiversFile(t, newHook(t))},
		"names two files for the fleet search":                 {"search=" + good, "search=" + receiversFile(t, newHook(t))},
		"no such file or directory":                            {"/nonexistent/notify.yaml"},
		"and it determines who gets messages about the fleets": {open},
	} {
		s, _ := newRealServer(t, options{contexts: []string{"billing", "search"}, notify: files}, nil)
		err := s.run(t.Context())
		assert.ErrorContains(t, err, want)
		assert.Equal(t, exit.Usage, exit.CodeOf(err))
	}
}

// Neither the log nor the output has the address of a receiver, which is a secret.
func TestNotify_MasksSecrets(t *testing.T) {
	h := newHook(t)
	h.Close() // no connection
	secretFile := filepath.Join(t.TempDir(), "url")
	require.NoError(t, os.WriteFile(secretFile, []byte(h.URL+"/s3cret-path"), 0o600))
	path := filepath.Join(t.TempDir(), "notify.yaml")
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, "notify: {receivers: {ops: {webhook: {url: {from_file: %s}}}}}\n", secretFile), 0o600))
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		kill := startInstance(t, store, "billing")
		s, log, stop := openFleets(t, store, options{notify: []string{path}})
		kill()
		time.Sleep(10 * time.Minute)
		assert.Contains(t, log.String(), "receiver=ops")
		assert.NotContains(t, log.String(), "s3cret-path")
		assert.Equal(t, "***", s.secrets.Mask(h.URL+"/s3cret-path"))
		stop()
	})
}

func TestNotify_IsAFlag(t *testing.T) {
	root := withFlags(settingsOf(t, nil))
	var out bytes.Buffer
	root.SetErr(&out)
	root.SetArgs([]string{"web", "--notify", "/nonexistent/notify.yaml"})
	assert.ErrorContains(t, root.ExecuteContext(t.Context()), strings.TrimPrefix("/nonexistent/notify.yaml", "/"))
}
