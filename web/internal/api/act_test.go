package api

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/acts"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

// bodies are a body for each act, by its path.
var bodies = map[string]string{
	"/jobs/{job}/trigger":     `{"param":"x","shards":[0,1]}`,
	"/jobs/{job}/pause":       `{}`,
	"/jobs/{job}/retry":       `{"fire":"2000-01-01T00:01:00Z","shards":[1]}`,
	"/jobs/{job}/reset":       `{}`,
	"/pause":                  `{}`,
	"/instances/{name}/drain": `{}`,
}

// Each act is done once, by the user and for the reason that the request has, and answers as the command does.
func TestActs_EachOnce(t *testing.T) {
	for i := range verbs {
		v := &verbs[i]
		path := pathOfVerb(v)
		t.Run(path, func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *fleet) {
				body, ok := bodies[path]
				require.True(t, ok, "%s has no body", path)
				body = strings.Replace(body, "{", `{"reason":"quarter end",`, 1)
				body = strings.Replace(body, ",}", "}", 1)
				job := "broken"
				r := f.post(strings.NewReplacer("{job}", job, "{name}", "web-1").Replace(path), body)
				text := read(t, r)
				require.Equal(t, http.StatusOK, r.StatusCode, text)
				rt := actOf(v)
				done := *decode(t, text, rt.answer).(*view.Done)
				assert.Equal(t, v.Name, done.Verb)
				assert.Equal(t, view.Version, done.Version)
				assert.NotEmpty(t, done.Text)
				compileAnswers(t).validate(t, &rt, text)

				of := job
				if v.On != acts.OnJob {
					of = ""
				}
				recorded, err := f.op.Acts(t.Context(), of)
				require.NoError(t, err)
				require.Len(t, recorded, 1)
				assert.Equal(t, "kim", recorded[0].By)
				assert.Equal(t, "quarter end", recorded[0].Reason)
			})
		})
	}
}

// act returns the API with one act on jobs, and how often it was done.
func withAct(t *testing.T, do func(context.Context) error) (h http.Handler, done *int) {
	done = new(int)
	op, err := operator.New(memoryRegistry(), "billing", "")
	require.NoError(t, err)
	return New(Config{Op: op, Authorize: authorize, Logger: discard, Verbs: []acts.Verb{{
		Name: "trigger", On: acts.OnJob, Fields: []acts.Field{{Name: "param"}}, Do: func(ctx context.Context, _ *operator.Operator, r acts.Request) (view.Done, error) {
			*done++
			return view.Done{Verb: "trigger", Jobs: []string{r.Job}, Text: fmt.Sprintf("act %d", *done)}, do(ctx)
		},
	}}}), done
}

func TestActs_WithAnIdempotencyKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, done := withAct(t, func(context.Context) error { return nil })
		send := func(body, user, key string) (string, *http.Response) {
			r := serve(h, request("POST", "/jobs/settle/trigger", body, "Test-User", user, "Idempotency-Key", key))
			return read(t, r), r
		}
		first, _ := send(`{"param":"x"}`, "kim", "k1")
		again, r := send(`{"param":"x"}`, "kim", "k1")
		assert.Equal(t, first, again)
		assert.Equal(t, "true", r.Header.Get("Idempotency-Replayed"))
		assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
		assert.Equal(t, 1, *done)

		_, r = send(`{"param":"y"}`, "kim", "k1")
		assert.Equal(t, http.StatusUnprocessableEntity, r.StatusCode)
		_, r = send(`{}`, "kim", strings.Repeat("k", 256))
		assert.Equal(t, http.StatusBadRequest, r.StatusCode)
		assert.Equal(t, 1, *done)

		_, _ = send(`{"param":"x"}`, "lee", "k1")
		assert.Equal(t, 2, *done, "the key of another user")
		_ = serve(h, request("POST", "/jobs/other/trigger", `{"param":"x"}`, "Idempotency-Key", "k1"))
		assert.Equal(t, 3, *done, "the key of another path")
		_, _ = send(`{"param":"x"}`, "kim", "")
		_, _ = send(`{"param":"x"}`, "kim", "")
		assert.Equal(t, 5, *done, "without a key, each request acts")

		time.Sleep(keepFor - time.Second)
		_, _ = send(`{"param":"x"}`, "kim", "k1")
		assert.Equal(t, 5, *done)
		time.Sleep(time.Second)
		_, _ = send(`{"param":"x"}`, "kim", "k1")
		assert.Equal(t, 6, *done, "a day later")
	})
}

func TestActs_RepeatedAfterAFailure(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		kind string
		want int // acts after a repetition
	}{
		{"that did nothing", fmt.Errorf("trigger: %w", operator.ErrTooManyTriggers), "conflict", 2},
		{"whose outcome is not known", fmt.Errorf("trigger: %w", registry.ErrUnknownOutcome), "unknown-outcome", 1},
		{"of the store", fmt.Errorf("trigger: %w", registry.ErrUnavailable), "unavailable", 1},
		{"of an unknown kind", errors.New("odd"), "internal", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, done := withAct(t, func(context.Context) error { return c.err })
			for range 2 {
				p := problem(t, serve(h, request("POST", "/jobs/settle/trigger", "{}", "Idempotency-Key", "k")))
				assert.Equal(t, c.kind, p.Type)
			}
			assert.Equal(t, c.want, *done)
		})
	}
}

func TestActs_AtOnceWithOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, done := withAct(t, func(context.Context) error { time.Sleep(time.Second); return nil })
		send := func() *http.Response {
			return serve(h, request("POST", "/jobs/settle/trigger", "{}", "Idempotency-Key", "k"))
		}
		go send()
		synctest.Wait()
		assert.Equal(t, "idempotency-key-in-use", problem(t, send()).Type)
		time.Sleep(2 * time.Second)
		assert.Equal(t, http.StatusOK, send().StatusCode)
		assert.Equal(t, 1, *done)
	})
}

// The outcome of an act that its client does not await is not lost: the act ends, and a repetition has its answer.
func TestActs_OutliveTheirClient(t *testing.T) {
	h, done := withAct(t, func(ctx context.Context) error { return ctx.Err() })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := serve(h, request("POST", "/jobs/settle/trigger", "{}", "Idempotency-Key", "k").WithContext(ctx))
	assert.Equal(t, http.StatusOK, r.StatusCode)
	assert.Equal(t, 1, *done)
}

func TestActs_ThatPanicAreNotRepeated(t *testing.T) {
	h, done := withAct(t, func(context.Context) error { panic("odd") })
	send := func() *http.Response {
		return serve(h, request("POST", "/jobs/settle/trigger", "{}", "Idempotency-Key", "k"))
	}
	for range 2 {
		assert.Equal(t, "unknown-outcome", problem(t, send()).Type)
	}
	assert.Equal(t, 1, *done)
}

func TestIdempotency_IsBounded(t *testing.T) {
	i := newIdempotency()
	keep := func(user, key string, size int) {
		kept, first, err := i.begin(user, key, [sha256.Size]byte{})
		require.NoError(t, err)
		require.True(t, first)
		kept.answer = make([]byte, size)
		i.end(kept)
	}
	unended, _, err := i.begin("kim", "unended", [sha256.Size]byte{})
	require.NoError(t, err)
	for n := range 3 * maxOfUser {
		keep("kim", fmt.Sprint(n), 10)
	}
	assert.LessOrEqual(t, i.ofUser["kim"], maxOfUser+1)
	for n := range 2 * maxKept {
		keep(fmt.Sprint("user", n), "k", 10)
	}
	assert.LessOrEqual(t, i.order.Len(), maxKept+1)
	for n := range 20 {
		keep("lee", fmt.Sprint("big", n), 1<<20)
	}
	assert.LessOrEqual(t, i.size, maxKeptSize)
	_, _, err = i.begin("kim", "unended", [sha256.Size]byte{})
	assert.ErrorContains(t, err, "has not ended", "a request in progress is kept")
	i.end(unended)
	assert.Len(t, i.kept, i.order.Len())

	total := 0
	for e := i.order.Front(); e != nil; e = e.Next() {
		total += len(e.Value.(*keptAnswer).answer)
	}
	assert.Equal(t, total, i.size)
}

func TestProblem_HasItsMembers(t *testing.T) {
	h, _ := withAct(t, func(context.Context) error { return nil })
	var members map[string]any
	require.NoError(t, json.Unmarshal([]byte(read(t, serve(h, request("POST", "/jobs/settle/trigger", `{"x":1}`)))), &members))
	assert.Equal(t, map[string]any{
		"type": "urn:rota:problem:unknown-field", "title": "There is no such parameter or field", "status": 400.0,
		"detail": `trigger has no field "x"; it has: param, reason`, "field": "x",
	}, members)
}
