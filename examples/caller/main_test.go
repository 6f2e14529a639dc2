package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// direct calls a server without a socket, which would stop virtual time.
type direct struct{ http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w.Result(), nil
}

func TestDemo_ChargesEachShopOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		b := &bank{}
		began := time.Now()
		require.NoError(t, demo(t.Context(), &out, "http://bank.internal", &http.Client{Transport: direct{b}}, b))
		assert.GreaterOrEqual(t, time.Since(began), time.Second, "the Retry-After of the server")
		lines := slices.Collect(strings.Lines(out.String()))
		require.Len(t, lines, 11)
		assert.Equal(t, "9 requests, 3 charges\n", lines[10])
		slices.Sort(lines[:10])
		assert.Equal(t, `shop 0, attempt 1: failed: POST bank.internal: status 503 Service Unavailable: busy
shop 0, attempt 2: failed: POST bank.internal: status 502 Bad Gateway: the answer is lost
shop 0, attempt 3: succeeded
shop 1, attempt 1: failed: POST bank.internal: status 503 Service Unavailable: busy
shop 1, attempt 2: failed: POST bank.internal: status 502 Bad Gateway: the answer is lost
shop 1, attempt 3: succeeded
shop 2, attempt 1: failed: POST bank.internal: status 503 Service Unavailable: busy
shop 2, attempt 2: failed: POST bank.internal: status 502 Bad Gateway: the answer is lost
shop 2, attempt 3: succeeded
shop 3, attempt 1: failed: POST bank.internal: status 404 Not Found: no such shop
`, strings.Join(lines[:10], ""))
	})
}
