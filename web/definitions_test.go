package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/schedule"
)

// define defines jobs of a kind that no instance offers.
func (k *kit) define(kind string, names ...string) {
	k.Helper()
	var all []operator.Definition
	for _, name := range names {
		all = append(all, operator.Definition{Name: name, Kind: kind, Schedule: schedule.Every(time.Hour), Param: secret})
	}
	_, err := k.op.As("kim", hostile).DefineAll(context.Background(), all, operator.AllowUnknownKind())
	require.NoError(k, err)
}

var nextPage = regexp.MustCompile(`<a href="([^"]*)" rel="next">`)

func TestDefinitions(t *testing.T) {
	onFleet(t, func(k *kit) {
		assert.Contains(t, k.page("/definitions"), "No jobs are defined as data.")
		var names []string
		for i := range 130 {
			names = append(names, fmt.Sprintf("tenants/%03d", i))
		}
		k.define("report", names...)
		k.define("mail", "acme/reminder", hostile+"2")

		found := map[string]int{}
		pages := 0
		for path := "/definitions?prefix=tenants%2F"; path != ""; pages++ {
			body := k.page(path)
			for _, name := range names {
				found[name] += strings.Count(body, `href="jobs/`+url.PathEscape(name)+`"`)
			}
			assert.LessOrEqual(t, strings.Count(body, "<tr"), definitionsOnPage+1)
			path = ""
			if m := nextPage.FindStringSubmatch(body); m != nil {
				path = "/" + strings.ReplaceAll(m[1], "&amp;", "&")
			}
		}
		assert.Equal(t, 3, pages)
		for _, name := range names {
			assert.Equal(t, 1, found[name], name)
		}

		body := k.page("/definitions?kind=mail")
		assert.Contains(t, body, "acme/reminder")
		assert.Contains(t, body, "every 1h")
		assert.NotContains(t, body, "tenants/000")
		for _, path := range []string{"/definitions?kind=mail", "/definitions?kind=" + url.QueryEscape(hostile), "/definitions?prefix=" + url.QueryEscape(hostile) + "&after=" + url.QueryEscape(hostile), "/kinds"} {
			body := k.page(path)
			assert.NotContains(t, body, "<script>alert", path)
			assert.NotContains(t, body, secret, path)
		}
		assert.Contains(t, k.page("/definitions?kind=none"), "No other job matches.")

		k.fleet.Sleep(10 * time.Second) // the leader counts
		body = k.page("/kinds")
		assert.Contains(t, body, `href="definitions?kind=report"`)
		assert.Contains(t, body, "no process has stored it")
		assert.NotContains(t, body, "Pools")
		assert.Contains(t, body, `href="act/set-pool"`)
		assert.NotContains(t, body, `href="act/delete-pool"`)
		assert.Contains(t, k.page("/act/set-pool"), "Yes, set-pool")
		w := k.post("/act/set-pool", url.Values{"pool": {"db"}, "size": {"0"}})
		require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
		assert.Contains(t, k.page(w.Header().Get("Location")), "Pool db has 0 slots.")
		body = k.page("/kinds")
		for _, want := range []string{"Pools", "TAKEN", "db", `href="act/delete-pool"`} {
			assert.Contains(t, body, want)
		}
		body = k.page("/jobs/" + url.PathEscape("acme/reminder"))
		for _, want := range []string{"mail, defined as data", "<dt>rests</dt>", "wakes "} {
			assert.Contains(t, body, want, "the page of a job that rests")
		}
	})
}
