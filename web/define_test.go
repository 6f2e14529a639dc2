package web

import (
	"context"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/schedule"
)

var (
	inputs    = regexp.MustCompile(`<input (type="checkbox" )?id="[^"]*" name="([^"]*)" value="([^"]*)"([^>]*)>`)
	textAreas = regexp.MustCompile(`(?s)<textarea id="[^"]*" name="([^"]*)"[^>]*>(.*?)</textarea>`)
	selects   = regexp.MustCompile(`(?s)<select id="[^"]*" name="([^"]*)"[^>]*>(.*?)</select>`)
	selected  = regexp.MustCompile(`<option selected>([^<]*)</option>`)
)

// formIn returns the values that a browser sends for the form of a page without any input.
func formIn(body string) url.Values {
	form := url.Values{}
	for _, m := range inputs.FindAllStringSubmatch(body, -1) {
		if m[1] == "" || strings.Contains(m[4], "checked") {
			form.Set(m[2], html.UnescapeString(m[3]))
		}
	}
	for _, m := range textAreas.FindAllStringSubmatch(body, -1) {
		form.Set(m[1], strings.ReplaceAll(html.UnescapeString(m[2]), "\n", "\r\n"))
	}
	for _, m := range selects.FindAllStringSubmatch(body, -1) {
		if chosen := selected.FindStringSubmatch(m[2]); chosen != nil {
			form.Set(m[1], html.UnescapeString(chosen[1]))
		}
	}
	return form
}

// A job whose name and texts are markup is defined, changed and deleted by forms alone.
func TestDefine_ByForms(t *testing.T) {
	onFleet(t, func(k *kit) {
		job := "acme/" + hostile
		require.NoError(k, k.member.RegisterKind(executor.Kind{
			Name: "note", Defaults: executor.Job{Timeout: time.Hour, Retry: executor.Retry{Max: 3}},
			Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil }),
		}))
		k.fleet.Sleep(3 * time.Second)
		get := func(path string) string {
			body := k.page(path)
			assert.NotContains(k, body, "<script>alert", path)
			assert.NotContains(k, body, secret, path)
			return body
		}
		refused := func(path string, form url.Values, why string) string {
			w := k.post(path, form)
			require.Equal(k, http.StatusUnprocessableEntity, w.Code, w.Body)
			body := w.Body.String()
			assert.Contains(k, body, why)
			assert.NotContains(k, body, "<script>alert")
			assert.NotContains(k, body, secret)
			return body
		}
		follow := func(path string, form url.Values) (string, string) {
			w := k.post(path, form)
			require.Equal(k, http.StatusSeeOther, w.Code, w.Body)
			to := w.Header().Get("Location")
			return to, get(to)
		}

		assert.Contains(k, get("/definitions?kind=note"), `<a class="button" href="act/define?kind=note">define a job</a>`)
		body := get("/act/define?kind=note")
		for _, want := range []string{
			`<label for="f-job">Name (required)</label>`, `<label for="f-fields.schedule">Schedule (required)</label>`, `name="fields.schedule" value="" required`,
			`name="if_absent" value="yes" checked`, "Yes, define a job",
		} {
			assert.Contains(k, body, want)
		}
		form := formIn(body)
		assert.Equal(k, "note", form.Get("kind"))
		for _, name := range []string{"keep_params", "if_revision", "no_defaults"} {
			assert.NotContains(k, body, `name="`+name+`"`, "a new job has none")
		}
		for name, value := range map[string]string{
			"job": job, "fields.schedule": "cron * * * * *", "in": "Asia/Shanghai", "fields.param": secret, "fields.shards": "2", "fields.shard_params": "1=" + secret,
			"fields.description": hostile + "\r\nsecond line", "fields.timeout": "soon", "fields.run_on": "", "delete_after": "24h", "reason": hostile,
		} {
			form.Set(name, value)
		}
		body = refused("/act/define", form, "fields.timeout: ")
		assert.Equal(k, job, formIn(body).Get("job"), "what was typed")
		assert.Equal(k, "soon", formIn(body).Get("fields.timeout"), "what was typed")
		form.Set("fields.timeout", "")
		form.Set("fields.retry", "max=5\r\njitter=0.5")
		to, body := follow("/act/define", form)
		page := "/jobs/" + url.PathEscape(job)
		assert.True(k, strings.HasPrefix(to, page+"?said="), to)
		for _, want := range []string{"Created acme/", "Defined as data", `href="../definitions?kind=note"`, "24h after its last run", "1 by lee", "* * * * * Asia/Shanghai"} {
			assert.Contains(k, body, want)
		}
		for verb, offered := range map[string]bool{"define": true, "delete": true, "trigger": true, "retire": false, "unretire": false, "forget": false} {
			assert.Equal(k, offered, strings.Contains(body, "/act/"+verb+`"`), verb)
			assert.Equal(k, !offered || verb == "trigger", strings.Contains(get("/jobs/settle"), "/act/"+verb+`"`), "%s of a job in code", verb)
		}
		refused("/act/define", form, "the job is defined already")
		w := k.post("/act/define", url.Values{"job": {"a\r\nSet-Cookie: b=c"}, "kind": {"note"}, "fields.schedule": {"every 1h"}})
		assert.NotContains(k, w.Header(), "Set-Cookie")
		assert.NotContains(k, w.Header().Get("Location"), "\n")

		k.fleet.Sleep(2 * time.Minute)
		runs := k.fleet.Runs(job)
		require.NotEmpty(k, runs)
		assert.Equal(k, secret, runs[0].Param)

		body = get(page + "/act/define")
		form = formIn(body)
		assert.NotContains(k, form, "job")
		assert.Equal(k, hostile+"\r\nsecond line", form.Get("fields.description"))
		assert.Equal(k, "1h", form.Get("fields.timeout"), "that of the kind is on record")
		assert.Contains(k, form.Get("fields.retry"), "jitter=0.5\r\nmax=5")
		_, body = follow(page+"/act/define", form)
		assert.Contains(k, body, "is unchanged: revision 1.")
		assert.Contains(k, refused(page+"/act/define", url.Values{}, "kind: it is missing"), "Yes, define acme/")

		form.Set("fields.timeout", "")
		form.Set("fields.schedule", "every 2m")
		form.Set("reason", hostile)
		_, body = follow(page+"/act/define", form)
		assert.Contains(k, body, "Changed acme/")
		form.Set("fields.schedule", "every 3m")
		refused(page+"/act/define", form, "it has revision 2, and 1 was expected")
		j, err := k.op.Definition(context.Background(), job)
		require.NoError(k, err)
		assert.Equal(k, schedule.Every(2*time.Minute), j.Definition.Schedule)
		assert.Equal(k, secret, j.Definition.Param, "it was kept")
		assert.Equal(k, map[int]string{1: secret}, j.Definition.ShardParams, "it was kept")
		assert.NotContains(k, j.Definition.Policies, "timeout", "an empty field is not that of the kind")
		assert.Equal(k, hostile, j.By.Reason)

		body = get(page + "/act/delete")
		assert.Contains(k, body, "This will delete acme/")
		assert.Contains(k, body, "Runs in progress finish, unless you cancel them.")
		assert.Contains(k, body, `<label for="f-cancel_runs">`)
		to, body = follow(page+"/act/delete", nil)
		assert.True(k, strings.HasPrefix(to, "/definitions?said="), to)
		assert.Contains(k, body, "Deleted acme/")
		k.fleet.Sleep(10 * time.Second)
		assert.Equal(k, http.StatusNotFound, k.get(page).Code)
		assert.Equal(k, http.StatusNotFound, k.get(page+"/act/define").Code)
		refused(page+"/act/delete", nil, "unknown job")
		_, err = k.op.Definition(context.Background(), job)
		assert.ErrorIs(k, err, operator.ErrUnknownJob)
	})
}

func TestDefine_IsForAdminsAndJobsThatAreData(t *testing.T) {
	onFleet(t, func(k *kit) {
		k.define("note", "acme/note")
		w := k.get("/jobs/settle/act/define")
		assert.Equal(t, http.StatusConflict, w.Code)
		assert.Contains(t, w.Body.String(), "settle is registered in code")
		for _, path := range []string{"/jobs/settle/act/define", "/jobs/settle/act/delete"} {
			assert.Equal(t, http.StatusUnprocessableEntity, k.post(path, url.Values{"kind": {"note"}, "fields.schedule": {"every 1h"}}).Code, path)
		}
		k.user.Role = Operate
		assert.NotContains(t, k.page("/definitions"), "act/define")
		assert.NotContains(t, k.page("/jobs/acme%2Fnote"), "act/de")
		for _, path := range []string{"/act/define", "/jobs/acme%2Fnote/act/define", "/jobs/acme%2Fnote/act/delete"} {
			assert.Equal(t, http.StatusForbidden, k.get(path).Code, path)
			assert.Equal(t, http.StatusForbidden, k.post(path, url.Values{"job": {"x"}, "kind": {"note"}, "fields.schedule": {"every 1h"}, "allow_unknown_kind": {"yes"}}).Code, path)
		}
		_, err := k.op.Definition(context.Background(), "acme/note")
		assert.NoError(t, err)
	})
}
