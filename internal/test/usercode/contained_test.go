package usercode

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/handler"
	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// deeds are what user code does instead of returning. The functions return once the deeds are over.
var deeds = map[string]func(over <-chan struct{}){
	"panics":          func(<-chan struct{}) { panic("boom") },
	"panics with nil": func(<-chan struct{}) { panic(nil) },
	"panics with a value that contains itself": func(<-chan struct{}) {
		table := map[string]any{}
		table["self"] = table
		panic(table)
	},
	"exits":  func(<-chan struct{}) { runtime.Goexit() },
	"blocks": func(over <-chan struct{}) { <-over },
}

// contained lists all code of users that rota calls in goroutines of its own, with what becomes of the job "bad", or
// of the shard 0, when the code misbehaves. The job "good", or the shard 1, goes on in each case. A deed that is
// missing is documented as not contained: a logger may not exit or block, a clock may not block.
var contained = []struct {
	code    string
	install func(f *fixture, do func()) // do does the deed
	want    map[string]string           // by deed: how runs of "bad" end, empty if they do not
}{
	{"handler", badHandler(func(do func(), _ *executor.Run) error { do(); return nil }), failing},
	{"middleware", func(f *fixture, do func()) {
		f.bad.Middleware = []executor.Middleware{func(next executor.Handler) executor.Handler {
			return executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error { do(); return next.Handle(ctx, r) })
		}}
	}, failing},
	{"handler.Func", func(f *fixture, do func()) { f.bad.Handler = handler.Func(do) }, failing},
	{"Dataflow.Fetch", func(f *fixture, do func()) {
		f.bad.Handler = handler.Dataflow[int]{
			Fetch:   func(context.Context, *handler.Page) ([]int, error) { do(); return nil, nil },
			Process: func(context.Context, *handler.Page, []int) error { return nil },
		}
	}, failing},
	{"Dataflow.Process", func(f *fixture, do func()) {
		f.bad.Handler = handler.Dataflow[int]{
			Once:    true,
			Fetch:   func(context.Context, *handler.Page) ([]int, error) { return []int{1}, nil },
			Process: func(context.Context, *handler.Page, []int) error { do(); return nil },
		}
	}, failing},
	{"method Error of an error", badHandler(func(do func(), _ *executor.Run) error { return hooked{onError: do} }), failing},
	{"method Unwrap of an error", badHandler(func(do func(), _ *executor.Run) error { return hooked{onUnwrap: do} }), failing},
	{"method Is of an error", badHandler(func(do func(), _ *executor.Run) error { return hooked{onIs: do} }), failing},
	{"method As of an error", badHandler(func(do func(), _ *executor.Run) error { return hooked{onAs: do} }), failing},
	{"method Error of an error within others", badHandler(func(do func(), _ *executor.Run) error {
		return errors.Join(io.EOF, executor.Permanent(hooked{onError: do}))
	}), failing},
	{"method Error of the argument of panic", badPanic(func(do func()) error { return hooked{onError: do} }), failing},
	{"method Unwrap of the argument of panic", badPanic(func(do func()) error { return hooked{onUnwrap: do} }), map[string]string{
		"panics": "failed", "panics with nil": "failed",
	}},
	{"attribute of Run.Logger", badHandler(func(do func(), r *executor.Run) error {
		r.Logger().Info("x", "value", logValue(do))
		return nil
	}), map[string]string{"panics": "succeeded", "panics with nil": "succeeded"}},
	{"observer", func(f *fixture, do func()) {
		f.options.Observer = executor.Observer{RunBegun: func(executor.RunBegun) { do() }, ShardsChanged: func(executor.ShardsChanged) { do() }}
	}, unharmed},
	{"observer of each event", func(f *fixture, do func()) {
		f.bad.Retry = executor.Retry{Max: 1}
		f.options.Observer = executor.Observer{
			RunClaimed: func(executor.RunClaimed) { do() }, RunBegun: func(executor.RunBegun) { do() }, RunEnded: func(executor.RunEnded) { do() },
			RunRetried: func(executor.RunRetried) { do() }, RunCrashed: func(executor.RunCrashed) { do() }, FiresSkipped: func(executor.FiresSkipped) { do() },
			FireEnded: func(executor.FireEnded) { do() }, ShardsChanged: func(executor.ShardsChanged) { do() }, SessionChanged: func(executor.SessionChanged) { do() },
			LeadershipChanged: func(executor.LeadershipChanged) { do() }, ClockChanged: func(executor.ClockChanged) { do() },
		}
	}, unharmed},
	{"Observer.RunLog", logged(func(_ *fixture, do func()) executor.Observer {
		return executor.Observer{RunLog: func(executor.RunInfo) slog.Handler { do(); return nil }}
	}), onlyPanics},
	{"handler of Observer.RunLog", logged(func(_ *fixture, do func()) executor.Observer {
		return executor.Observer{RunLog: func(executor.RunInfo) slog.Handler { return logHandler{onHandle: do} }}
	}), onlyPanics},
	{"history.LogOptions.Mask", logged(func(f *fixture, do func()) executor.Observer {
		return f.recordLogs(history.NewRing(10), history.LogOptions{Mask: func(text string) string { do(); return text }})
	}), onlyPanics},
	{"history.LogOptions.Skip", logged(func(f *fixture, do func()) executor.Observer {
		return f.recordLogs(history.NewRing(10), history.LogOptions{Skip: func(string) bool { do(); return false }})
	}), onlyPanics},
	{"history.LogSink", logged(func(f *fixture, do func()) executor.Observer {
		return f.recordLogs(logSink{do}, history.LogOptions{})
	}), unharmed},
	{"history.Tee of a history.LogSink", logged(func(f *fixture, do func()) executor.Observer {
		return f.recordLogs(history.Tee(logSink{do}), history.LogOptions{})
	}), unharmed},
	{"handler.Cron", func(f *fixture, do func()) { f.bad.Handler = handler.Cron(cron.FuncJob(do)) }, failing},
	{"RoundTrip of the Client of HTTP", badClient(func(do func()) http.Client { return http.Client{Transport: roundTripper{onRoundTrip: do}} }), failing},
	{"Read of a body of the Client of HTTP", badClient(func(do func()) http.Client { return http.Client{Transport: roundTripper{onRead: do}} }), failing},
	{"Close of a body of the Client of HTTP", badClient(func(do func()) http.Client { return http.Client{Transport: roundTripper{onClose: do}} }), failing},
	{"CheckRedirect of the Client of HTTP", badClient(func(do func()) http.Client {
		return http.Client{Transport: roundTripper{status: 307}, CheckRedirect: func(*http.Request, []*http.Request) error { do(); return http.ErrUseLastResponse }}
	}), failing},
	{"method String of the argument of panic", badHandler(func(do func(), _ *executor.Run) error { panic(stringer(do)) }), failing},
	{"method OutputTail of an error", func(f *fixture, do func()) {
		badHandler(func(func(), *executor.Run) error { return tailed(do) })(f, do)
		f.record(history.SinkFunc(func(context.Context, history.Batch) error { return nil }), nil)
	}, map[string]string{"panics": "failed", "panics with nil": "failed", "exits": "failed", "blocks": "failed"}},
	{"attribute with a method MarshalJSON", loggedBy(slog.NewJSONHandler(io.Discard, nil), func(do func()) any { return marshaler(do) }), logging},
	{"attribute with a method LogValue, logged as JSON", loggedBy(slog.NewJSONHandler(io.Discard, nil), func(do func()) any { return logValue(do) }), logging},
	{"attribute with a method String", loggedBy(slog.NewTextHandler(io.Discard, nil), func(do func()) any { return stringer(do) }), logging},
	{"Trim of a history.Sink", func(f *fixture, do func()) { f.record(trimmer(do), nil) }, unharmed},
	{"history.Tee of a sink", func(f *fixture, do func()) {
		f.record(history.Tee(history.SinkFunc(func(context.Context, history.Batch) error { do(); return nil }), history.NewRing(10)), nil)
	}, unharmed},
	{"writer of history.JSONLines", func(f *fixture, do func()) { f.record(history.JSONLines(writer(do)), nil) }, unharmed},
	{"strategy", func(f *fixture, do func()) {
		f.bad.Strategy = "bad"
		f.options.Strategies = map[string]strategy.Func{"bad": func(in strategy.Input) (strategy.Assignment, error) {
			do()
			return strategy.Sticky(in)
		}}
	}, without("blocks", unharmed)},
	{"strategy of the only instance", func(f *fixture, do func()) {
		f.bad.Strategy, f.stopsPlanning = "bad", true
		f.options.Strategies = map[string]strategy.Func{"bad": func(in strategy.Input) (strategy.Assignment, error) {
			do()
			return strategy.Sticky(in)
		}}
	}, map[string]string{"blocks": "succeeded"}},
	{"method Error of an error of a strategy", func(f *fixture, do func()) {
		f.bad.Strategy = "bad"
		f.options.Strategies = map[string]strategy.Func{"bad": func(strategy.Input) (strategy.Assignment, error) { return nil, hooked{onError: do} }}
	}, without("blocks", unharmed)},
	{"method As of an error of a strategy", func(f *fixture, do func()) {
		f.bad.Strategy = "bad"
		f.options.Strategies = map[string]strategy.Func{"bad": func(strategy.Input) (strategy.Assignment, error) { return nil, hooked{onAs: do} }}
	}, without("blocks", unharmed)},
	{"clock", func(f *fixture, do func()) {
		f.options.Clock = func() time.Time { do(); return time.Now() }
	}, without("blocks", unharmed)},
	{"Handle of a slog.Handler", func(f *fixture, do func()) { f.options.Logger = slog.New(logHandler{onHandle: do}) }, onlyPanics},
	{"Enabled of a slog.Handler", func(f *fixture, do func()) { f.options.Logger = slog.New(logHandler{onEnabled: do}) }, onlyPanics},
	{"WithAttrs of a slog.Handler", func(f *fixture, do func()) { f.options.Logger = slog.New(logHandler{onWith: do}) }, onlyPanics},
	{"history.Sink", func(f *fixture, do func()) {
		f.record(history.SinkFunc(func(context.Context, history.Batch) error { do(); return nil }), nil)
	}, unharmed},
	{"method Error of an error of a sink", func(f *fixture, do func()) {
		f.record(history.SinkFunc(func(context.Context, history.Batch) error { return hooked{onError: do} }), nil)
	}, unharmed},
	{"history.Sink that is nil", func(f *fixture, _ func()) { f.record(nil, nil) }, onlyPanics},
	{"history.Options.Annotate", func(f *fixture, do func()) {
		f.record(history.SinkFunc(func(context.Context, history.Batch) error { return nil }), func(executor.RunEnded, *history.Run) { do() })
	}, unharmed},
}

var (
	failing    = map[string]string{"panics": "failed", "panics with a value that contains itself": "failed", "panics with nil": "failed", "exits": "failed", "blocks": ""}
	unharmed   = map[string]string{"panics": "succeeded", "panics with a value that contains itself": "succeeded", "panics with nil": "succeeded", "exits": "succeeded", "blocks": "succeeded"}
	logging    = map[string]string{"panics": "succeeded", "panics with nil": "succeeded", "exits": "failed", "blocks": ""}
	onlyPanics = map[string]string{"panics": "succeeded", "panics with nil": "succeeded"}
)

func without(deed string, all map[string]string) map[string]string {
	out := map[string]string{}
	for d, want := range all {
		if d != deed {
			out[d] = want
		}
	}
	return out
}

// fixture is an executor of the jobs "good" and "bad".
type fixture struct {
	t        *testing.T
	options  executor.Options
	bad      executor.Job
	recorder *history.Recorder

	stopsPlanning bool // the deed leaves the process that leads without a leader's work, as another would lead
}

// record has a Recorder observe the executor.
func (f *fixture) record(sink history.Sink, annotate func(executor.RunEnded, *history.Run)) {
	f.recorder = history.New(sink, history.Options{Annotate: annotate, Logger: slog.New(slog.DiscardHandler)})
	f.options.Observer = f.recorder.Observer()
}

// recordLogs returns the observer of a Recorder that keeps logs.
func (f *fixture) recordLogs(sink history.Sink, o history.LogOptions) executor.Observer {
	f.recorder = history.New(sink, history.Options{Logs: o, Logger: slog.New(slog.DiscardHandler)})
	return f.recorder.Observer()
}

// logged installs an observer, and a handler of the job "bad" that logs a line.
func logged(observer func(f *fixture, do func()) executor.Observer) func(*fixture, func()) {
	return func(f *fixture, do func()) {
		f.options.Observer = observer(f, do)
		badHandler(func(_ func(), r *executor.Run) error { r.Logger().Info("x"); return nil })(f, do)
	}
}

// badHandler installs a handler of the job "bad".
func badHandler(handle func(do func(), r *executor.Run) error) func(*fixture, func()) {
	return func(f *fixture, do func()) {
		f.bad.Handler = executor.HandlerFunc(func(_ context.Context, r *executor.Run) error { return handle(do, r) })
	}
}

// badPanic installs a handler of the job "bad" that panics.
func badPanic(value func(do func()) error) func(*fixture, func()) {
	return badHandler(func(do func(), _ *executor.Run) error { panic(value(do)) })
}

func TestUserCode_StopsNoOtherJob(t *testing.T) {
	for _, tt := range contained {
		for deed, want := range tt.want {
			t.Run(tt.code+" "+deed, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { runBeside(t, tt.install, deeds[deed], want) })
			})
		}
	}
}

// runBeside runs a job with bad code beside a good one.
func runBeside(t *testing.T, install func(*fixture, func()), deed func(<-chan struct{}), want string) {
	over := make(chan struct{})
	var misbehaves atomic.Bool
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil)) // which formats all values
	good := executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil })
	f := &fixture{
		t: t, options: executor.Options{Instance: "a", Logger: quiet, DrainTimeout: time.Second},
		bad: executor.Job{Name: "bad", Schedule: schedule.Every(10 * time.Second), Handler: good, Revision: 1},
	}
	install(f, func() {
		if misbehaves.Load() {
			deed(over)
		}
	})
	server := memory.New()
	e, err := executor.New(server.Client("a"), "test", f.options)
	require.NoError(t, err)
	require.NoError(t, e.Register(f.bad, executor.Job{Name: "good", Schedule: schedule.Every(10 * time.Second), Handler: good}))
	require.NoError(t, e.Start(t.Context()))
	time.Sleep(5 * time.Second)
	misbehaves.Store(true)
	before := statusOf(t, server, "good", "bad")
	require.NoError(t, e.Register(executor.Job{Name: "later", Schedule: schedule.Every(10 * time.Second), Handler: good}))
	time.Sleep(2 * time.Minute)
	synctest.Wait()
	after := statusOf(t, server, "good", "bad")
	assert.EqualValues(t, 12, after["good"].Succeeded-before["good"].Succeeded, "runs of the good job")
	succeeded, failed := 0, 0
	switch want {
	case "succeeded":
		succeeded = 12
	case "failed":
		failed = 12
	}
	assert.EqualValues(t, succeeded, after["bad"].Succeeded-before["bad"].Succeeded, "runs of the bad job that succeeded")
	assert.EqualValues(t, failed, after["bad"].Failed-before["bad"].Failed, "runs of the bad job that failed")
	if !f.stopsPlanning {
		assert.NotZero(t, statusOf(t, server, "later")["later"].Succeeded, "runs of a job registered later")
	}
	misbehaves.Store(false)
	close(over)
	synctest.Wait()
	assert.NoError(t, e.Shutdown(t.Context()))
	if f.recorder != nil {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_ = f.recorder.Shutdown(ctx)
	}
}

// statusOf returns the counts of each job.
func statusOf(t *testing.T, server *memory.Server, jobs ...string) map[string]operator.Counts {
	reg := server.Client("operator")
	defer reg.Close(context.WithoutCancel(t.Context()))
	op, err := operator.New(reg, "test", "")
	require.NoError(t, err)
	counts := map[string]operator.Counts{}
	for _, job := range jobs {
		s, err := op.Status(t.Context(), job)
		require.NoError(t, err)
		counts[job] = s.Counts
	}
	return counts
}

// badClient installs a handler of the job "bad" that sends a request by a client of users.
func badClient(client func(do func()) http.Client) func(*fixture, func()) {
	return func(f *fixture, do func()) {
		c := client(do)
		f.bad.Handler = handler.HTTP(handler.Request{URL: "http://nobody.invalid/", Client: &c, OK: handler.Statuses{{200, 399}}, Permanent: handler.Statuses{}})
	}
}

// loggedBy installs a handler of the job "bad" that logs a value.
func loggedBy(h slog.Handler, value func(do func()) any) func(*fixture, func()) {
	return func(f *fixture, do func()) {
		f.options.Logger = slog.New(h)
		badHandler(func(_ func(), r *executor.Run) error { r.Logger().Info("x", "value", value(do)); return nil })(f, do)
	}
}

type roundTripper struct {
	onRoundTrip, onRead, onClose func()
	status                       int
}

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	call(r.onRoundTrip)
	return &http.Response{
		StatusCode: cmp.Or(r.status, 200), Body: body{r}, Request: req, Header: http.Header{"Location": {"/elsewhere"}},
	}, nil
}

type body struct{ roundTripper }

func (b body) Read([]byte) (int, error) { call(b.onRead); return 0, io.EOF }
func (b body) Close() error             { call(b.onClose); return nil }

type stringer func()

func (s stringer) String() string { s(); return "x" }

type marshaler func()

func (m marshaler) MarshalJSON() ([]byte, error) { m(); return []byte("1"), nil }

type writer func()

func (w writer) Write(p []byte) (int, error) { w(); return len(p), nil }

type trimmer func()

func (trimmer) Write(context.Context, history.Batch) error             { return nil }
func (t trimmer) Trim(context.Context, time.Time) (more bool, _ error) { t(); return false, nil }

// logSink is a sink that keeps logs.
type logSink struct{ do func() }

func (logSink) Write(context.Context, history.Batch) error       { return nil }
func (l logSink) WriteLogs(context.Context, []history.Log) error { l.do(); return nil }

// tailed is an error with the methods that a history looks for.
type tailed func()

func (tailed) Error() string        { return "tailed" }
func (t tailed) OutputTail() string { t(); return "" }

// hooked is an error with a function in each method.
type hooked struct{ onError, onUnwrap, onIs, onAs func() }

func call(f func()) {
	if f != nil {
		f()
	}
}
func (h hooked) Error() string   { call(h.onError); return "hooked" }
func (h hooked) Unwrap() error   { call(h.onUnwrap); return io.EOF }
func (h hooked) Is(_ error) bool { call(h.onIs); return false }
func (h hooked) As(_ any) bool   { call(h.onAs); return false }

type logValue func()

func (v logValue) LogValue() slog.Value { v(); return slog.StringValue("x") }

// logHandler is a slog.Handler with a function in each method.
type logHandler struct{ onEnabled, onHandle, onWith func() }

func (h logHandler) Enabled(context.Context, slog.Level) bool  { call(h.onEnabled); return true }
func (h logHandler) Handle(context.Context, slog.Record) error { call(h.onHandle); return nil }
func (h logHandler) WithAttrs([]slog.Attr) slog.Handler        { call(h.onWith); return h }
func (h logHandler) WithGroup(string) slog.Handler             { call(h.onWith); return h }
