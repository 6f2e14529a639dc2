package api

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/web/internal/role"
)

const client = "../../../examples/api/client.py"

// The client in Python, which has its standard library only, looks and acts. Its first request to act has no answer.
func TestClient(t *testing.T) {
	python, err := exec.LookPath("python3")
	require.NoError(t, err)
	assert.LessOrEqual(t, strings.Count(readFile(t, client), "\n"), 30)

	f := startFleet(t)
	f.config.Authorize = func(r *http.Request, _ role.Role) (string, error) {
		if r.Header.Get("Authorization") != "Bearer t0ken" {
			return "", errors.New("the token is wrong")
		}
		return "robot", nil
	}
	var posts atomic.Int32
	h := http.NewCrossOriginProtection().Handler(http.StripPrefix("/ops/api/v1", New(f.config)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			h.ServeHTTP(w, r)
			return
		}
		if posts.Add(1) == 1 { // it acts, and the connection breaks before the answer
			h.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		h.ServeHTTP(w, r)
	}))
	defer server.Close()
	run := func(token string, args ...string) (out, errs string, ok bool) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, python, append([]string{client, server.URL + "/ops/"}, args...)...)
		cmd.Env = append(os.Environ(), "ROTA_TOKEN="+token)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		return stdout.String(), stderr.String(), err == nil
	}

	out, errs, ok := run("t0ken", "trigger", "settle", "quarter", "end")
	require.True(t, ok, errs)
	assert.Contains(t, out, "triggered")
	assert.EqualValues(t, 2, posts.Load())
	acts, err := f.op.Acts(t.Context(), "settle")
	require.NoError(t, err)
	require.Len(t, acts, 1, "the repetition did nothing")
	assert.Equal(t, "robot", acts[0].By)
	assert.Equal(t, "quarter end", acts[0].Reason)

	_, errs, ok = run("t0ken", "pause", "settle")
	require.True(t, ok, errs)
	require.Eventually(t, func() bool {
		out, errs, ok := run("t0ken")
		return assert.True(t, ok, errs) && strings.Contains(out, "settle: paused")
	}, 30*time.Second, time.Millisecond)

	_, errs, ok = run("t0ken", "pause", "no/such job")
	assert.False(t, ok)
	assert.Contains(t, errs, "urn:rota:problem:unknown-job")
	_, errs, ok = run("stolen")
	assert.False(t, ok)
	assert.Contains(t, errs, "it needs a user (urn:rota:problem:unauthorized)")
}
