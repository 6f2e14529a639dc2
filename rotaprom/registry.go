package rotaprom

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rota-dev/rota/registry"
)

// Registry is a registry that measures its operations, and the collector of these metrics:
//
//	reg := rotaprom.NewRegistry(reg)
//	ex, err := executor.New(reg, "billing", executor.Options{})
//	...
//	prometheus.MustRegister(reg, rotaprom.Collector(ex))
//
// Renewals of sessions and batches of watches are not operations: backends handle them on their own.
type Registry struct {
	registry.Registry
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

var (
	_ registry.Clock       = (*Registry)(nil)
	_ registry.Completer   = (*Registry)(nil)
	_ prometheus.Collector = (*Registry)(nil)
)

// NewRegistry returns a registry that measures the operations of reg. Closing it closes reg. The metrics have no labels
// for the fleet; with several registries in a process, use prometheus.WrapRegistererWith.
func NewRegistry(reg registry.Registry) *Registry {
	r := &Registry{
		Registry: reg,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rota_registry_requests_total", Help: "Operations on the registry, by result.",
		}, []string{"op", "result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rota_registry_request_duration_seconds", Help: "Time from the call of an operation on the registry to its return.",
			Buckets: []float64{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10},
		}, []string{"op"}),
	}
	for _, op := range operations {
		for _, result := range results {
			r.requests.WithLabelValues(op, result)
		}
		r.duration.WithLabelValues(op)
	}
	return r
}

// The values of the labels op and result.
var (
	operations = []string{"get", "get_fresh", "list", "list_fresh", "txn", "watch", "open_session"}
	results    = []string{"ok", "conflict", "cancelled", "error"}
)

// Describe sends the descriptors of all metrics.
func (r *Registry) Describe(ch chan<- *prometheus.Desc) {
	r.requests.Describe(ch)
	r.duration.Describe(ch)
}

// Collect sends all metrics.
func (r *Registry) Collect(ch chan<- prometheus.Metric) {
	r.requests.Collect(ch)
	r.duration.Collect(ch)
}

// measure records an operation that began at a time.
func (r *Registry) measure(op string, began time.Time, err error) {
	result := resultOf(err)
	r.requests.WithLabelValues(op, result).Inc()
	if result != "cancelled" {
		r.duration.WithLabelValues(op).Observe(time.Since(began).Seconds())
	}
}

// resultOf returns the label of an outcome. An absent key is an answer.
func resultOf(err error) string {
	switch {
	case err == nil, errors.Is(err, registry.ErrNotFound), errors.Is(err, registry.ErrNoClock):
		return "ok"
	case errors.Is(err, registry.ErrClosed), errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, registry.ErrConflict) && !errors.Is(err, registry.ErrUnknownOutcome):
		return "conflict"
	}
	return "error"
}

// read returns the label of a read.
func read(op string, o registry.ReadOptions) string {
	if o.Fresh {
		return op + "_fresh"
	}
	return op
}

// Get is described in registry.Registry.
func (r *Registry) Get(ctx context.Context, key registry.Key, o registry.ReadOptions) (registry.Entry, error) {
	began := time.Now()
	e, err := r.Registry.Get(ctx, key, o)
	r.measure(read("get", o), began, err)
	return e, err
}

// List is described in registry.Registry.
func (r *Registry) List(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
	began := time.Now()
	l, err := r.Registry.List(ctx, dir, o)
	r.measure(read("list", o), began, err)
	return l, err
}

// Txn is described in registry.Registry.
func (r *Registry) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	began := time.Now()
	rev, err := r.Registry.Txn(ctx, t)
	r.measure("txn", began, err)
	return rev, err
}

// Watch is described in registry.Registry. The operation is the begin of the watch.
func (r *Registry) Watch(ctx context.Context, dir registry.Key, o registry.WatchOptions) (registry.Watcher, error) {
	began := time.Now()
	w, err := r.Registry.Watch(ctx, dir, o)
	r.measure("watch", began, err)
	return w, err
}

// OpenSession is described in registry.Registry.
func (r *Registry) OpenSession(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
	began := time.Now()
	s, err := r.Registry.OpenSession(ctx, o)
	r.measure("open_session", began, err)
	return s, err
}

// WrittenAt is described in registry.Clock. It is measured as a plain read.
func (r *Registry) WrittenAt(ctx context.Context, key registry.Key) (time.Time, error) {
	began := time.Now()
	at, err := registry.WrittenAt(ctx, r.Registry, key)
	r.measure("get", began, err)
	return at, err
}

// CompleteRun is described in registry.Completer. It is not measured: it belongs to a transaction of the caller.
func (r *Registry) CompleteRun(ctx context.Context, tx any, end registry.RunEnd) error {
	return registry.CompleteRun(ctx, r.Registry, tx, end)
}

// FenceRun is described in registry.Completer. It is not measured.
func (r *Registry) FenceRun(ctx context.Context, end registry.RunEnd) (registry.Completion, error) {
	return registry.FenceRun(ctx, r.Registry, end)
}
