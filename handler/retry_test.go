package handler_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/handler"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/schedule"
)

// answers is a server without a socket, which would stop virtual time. It gives each answer once.
type answers struct {
	left []http.HandlerFunc
	keys []string // of the requests
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	a.left[0](w, r)
	a.left = a.left[1:]
	a.keys = append(a.keys, r.Header.Get("Idempotency-Key"))
	return w.Result(), nil
}

func answer(status int, retryAfter string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", retryAfter)
		w.WriteHeader(status)
	}
}

func TestHTTP_RetriesByTheStatus(t *testing.T) {
	rotatest.Run(t, func(f *rotatest.Fleet) {
		server := &answers{left: []http.HandlerFunc{answer(503, "120"), answer(500, ""), answer(200, ""), answer(404, ""), answer(204, "")}}
		f.Start("a", executor.Job{
			Name: "poll", Schedule: schedule.Every(time.Hour), Retry: executor.Retry{Max: 5, Initial: time.Second, Jitter: -1},
			Handler: handler.HTTP(handler.Request{URL: "https://tenants.internal/poll", Client: &http.Client{Transport: server}}),
		})
		for range 3 {
			f.NextFire("poll")
			f.Settle()
		}
		runs := f.Runs("poll")
		require.Len(t, runs, 5)
		assert.Equal(t, 2*time.Minute, runs[1].Start.Sub(runs[0].End).Round(time.Second), "the delay that the server asked for")
		assert.Equal(t, 2*time.Second, runs[2].Start.Sub(runs[1].End).Round(time.Second), "the job's second delay")
		assert.Equal(t, runs[0].FireTime.Add(time.Hour), runs[3].FireTime)
		assert.Equal(t, runs[3].FireTime.Add(time.Hour), runs[4].FireTime, "404 is not retried")
		assert.Equal(t, []string{server.keys[0], server.keys[0]}, server.keys[1:3], "one key for all attempts")
		assert.NotEqual(t, server.keys[0], server.keys[3])
	})
}
