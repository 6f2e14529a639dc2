package serve

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/rotaprom"
)

// livenessTimeout is how long the executor may take to answer a question about its state.
const livenessTimeout = 2 * time.Second

// health answers whether a process is alive and ready. It reads nothing from the store.
type health struct {
	metrics *prometheus.Registry
	asking  chan struct{} // full while stats is called

	mu    sync.Mutex
	stats func() executor.Stats // nil until the executor exists
	ready bool
	state string // why it is not ready
}

// newHealth returns the health of a process that has no executor yet.
func newHealth() *health {
	h := &health{metrics: prometheus.NewRegistry(), asking: make(chan struct{}, 1), state: "no store has answered yet"}
	h.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return h
}

// handler returns the handler of /livez, /readyz and /metrics.
func (h *health) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", h.serveLive)
	mux.HandleFunc("GET /readyz", h.serveReady)
	mux.Handle("GET /metrics", promhttp.HandlerFor(h.metrics, promhttp.HandlerOpts{}))
	return mux
}

// observe makes the health that of an executor and its registry. Call it before Start.
func (h *health) observe(ex *executor.Executor, reg prometheus.Collector) {
	h.setState("the instance has not joined yet")
	ex.Observe(executor.Observer{SessionChanged: h.recordSession})
	h.metrics.MustRegister(rotaprom.Collector(ex), reg)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stats = ex.Stats
}

// setState records why the process is not ready.
func (h *health) setState(why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ready, h.state = false, why
}

// newProfiles returns the handler of /debug/pprof/.
func newProfiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// recordSession records whether the instance has a session that the store confirms.
func (h *health) recordSession(e executor.SessionChanged) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ready = e.State == executor.SessionJoined || e.State == executor.SessionResumed
	h.state = "the session is " + e.State.String()
	if e.Err != nil {
		h.state += ": " + e.Err.Error()
	}
}

// serveReady reports whether the instance is in the fleet, so that it can own shards.
func (h *health) serveReady(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	ready, state := h.ready, h.state
	h.mu.Unlock()
	if !ready {
		http.Error(w, "not ready: "+state, http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// serveLive reports whether the process works. The store does not matter: a restart of the fleet would
// not help it.
func (h *health) serveLive(w http.ResponseWriter, _ *http.Request) {
	if !h.answers() {
		http.Error(w, "not alive: the executor does not answer", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// answers reports whether the executor returns its state in time, which needs the locks that its loops
// use. At most one call waits for it, whatever the number of requests.
func (h *health) answers() bool {
	h.mu.Lock()
	stats := h.stats
	h.mu.Unlock()
	if stats == nil {
		return true
	}
	timeout := time.After(livenessTimeout)
	select {
	case h.asking <- struct{}{}:
	case <-timeout:
		return false
	}
	answered := make(chan struct{})
	go func() {
		stats()
		<-h.asking
		close(answered)
	}()
	select {
	case <-answered:
		return true
	case <-timeout:
		return false
	}
}
