package serve

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/rotaprom"
)

// get returns the status and body of a request.
func get(h http.Handler, path string) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func registryMetrics() prometheus.Collector { return rotaprom.NewRegistry(memory.New().Client("a")) }

func TestHealth_FollowsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		ex, err := executor.New(store.Client("a"), "test", executor.Options{Instance: "a", Logger: (&journal{}).logger()})
		require.NoError(t, err)
		of := newHealth()
		h := of.handler()
		is := func(ready int, state string) {
			t.Helper()
			synctest.Wait()
			code, body := get(h, "/readyz")
			assert.Equal(t, ready, code)
			assert.Contains(t, body, state)
			code, body = get(h, "/livez")
			assert.Equal(t, 200, code, "whatever the store does")
			assert.Equal(t, "ok\n", body)
		}
		is(503, "not ready: no store has answered yet")
		of.setState("the store has not answered since noon")
		is(503, "not ready: the store has not answered since noon")
		of.observe(ex, registryMetrics())
		is(503, "not ready: the instance has not joined yet")
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- ex.Run(ctx) }()
		time.Sleep(time.Second)
		is(200, "ok")

		heal := store.Partition("a")
		time.Sleep(6 * time.Second)
		is(503, "not ready: the session is suspended")
		heal()
		time.Sleep(5 * time.Second)
		is(200, "ok")
		heal = store.Partition("a")
		time.Sleep(time.Minute)
		is(503, "not ready: the session is lost: ")
		heal()
		time.Sleep(time.Minute)
		is(200, "ok")

		stop()
		require.NoError(t, <-ended)
		is(503, "not ready: the session is left")
	})
}

func TestHealth_IsNotAliveIfTheExecutorDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		var calls atomic.Int32
		h := &health{asking: make(chan struct{}, 1), stats: func() executor.Stats {
			calls.Add(1)
			<-goOn
			return executor.Stats{}
		}}
		for range 3 {
			w := httptest.NewRecorder()
			h.serveLive(w, httptest.NewRequest(http.MethodGet, "/livez", nil))
			assert.Equal(t, 503, w.Code)
		}
		assert.EqualValues(t, 1, calls.Load(), "calls do not pile up")
		close(goOn)
		synctest.Wait()
		w := httptest.NewRecorder()
		h.serveLive(w, httptest.NewRequest(http.MethodGet, "/livez", nil))
		assert.Equal(t, 200, w.Code)
	})
}

func TestHealth_ServesMetrics(t *testing.T) {
	ex, err := executor.New(memory.New().Client("a"), "shop", executor.Options{Instance: "a"})
	require.NoError(t, err)
	of := newHealth()
	h := of.handler()
	code, body := get(h, "/metrics")
	assert.Equal(t, 200, code, "before the store has answered")
	assert.Contains(t, body, "go_goroutines ")
	of.observe(ex, registryMetrics())
	code, body = get(h, "/metrics")
	assert.Equal(t, 200, code)
	for _, metric := range []string{`rota_leader{rota_group="default",rota_namespace="shop"} 0`, "go_goroutines ", "process_", `rota_registry_requests_total{op="txn",result="ok"} 0`} {
		assert.Contains(t, body, metric)
	}
	for path, want := range map[string]int{"/debug/pprof/": 404, "/": 404, "/livez": 200} {
		code, _ := get(h, path)
		assert.Equal(t, want, code, path)
	}
}

func TestProfiles_AreReadOnly(t *testing.T) {
	h := newProfiles()
	for path, want := range map[string]int{"/debug/pprof/": 200, "/debug/pprof/goroutine?debug=1": 200, "/debug/pprof/cmdline": 404, "/metrics": 404} {
		code, _ := get(h, path)
		assert.Equal(t, want, code, path)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/debug/pprof/heap", nil))
	assert.Equal(t, http.StatusMethodNotAllowed, w.Code)
}
