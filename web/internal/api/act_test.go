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
	"/jobs/{job}/trigger":        `{"param":"x","shards":[0,1]}`,
	"/jobs/{job}/retry":          `{"fire":"2000-01-01T00:01:00Z","shards":[1]}`,
	"/jobs/{job}/backfill":       `{"from":"2000-01-01T00:00:00Z","to":"2000-01-01T00:02:00Z","parallel":2}`,
	"/jobs/{job}/stop-backfills": `{}`,
	"/jobs/{job}/cancel":         `{"shards":[0]}`,
	"/jobs/{job}/pause":          `{"until":"2000-01-02T00:00:00Z"}`,
	"/jobs/{job}/resume":         `{}`,
	"/jobs/{job}/disable":        `{"shards":[1],"instances":["web-1"],"hosts":["n-1"]}`,
	"/jobs/{job}/enable":         `{"shards":[1]}`,
	"/jobs/{job}/override":       `{"fields":{"schedule":"every 2m","shards":3}}`,
	"/jobs/{job}/reset":          `{}`,
	"/jobs/{job}/define":         `{"kind":"report","fields":{"schedule":"every 1h"},"allow_unknown_kind":true}`,
	"/jobs/{job}/delete":         `{"cancel_runs":true}`,
	"/jobs/{job}/retire":         `{}`,
	"/jobs/{job}/unretire":       `{}`,
	"/jobs/{job}/forget":         `{}`,
	"/pause":                     `{}`,
	"/resume":                    `{}`,
	"/disable":                   `{"hosts":["n-1"]}`,
	"/enable":                    `{"instances":["web-1"]}`,
	"/acknowledge":               `{}`,
	"/set-pool":                  `{"pool":"db","size":8}`,
	"/delete-pool":               `{"pool":"db"}`,
	"/instances/{name}/drain":    `{}`,
	"/instances/{name}/undrain":  `{}`,
}

// before prepare the fleet for acts that would change nothing, by their paths.
var before = map[string]func(context.Context, *operator.Operator) error{
	"/jobs/{job}/stop-backfills": func(ctx context.Context, op *operator.Operator) error {
		_, err := op.Backfill(ctx, "broken", time.Now().Add(-time.Minute), time.Now(), 1)
		return err
	},
	"/jobs/{job}/resume": func(ctx context.Context, op *operator.Operator) error { return op.Pause(ctx, "broken") },
	"/jobs/{job}/enable": func(ctx context.Context, op *operator.Operator) error {
		return op.Disable(ctx, operator.Scope{Job: "broken", Shards: []int{1}})
	},
	"/jobs/{job}/delete": func(ctx context.Context, op *operator.Operator) error {
		_, err := op.Define(ctx, operator.Definition{Name: "settle-acme", Kind: "report"}, operator.AllowUnknownKind())
		return err
	},
	"/jobs/{job}/unretire": func(ctx context.Context, op *operator.Operator) error { return op.Retire(ctx, "broken") },
	"/resume":              func(ctx context.Context, op *operator.Operator) error { return op.PauseGroup(ctx) },
	"/enable": func(ctx context.Context, op *operator.Operator) error {
		return op.Disable(ctx, operator.Scope{Instances: []string{"web-1"}})
	},
	"/delete-pool":              func(ctx context.Context, op *operator.Operator) error { return op.SetPool(ctx, "db", 8) },
	"/instances/{name}/undrain": func(ctx context.Context, op *operator.Operator) error { return op.BeginDrain(ctx, "web-1") },
}

// conflicts are acts that this fleet refuses: their problems, by their paths.
var conflicts = map[string]string{
	"/jobs/{job}/cancel": "conflict", // no run is in progress
	"/jobs/{job}/forget": "conflict", // an instance offers the job
}

// Each act is done once, by the user and for the reason that the request has, and answers as the command does.
func TestActs_EachOnce(t *testing.T) {
	assert.Len(t, bodies, len(verbs))
	for i := range verbs {
		v := &verbs[i]
		path := pathOfVerb(v)
		t.Run(path, func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *fleet) {
				body, ok := bodies[path]
				require.True(t, ok, "%s has no body", path)
				body = strings.Replace(strings.Replace(body, "{", `{"reason":"quarter end",`, 1), ",}", "}", 1)
				if prepare := before[path]; prepare != nil {
					require.NoError(t, prepare(t.Context(), f.op))
				}
				of := "broken"
				switch {
				case v.On != acts.OnJob:
					of = ""
				case v.Origin == acts.Defined:
					of = "settle-acme"
				}
				earlier, err := f.op.Acts(t.Context(), of)
				if v.Name != "define" { // which creates the job
					require.NoError(t, err)
				}
				r := f.post(strings.NewReplacer("{job}", of, "{name}", "web-1").Replace(path), body)
				if kind := conflicts[path]; kind != "" {
					assert.Equal(t, kind, problem(t, r).Type)
					return
				}
				text := read(t, r)
				require.Equal(t, http.StatusOK, r.StatusCode, text)
				rt := actOf(v)
				done := *decode(t, text, rt.answer).(*view.Done)
				assert.NotEmpty(t, done.Verb)
				assert.Equal(t, view.Version, done.Version)
				assert.NotEmpty(t, done.Text)
				compileAnswers(t).validate(t, &rt, text)

				if path == "/acknowledge" {
					return // no records were lost
				}
				recorded, err := f.op.Acts(t.Context(), of)
				if v.Name == "delete" {
					assert.ErrorIs(t, err, operator.ErrUnknownJob, "the record of the acts is deleted with the job")
					return
				}
				require.NoError(t, err)
				require.Len(t, recorded, len(earlier)+1)
				last := recorded[len(recorded)-1]
				assert.Equal(t, "kim", last.By)
				assert.Equal(t, "quarter end", last.Reason)
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
