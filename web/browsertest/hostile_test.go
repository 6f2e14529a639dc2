package browsertest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/acts"
	"github.com/rota-dev/rota/web"
)

// Another site that a viewer visits can neither act in the viewer's name nor show the console as its own.
func TestOtherSites(t *testing.T) {
	f := startFleet(t)
	at := f.mount(t, web.Admin)
	onSettle := formAct{on: acts.OnJob, name: "settle", verb: "pause"}
	before := f.actsOn(t, onSettle)
	form := `<form method="post" action="` + at + `jobs/settle/act/pause"><input name="reason" value="none"><button>Win</button></form>`
	elsewhere := func(html string) string { // "localhost" is another site than 127.0.0.1
		s := serveHTML(t, html)
		return strings.Replace(s, "127.0.0.1", "localhost", 1)
	}

	t.Run("a form of another site is refused", func(t *testing.T) {
		b := newTab(t, look{})
		b.visit(elsewhere(form))
		assert.EqualValues(t, http.StatusForbidden, b.follow(chromedp.Evaluate[chromedp.Void](`document.querySelector("form").submit()`)))
		assert.Equal(t, before, f.actsOn(t, onSettle))
	})
	t.Run("so is one of another port of this host", func(t *testing.T) {
		b := newTab(t, look{})
		b.visit(serveHTML(t, form))
		assert.EqualValues(t, http.StatusForbidden, b.follow(chromedp.Evaluate[chromedp.Void](`document.querySelector("form").submit()`)))
		assert.Equal(t, before, f.actsOn(t, onSettle))
	})
	t.Run("a frame stays empty", func(t *testing.T) {
		for name, path := range map[string]string{"page": "jobs/settle", "form": "jobs/settle/act/pause"} {
			b := newTab(t, look{})
			b.visit(elsewhere(`<iframe src="` + at + path + `" width="800" height="600"></iframe>`))
			assert.Contains(t, strings.Join(b.takeReports(), "\n"), "frame-ancestors", name)
		}
	})
	t.Run("a script reads nothing", func(t *testing.T) {
		b := newTab(t, look{})
		b.visit(elsewhere("<p>Hello"))
		for _, path := range []string{"", "jobs/tenants", "events", "static/app.js"} {
			got := eval[string](b, `fetch(`+quote(at+path)+`, {credentials: "include"}).then(r => r.text(), () => "refused")`)
			assert.Equal(t, "refused", got, path)
		}
	})
	t.Run("the same form works here", func(t *testing.T) {
		b := openTab(t, look{})
		b.visit(at + "jobs/settle/act/pause")
		assert.EqualValues(t, http.StatusOK, b.follow(chromedp.Evaluate[chromedp.Void](`document.querySelector("form.act").requestSubmit()`)))
		assert.Len(t, f.actsOn(t, onSettle), len(before)+1)
	})
}

// serveHTML serves a page without a policy.
func serveHTML(t *testing.T, html string) string {
	return serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<!doctype html><title>Elsewhere</title>" + html))
	})
}

// Text from names, parameters, reasons, errors and addresses stays text. The tab fails for a dialog, a request to elsewhere and a report of
// the policy, which would stop a script that had become part of a page.
func TestText_StaysText(t *testing.T) {
	f := startFleet(t)
	at := f.mount(t, web.Admin)
	script := `"><script>alert(1)</script><img src=x onerror=alert(2)>`
	require.NoError(t, f.op.As(script, script).Pause(t.Context(), "settle"))
	b := openTab(t, look{})
	escaped := strings.NewReplacer(`"`, "%22", "<", "%3C", ">", "%3E", " ", "%20").Replace(script)
	for _, path := range []string{
		"", "?q=" + escaped, "?state=" + escaped, "?zone=" + escaped, "?said=" + escaped, "acts", "acts?job=" + escaped, "timeline?job=" + escaped,
		"jobs/settle", "jobs/settle?said=" + escaped, "jobs/tenants", "jobs/tenants/explain?shard=7", "jobs/settle/explain?at=" + escaped,
		"jobs/settle/explain?shard=" + escaped, "jobs/settle/act/trigger?param=" + escaped, "jobs/" + escaped,
		"act/define?job=" + escaped + "&kind=" + escaped + "&fields.schedule=" + escaped, "jobs/acme%2Freminder/act/define?fields.retry=" + escaped,
		"jobs/acme%2Freminder", "instances/" + escaped + "/act/drain", "act/" + escaped,
	} {
		b.subtest(t, path, func(t *testing.T) {
			status := b.visit(at + path)
			assert.Contains(t, []int64{200, 400, 404, 422}, status)
			assert.Empty(t, eval[[]string](b, `[...document.querySelectorAll("script:not([src]), img, [onerror], b, i")].map(e => e.outerHTML)`))
			if status != http.StatusOK {
				reports := b.takeReports() // the browser logs the status
				for _, r := range reports {
					assert.Contains(t, r, "Failed to load resource")
				}
			}
		})
	}
}
