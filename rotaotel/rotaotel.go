// Package rotaotel traces the runs of an executor with OpenTelemetry:
//
//	executor.Options{Middleware: []executor.Middleware{rotaotel.Middleware(nil)}}
//
// Each run is a span, of kind SERVER and the root of a trace of its own, since the shards of a fire
// run in several processes at different times. Its name is "run JOB", or "run kind KIND" for a defined
// job, since there may be any number of these. The context of the handler has the span, so spans and
// requests of the handler are below it.
//
// Spans of one fire have a link to the same span context, which FireContext derives from the
// namespace, the job and the fire. No span has that context. So a search for spans with its trace ID
// in a link finds all shards and attempts of a fire, and nothing is stored or sent for that.
//
// The trace ID is that of executor.RunEnded, of the history and of the lines of Run.Logger.
//
// Attributes are rota.namespace, rota.job, rota.kind for a defined job, rota.shard, rota.fire,
// rota.trigger, rota.attempt, rota.reason, rota.run.id, rota.fence and rota.instance. The status of a
// run that succeeds is unset. Others have the status Error, with the error's text, and error.type:
// timeout, panic, drained, session_lost, or the Go type of the error.
package rotaotel

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/rota-dev/rota/executor"
)

// scope is the name of the instrumentation, which is the path of this package.
var scope = reflect.TypeFor[tracing]().PkgPath()

// Middleware returns a middleware that traces each run. Nil means the global provider. As the first
// of Options.Middleware, its spans include the work of the others.
func Middleware(provider trace.TracerProvider) executor.Middleware {
	return func(next executor.Handler) executor.Handler {
		return &tracing{provider, next}
	}
}

// tracing is a handler that traces the runs of another.
type tracing struct {
	provider trace.TracerProvider // nil: the global one
	next     executor.Handler
}

// Handle calls the other handler within a span.
func (h *tracing) Handle(ctx context.Context, r *executor.Run) (err error) {
	provider := h.provider
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	name := r.Job
	if r.Kind != "" {
		name = "kind " + r.Kind // backends keep figures for each name
	}
	ctx, span := provider.Tracer(scope).Start(ctx, "run "+name,
		trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributes(r)...),
		trace.WithLinks(trace.Link{SpanContext: FireContext(r)}))
	defer span.End()
	if id := span.SpanContext().TraceID(); id.IsValid() {
		r.SetTraceID(id.String())
	}
	returned := false
	defer func() {
		switch {
		case !returned: // it panics, or has called Goexit; to recover would cut its stack
			fail(span, "panic", "handler panicked")
		case err != nil:
			fail(span, errorType(ctx, err), err.Error())
		}
	}()
	err = h.next.Handle(ctx, r)
	returned = true
	return err
}

// fail records that a run has failed.
func fail(span trace.Span, errorType, description string) {
	span.SetAttributes(attribute.String("error.type", errorType))
	span.SetStatus(codes.Error, description)
}

// errorType returns the value of error.type for a handler with context ctx that returned err.
func errorType(ctx context.Context, err error) string {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, executor.ErrTimeout):
		return "timeout"
	case errors.Is(cause, executor.ErrDraining):
		return "drained"
	case errors.Is(cause, executor.ErrCancelled):
		return "cancelled"
	case errors.Is(cause, executor.ErrSessionLost):
		return "session_lost"
	}
	return fmt.Sprintf("%T", err)
}

// attributes returns the attributes of a run's span.
func attributes(r *executor.Run) []attribute.KeyValue {
	all := []attribute.KeyValue{
		attribute.String("rota.namespace", r.Namespace),
		attribute.String("rota.job", r.Job),
		attribute.Int("rota.shard", r.Shard),
		attribute.String("rota.fire", r.FireTime.UTC().Format(time.RFC3339Nano)),
		attribute.Int("rota.attempt", r.Attempt),
		attribute.String("rota.reason", r.Reason.String()),
		attribute.String("rota.run.id", r.ID),
		attribute.Int64("rota.fence", int64(min(r.Fence, math.MaxInt64))),
		attribute.String("rota.instance", r.Instance),
	}
	if r.Kind != "" {
		all = append(all, attribute.String("rota.kind", r.Kind))
	}
	if r.Trigger > 0 {
		all = append(all, attribute.Int64("rota.trigger", int64(min(r.Trigger, math.MaxInt64))))
	}
	return all
}

// FireContext returns the span context to which all runs of a fire, or of a trigger, have a link. It
// depends on the namespace, the job, its creation and the work in Run.Key, which never comes again for other work, and on
// nothing else. A retry of a fire has the work of the fire. Programs may link their own spans to it. For a Run without
// Key, such as a literal, the fire or the number of the trigger is the work; that number may come again after the job
// was forgotten.
func FireContext(r *executor.Run) trace.SpanContext {
	work := r.FireTime.UTC().Format(time.RFC3339Nano)
	if r.Trigger > 0 {
		work = "#" + strconv.FormatUint(r.Trigger, 10)
	}
	if i := strings.LastIndexByte(r.Key, '/'); i >= 0 {
		work = r.Key[i+1:]
	}
	of := r.Namespace + "\x00" + r.Job + "\x00" + work // names contain no NUL
	if r.Created != "" {
		of += "\x00" + r.Created
	}
	h := sha256.Sum256([]byte(of))
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(h[:16]), SpanID: trace.SpanID(h[16:24]), TraceFlags: trace.FlagsSampled, Remote: true,
	})
}
