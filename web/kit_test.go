package web

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/schedule"
)

// hostile is a text that is markup, and closes attributes.
const hostile = `"><script>alert(1)</script>`

// secret is in the error of a run.
const secret = "password is hunter2"

// kit is a console beside a fleet, in virtual time.
type kit struct {
	*testing.T
	fleet   *rotatest.Fleet
	member  *executor.Executor
	op      *operator.Operator
	console *Console
	user    User // who makes requests
	history history.Reader
}

// onFleet calls f with the console of a fleet of two instances, half a minute after a fire of each minute. One job succeeds, one
// fails, and one is paused. The name of another is markup.
func onFleet(t *testing.T, f func(k *kit)) {
	rotatest.Run(t, func(fleet *rotatest.Fleet) {
		ok := executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil })
		fails := executor.HandlerFunc(func(_ context.Context, r *executor.Run) error {
			r.Logger().Info("reads the ledger")
			return errors.New(secret)
		})
		jobs := []executor.Job{
			{Name: "settle", Schedule: schedule.Every(time.Minute), Shards: 4, Handler: ok},
			{Name: "export", Schedule: schedule.Every(time.Minute), Shards: 2, Handler: fails},
			{Name: "rebuild", Schedule: schedule.Every(time.Hour), Handler: ok},
			{Name: hostile, Schedule: schedule.Every(time.Hour), Handler: ok},
		}
		ring := history.NewRing(1000)
		recorder := history.New(ring, history.Options{})
		defer func() { require.NoError(t, recorder.Shutdown(context.Background())) }()
		fleet.Options.Observer = recorder.Observer()
		a := fleet.Start("a", jobs...)
		fleet.Start("b", jobs...)
		fleet.Sleep(90 * time.Second)
		op := a.Operator()
		require.NoError(t, op.As("kim", "quarter "+hostile).Pause(context.Background(), "rebuild"))
		fleet.Sleep(5 * time.Second)
		k := &kit{T: t, fleet: fleet, member: a, op: op, user: User{Name: "lee", Role: Admin}, history: ring.Reader("rotatest", "")}
		k.console = k.newConsole(Options{Acts: true})
		defer k.console.Close()
		f(k)
	})
}

func (k *kit) newConsole(o Options) *Console {
	if o.Authorize == nil {
		o.Authorize = func(*http.Request) (User, error) {
			if k.user.Role == 0 {
				return User{}, errors.New("nobody")
			}
			return k.user, nil
		}
	}
	o.History = k.history
	o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	c, err := New(k.op, o)
	require.NoError(k, err)
	return c
}

// get fetches a page of the console.
func (k *kit) get(path string) *httptest.ResponseRecorder {
	return k.do(k.console, httptest.NewRequest(http.MethodGet, path, nil))
}

// post sends a form.
func (k *kit) post(path string, form url.Values) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return k.do(k.console, r)
}

func (k *kit) do(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// page fetches a page that is there.
func (k *kit) page(path string) string {
	k.Helper()
	w := k.get(path)
	require.Equal(k, http.StatusOK, w.Code, "%s: %s", path, w.Body)
	return w.Body.String()
}
