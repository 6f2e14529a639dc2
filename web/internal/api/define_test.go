package api

import (
	"context"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
)

// A job is defined, runs, is changed but not from a stale revision, and is deleted, by requests alone.
func TestDefine_ByRequests(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		ran := make(chan string, 100)
		require.NoError(t, f.member.RegisterKind(executor.Kind{Name: "note", Handler: executor.HandlerFunc(func(_ context.Context, r *executor.Run) error {
			ran <- r.Job + " " + r.Param
			return nil
		})}))
		waitForChange()
		const path = "/jobs/acme%2Fnote"
		done := func(r *http.Response) *view.Done {
			t.Helper()
			text := read(t, r)
			require.Equal(t, http.StatusOK, r.StatusCode, text)
			return decode(t, text, reflect.TypeFor[view.Done]()).(*view.Done)
		}
		const creation = `{"kind":"note","fields":{"schedule":"every 10s","param":"` + secret + `"},"if_absent":true,"reason":"a customer asked"}`
		d := done(f.post(path+"/define", creation, "Idempotency-Key", "k"))
		assert.Equal(t, operator.DefineCreated, d.Change.Outcome)
		assert.Equal(t, 1, d.Change.Revision)
		again := f.post(path+"/define", creation, "Idempotency-Key", "k")
		assert.Equal(t, "true", again.Header.Get("Idempotency-Replayed"))
		assert.Equal(t, d, done(again))
		assert.Equal(t, "conflict", problem(t, f.post(path+"/define", creation)).Type, "it exists")

		time.Sleep(25 * time.Second)
		require.NotEmpty(t, ran)
		assert.Equal(t, "acme/note "+secret, <-ran)

		d = done(f.post(path+"/define", `{"kind":"note","fields":{"schedule":"every 30m","timeout":"1m"},"keep_params":true,"if_revision":1}`))
		assert.Equal(t, "changed acme/note: revision 2", d.Text[:29])
		stale := problem(t, f.post(path+"/define", `{"kind":"note","fields":{"schedule":"every 1m"},"keep_params":true,"if_revision":1}`))
		assert.Equal(t, "conflict", stale.Type)
		assert.Contains(t, stale.Detail, "it has revision 2, and 1 was expected")
		for body, field := range map[string]string{
			`{"kind":"note","fields":{"schedule":"every 1h","timeout":"soon"}}`:           "fields.timeout",
			`{"kind":"note","fields":{"schedule":"0 4 * * *"}}`:                           "fields.schedule",
			`{"kind":"note","fields":{"schedule":"every 1h","shards":"` + secret:          "", // which is no JSON
			`{"kind":"other","fields":{"schedule":"every 1h"},"allow_unknown_kind":true}`: "kind",
			`{"fields":{"schedule":"every 1h"}}`:                                          "kind",
			`{"kind":"note","fields":{}}`:                                                 "fields.schedule",
			`{"kind":"note","fields":{"schedule":"every 1h"},"delete_after":"x"}`:         "delete_after",
			`{"kind":"note","fields":{"schedule":"every 1h"},"shards":[1]}`:               "shards",
		} {
			p := problem(t, f.post(path+"/define", body))
			assert.Equal(t, http.StatusBadRequest, p.Status, body)
			assert.Equal(t, field, p.Field, body)
			assert.NotContains(t, p.Detail, secret)
		}
		assert.Equal(t, "conflict", problem(t, f.post("/jobs/settle/define", creation)).Type, "a job in code")
		assert.Equal(t, "conflict", problem(t, f.post("/jobs/settle/delete", `{}`)).Type, "a job in code")

		j := decode(t, read(t, f.get("/definitions/acme%2Fnote")), reflect.TypeFor[view.Definition]()).(*view.Definition).Definition
		assert.Equal(t, "every 30m", j.Schedule)
		assert.Equal(t, 2, j.Revision)
		recorded := read(t, f.get("/acts?job=acme%2Fnote"))
		assert.Contains(t, recorded, `"by": "kim"`)
		assert.Contains(t, recorded, "define: change schedule, timeout")
		assert.NotContains(t, recorded, secret)

		drain := func() {
			for len(ran) > 0 {
				<-ran
			}
		}
		drain()
		done(f.post(path+"/trigger", `{}`))
		time.Sleep(5 * time.Second)
		require.NotEmpty(t, ran)
		assert.Equal(t, "acme/note "+secret, <-ran, "the parameter was kept")

		assert.Equal(t, "deleted acme/note", done(f.post(path+"/delete", `{"reason":"the customer left"}`)).Text)
		time.Sleep(5 * time.Second)
		assert.Equal(t, "unknown-job", problem(t, f.get("/definitions/acme%2Fnote")).Type)
		assert.Equal(t, "unknown-job", problem(t, f.get(path)).Type)
		assert.Equal(t, "unknown-job", problem(t, f.post(path+"/delete", `{}`)).Type)
		drain()
		time.Sleep(40 * time.Minute)
		assert.Empty(t, ran)
	})
}
