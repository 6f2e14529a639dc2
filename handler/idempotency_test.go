package handler_test

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/handler"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// payments is a server that charges once for each Idempotency-Key. Its first answer is 500, after the charge.
type payments struct {
	charged map[string]int // requests by key
	calls   int
}

func (p *payments) RoundTrip(r *http.Request) (*http.Response, error) {
	p.charged[r.Header.Get("Idempotency-Key")]++
	status := http.StatusOK
	if p.calls++; p.calls == 1 {
		status = http.StatusInternalServerError
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("")), Header: http.Header{}, Request: r}, nil
}

func TestHTTP_ChargesOnceThoughAnOperatorRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &payments{charged: map[string]int{}}
		e, err := executor.New(memory.New().Client("a"), "shop", executor.Options{Instance: "a", Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		require.NoError(t, e.Register(executor.Job{
			Name: "charge", Schedule: schedule.Every(time.Hour),
			Handler: handler.HTTP(handler.Request{URL: "http://pay/charge", Client: &http.Client{Transport: server}}),
		}))
		require.NoError(t, e.Start(t.Context()))
		defer e.Shutdown(t.Context())
		time.Sleep(time.Hour + time.Minute)
		synctest.Wait()
		require.Equal(t, 1, server.calls)
		fire := time.Now().Truncate(time.Hour)

		_, err = e.Operator().Retry(t.Context(), "charge", fire, operator.RetryOptions{})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		key := "shop/default/charge/0/" + fire.UTC().Format(time.RFC3339)
		assert.Equal(t, map[string]int{key: 2}, server.charged, "one charge")

		_, err = e.Operator().Retry(t.Context(), "charge", fire, operator.RetryOptions{})
		require.ErrorIs(t, err, operator.ErrRetryRefused, "it has succeeded")
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, map[string]int{key: 2}, server.charged)

		_, err = e.Operator().Retry(t.Context(), "charge", fire, operator.RetryOptions{Again: true})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Len(t, server.charged, 2, "a second charge, on purpose")
		assert.Equal(t, 3, server.calls)
	})
}
