package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
	"github.com/rota-dev/rota/web/internal/role"
)

// secret is in the parameters, errors and outputs of the fleet, and in no other text.
const secret = "s3cret"

// fleet is a fleet of one instance on a registry in memory, and the API of it.
type fleet struct {
	t      *testing.T
	member *executor.Executor
	op     *operator.Operator
	group  *operator.GroupView
	config Config
	api    http.Handler
}

// startFleet starts an instance with two jobs: settle with four shards, which run every hour, and broken, whose shard 1 fails.
func startFleet(t *testing.T) *fleet {
	t.Helper()
	server := memory.New()
	ring := history.NewRing(1000)
	recorder := history.New(ring, history.Options{Namespace: "billing", Keep: history.KeepAll, Annotate: func(_ executor.RunEnded, r *history.Run) {
		r.Output = "output " + secret
	}})
	e, err := executor.New(server.Client("web-1"), "billing", executor.Options{
		Instance: "web-1", Host: "n-1", Labels: map[string]string{"zone": "a"}, Workers: 8, DrainTimeout: time.Second, Logger: discard, Observer: recorder.Observer(),
	})
	require.NoError(t, err)
	require.NoError(t, e.Register(
		executor.Job{Name: "settle", Schedule: schedule.Every(time.Hour), Shards: 4, Param: secret, Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil })},
		executor.Job{Name: "broken", Schedule: schedule.Every(time.Minute), Shards: 2, Handler: executor.HandlerFunc(func(_ context.Context, r *executor.Run) error {
			for n := range 3 {
				r.Logger().Info(fmt.Sprintf("step %d with %s", n, secret))
			}
			if r.Shard == 1 {
				return errors.New("error " + secret)
			}
			return nil
		})},
	))
	require.NoError(t, e.Start(t.Context()))
	op, err := operator.New(server.Client("console"), "billing", "")
	require.NoError(t, err)
	op = op.WithCompiler(executor.Compile)
	group, err := op.Watch(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() {
		group.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = e.Shutdown(ctx)
		_ = recorder.Shutdown(ctx)
	})
	f := &fleet{t: t, member: e, op: op, group: group, config: Config{
		Op: op, History: ring.Reader("billing", ""), Changed: group.Changed, Authorize: authorize, Verbs: verbs, Logger: discard,
		Snapshot: func(context.Context) (operator.GroupStatus, error) { return group.Status(), nil },
	}}
	f.api = New(f.config)
	return f
}

// define defines jobs of a kind that no instance offers.
func (f *fleet) define(names ...string) {
	f.t.Helper()
	var all []operator.Definition
	for _, name := range names {
		all = append(all, operator.Definition{Name: name, Kind: "report", Schedule: schedule.Every(time.Hour), Param: secret})
	}
	_, err := f.op.DefineAll(f.t.Context(), all, operator.AllowUnknownKind())
	require.NoError(f.t, err)
}

// inFleet calls f in a bubble, with a fleet that has run for some minutes.
func inFleet(t *testing.T, f func(*testing.T, *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		all := startFleet(t)
		time.Sleep(150 * time.Second)
		synctest.Wait()
		f(t, all)
	})
}

// levelHeader has the role of the user of a request.
const levelHeader = "Test-Level"

// authorize knows the users of tests.
func authorize(r *http.Request, least role.Role) (string, error) {
	level, err := strconv.Atoi(r.Header.Get(levelHeader))
	if err != nil {
		return "", errors.New("log in")
	}
	if role.Role(level) < least {
		return "", ErrForbidden
	}
	return cmp.Or(r.Header.Get("Test-User"), "kim"), nil
}

// request returns a request of an admin. Further are names and values of headers.
func request(method, path, body string, further ...string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set(levelHeader, strconv.Itoa(int(role.Admin)))
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(further); i += 2 {
		r.Header.Set(further[i], further[i+1])
	}
	return r
}

// serve returns the answer of a handler.
func serve(h http.Handler, r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func (f *fleet) get(path string, further ...string) *http.Response {
	return serve(f.api, request(http.MethodGet, path, "", further...))
}

func (f *fleet) post(path, body string, further ...string) *http.Response {
	return serve(f.api, request(http.MethodPost, path, body, further...))
}

func read(t *testing.T, r *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return string(body)
}

// problem returns the problem of an answer, with a type without its common beginning.
func problem(t *testing.T, r *http.Response) Problem {
	t.Helper()
	require.Equal(t, "application/problem+json", r.Header.Get("Content-Type"))
	var p Problem
	require.NoError(t, json.Unmarshal([]byte(read(t, r)), &p))
	require.Equal(t, r.StatusCode, p.Status)
	name, found := strings.CutPrefix(p.Type, problemTypes)
	require.True(t, found, p.Type)
	p.Type = name
	return p
}

var discard = slog.New(slog.DiscardHandler)

func memoryRegistry() registry.Registry { return memory.New().Client("console") }

func readFile(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(content)
}
