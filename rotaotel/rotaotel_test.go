package rotaotel

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

func newProvider() (*sdktrace.TracerProvider, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	return sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)), spans
}

func attributesOf(s sdktrace.ReadOnlySpan) map[string]any {
	out := map[string]any{}
	for _, a := range s.Attributes() {
		out[string(a.Key)] = a.Value.AsInterface()
	}
	return out
}

func TestMiddleware_TracesTheRunsOfAFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider, spans := newProvider()
		server, tracer := memory.New(), provider.Tracer("test")
		var all []*executor.Executor
		observed, triggered := make(chan string, 100), make(chan *executor.Run, 1)
		for _, name := range []string{"a", "b"} {
			ex, err := executor.New(server.Client(name), "billing", executor.Options{
				Instance: name, Logger: slog.New(slog.DiscardHandler), Middleware: []executor.Middleware{Middleware(provider)},
				Observer: executor.Observer{RunEnded: func(e executor.RunEnded) { observed <- e.TraceID }},
			})
			require.NoError(t, err)
			require.NoError(t, ex.Register(executor.Job{
				Name: "settle", Schedule: schedule.Every(time.Minute), Shards: 4,
				Handler: executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
					if r.Trigger > 0 {
						triggered <- r
					}
					_, span := tracer.Start(ctx, "query")
					span.End()
					time.Sleep(time.Second)
					return nil
				}),
			}))
			require.NoError(t, ex.Start(t.Context()))
			all = append(all, ex)
		}
		time.Sleep(2*time.Minute + 30*time.Second)
		_, err := all[0].Trigger(t.Context(), "settle", executor.Trigger{Shards: []int{2}})
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		for _, ex := range all {
			require.NoError(t, ex.Shutdown(t.Context()))
		}
		links, instances := map[trace.TraceID]int{}, map[any]bool{}
		traces, queries := map[trace.TraceID]bool{}, 0
		for _, s := range spans.Ended() {
			if s.Name() == "query" {
				queries++
				assert.True(t, s.Parent().IsValid(), "a span of the handler is below that of the run")
				continue
			}
			assert.Equal(t, "run settle", s.Name())
			assert.Equal(t, trace.SpanKindServer, s.SpanKind())
			assert.False(t, s.Parent().IsValid())
			assert.Equal(t, codes.Unset, s.Status().Code)
			assert.Equal(t, time.Second, s.EndTime().Sub(s.StartTime()))
			traces[s.SpanContext().TraceID()] = true
			require.Len(t, s.Links(), 1)
			links[s.Links()[0].SpanContext.TraceID()]++
			instances[attributesOf(s)["rota.instance"]] = true
			assert.Positive(t, attributesOf(s)["rota.fence"])
		}
		assert.Len(t, traces, 9)
		close(observed)
		for id := range observed {
			of, err := trace.TraceIDFromHex(id)
			assert.NoError(t, err)
			assert.True(t, traces[of], "the end of a run names its trace")
			delete(traces, of)
		}
		assert.Empty(t, traces)
		assert.Equal(t, 9, queries)
		assert.Equal(t, map[any]bool{"a": true, "b": true}, instances)
		start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		assert.Equal(t, map[trace.TraceID]int{
			FireContext(&executor.Run{RunInfo: executor.RunInfo{Namespace: "billing", Job: "settle", FireTime: start.Add(time.Minute)}}).TraceID():     4,
			FireContext(&executor.Run{RunInfo: executor.RunInfo{Namespace: "billing", Job: "settle", FireTime: start.Add(2 * time.Minute)}}).TraceID(): 4,
			FireContext(<-triggered).TraceID(): 1,
		}, links)
	})
}

// someError is an error with a type.
type someError struct{}

func (someError) Error() string { return "some error" }

func TestMiddleware_Outcomes(t *testing.T) {
	run := &executor.Run{RunInfo: executor.RunInfo{
		ID: "settle/2/2026-11-22T03:00:00Z/3", Namespace: "billing", Job: "settle", Shard: 2, FireTime: time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC),
		Attempt: 3, Reason: executor.Failover, Fence: 88219, Instance: "web-1",
	}}
	attrs := func(errorType string) map[string]any {
		out := map[string]any{
			"rota.namespace": "billing", "rota.job": "settle", "rota.shard": int64(2), "rota.fire": "2026-11-22T03:00:00Z", "rota.attempt": int64(3),
			"rota.reason": "failover", "rota.run.id": "settle/2/2026-11-22T03:00:00Z/3", "rota.fence": int64(88219), "rota.instance": "web-1",
		}
		if errorType != "" {
			out["error.type"] = errorType
		}
		return out
	}
	for name, c := range map[string]struct {
		cause     error
		handle    func() error
		errorType string
		status    sdktrace.Status
	}{
		"success":                       {nil, func() error { return nil }, "", sdktrace.Status{}},
		"success after a time-out":      {executor.ErrTimeout, func() error { return nil }, "", sdktrace.Status{}},
		"an error":                      {nil, func() error { return someError{} }, "rotaotel.someError", sdktrace.Status{Code: codes.Error, Description: "some error"}},
		"an error after the time-out":   {executor.ErrTimeout, func() error { return io.EOF }, "timeout", sdktrace.Status{Code: codes.Error, Description: "EOF"}},
		"an error of a drain":           {executor.ErrDraining, func() error { return io.EOF }, "drained", sdktrace.Status{Code: codes.Error, Description: "EOF"}},
		"an error after a lost session": {errors.Join(executor.ErrSessionLost), func() error { return io.EOF }, "session_lost", sdktrace.Status{Code: codes.Error, Description: "EOF"}},
		"a panic":                       {nil, func() error { panic(io.EOF) }, "panic", sdktrace.Status{Code: codes.Error, Description: "handler panicked"}},
		"Goexit":                        {nil, func() error { runtime.Goexit(); return nil }, "panic", sdktrace.Status{Code: codes.Error, Description: "handler panicked"}},
	} {
		t.Run(name, func(t *testing.T) {
			provider, spans := newProvider()
			outer, _ := provider.Tracer("test").Start(t.Context(), "outer")
			ctx, cancel := context.WithCancelCause(outer)
			defer cancel(nil)
			if c.cause != nil {
				cancel(c.cause)
			}
			h := Middleware(provider)(executor.HandlerFunc(func(context.Context, *executor.Run) error { return c.handle() }))
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { recover() }()
				h.Handle(ctx, run)
			}()
			<-done
			require.Len(t, spans.Ended(), 1)
			s := spans.Ended()[0]
			assert.Equal(t, attrs(c.errorType), attributesOf(s))
			assert.Equal(t, c.status, s.Status())
			assert.False(t, s.Parent().IsValid(), "a run is a root, also in a context with a span")
			assert.Equal(t, []sdktrace.Link{{SpanContext: FireContext(run)}}, s.Links())
		})
	}
}

func TestMiddleware_NamesTheSpansOfDefinedJobsByTheirKind(t *testing.T) {
	provider, spans := newProvider()
	h := Middleware(provider)(executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil }))
	require.NoError(t, h.Handle(t.Context(), &executor.Run{RunInfo: executor.RunInfo{Job: "remind-4711", Kind: "mail", Created: "x7"}}))
	require.Len(t, spans.Ended(), 1)
	assert.Equal(t, "run kind mail", spans.Ended()[0].Name())
	assert.Equal(t, "remind-4711", attributesOf(spans.Ended()[0])["rota.job"])
	assert.Equal(t, "mail", attributesOf(spans.Ended()[0])["rota.kind"])
}

func TestMiddleware_UsesTheGlobalProviderOfTheTimeOfTheRun(t *testing.T) {
	h := Middleware(nil)(executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil }))
	provider, spans := newProvider()
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(provider)
	defer otel.SetTracerProvider(before)
	require.NoError(t, h.Handle(t.Context(), &executor.Run{RunInfo: executor.RunInfo{Job: "job", Trigger: 7}}))
	require.Len(t, spans.Ended(), 1)
	assert.Contains(t, spans.Ended()[0].Attributes(), attribute.Int64("rota.trigger", 7))
	assert.Equal(t, scope, spans.Ended()[0].InstrumentationScope().Name)
}

func TestFireContext(t *testing.T) {
	at := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	fire := FireContext(&executor.Run{RunInfo: executor.RunInfo{Namespace: "billing", Job: "settle", FireTime: at}})
	assert.True(t, fire.IsValid())
	assert.Equal(t, "c099c95463c397dd78584b6bce2d6673-405c87354d9c7e3e", fire.TraceID().String()+"-"+fire.SpanID().String(), "programs of other versions link to the same")
	assert.Equal(t, fire, FireContext(&executor.Run{RunInfo: executor.RunInfo{Namespace: "billing", Job: "settle", FireTime: at.In(time.FixedZone("east", 3600)), Shard: 3, Attempt: 2, Instance: "b"}}))
	for name, other := range map[string]executor.RunInfo{
		"namespace": {Namespace: "other", Job: "settle", FireTime: at},
		"job":       {Namespace: "billing", Job: "other", FireTime: at},
		"fire":      {Namespace: "billing", Job: "settle", FireTime: at.Add(time.Nanosecond)},
		"trigger":   {Namespace: "billing", Job: "settle", FireTime: at, Trigger: 1},
		"creation":  {Namespace: "billing", Job: "settle", FireTime: at, Kind: "mail", Created: "x7"},
	} {
		assert.NotEqual(t, fire, FireContext(&executor.Run{RunInfo: other}), name)
	}
}

// The number of a trigger comes again once the job was forgotten; the key of its work does not.
func TestFireContext_OfTriggersWithOneNumber(t *testing.T) {
	run := func(key string, shard int) *executor.Run {
		return &executor.Run{RunInfo: executor.RunInfo{Namespace: "billing", Group: "default", Job: "settle", Trigger: 1, Shard: shard, Key: key}}
	}
	first := FireContext(run("billing/default/settle/0/#1-aaaa", 0))
	assert.Equal(t, first, FireContext(run("billing/default/settle/3/#1-aaaa", 3)), "all shards")
	assert.NotEqual(t, first, FireContext(run("billing/default/settle/0/#1-bbbb", 0)), "a trigger after Forget")
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	retried := run("billing/default/settle/0/2026-03-01T12:00:00Z", 0)
	retried.FireTime = at
	fire := &executor.Run{RunInfo: executor.RunInfo{Namespace: "billing", Group: "default", Job: "settle", FireTime: at, Key: "billing/default/settle/1/2026-03-01T12:00:00Z", Shard: 1}}
	assert.Equal(t, FireContext(fire), FireContext(retried), "a retry does the work of the fire")
}
