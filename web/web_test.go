package web

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/internal/acts"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/web/internal/role"
)

func TestPages(t *testing.T) {
	onFleet(t, func(k *kit) {
		for path, want := range map[string][]string{
			"/": {
				"What is wrong", `href="jobs/export">export</a>`, "failing: shards 0-1", "rota retry export --fire 2000-01-01T00:01:00Z",
				`href="jobs/settle"`, "paused by kim", "2 ok", "rotatest/default", `title="00:02:00Z"`,
			},
			"/?state=paused":                          {`href="jobs/rebuild"`},
			"/?q=sett":                                {`href="jobs/settle"`},
			"/jobs/settle":                            {"every 1m", `href="settle/explain"`, `href="settle/explain?shard=0"`, `href="settle/act/trigger"`, "led by a"},
			"/jobs/export":                            {"failing", secret, `href="export/fires/2000-01-01T00:01:00Z/shards/0">what failed last`, `class="legend"`, "Last fires", "<svg", `href="export/grid"`, `href="export/fires/2000-01-01T00:01:00Z"`},
			"/jobs/rebuild":                           {"by kim", "quarter"},
			"/jobs/settle/explain":                    {"Shards 0-1", "Shards 2-3", "What was checked", "defined: revision 0 is stored"},
			"/jobs/export/explain":                    {secret},
			"/jobs/rebuild/explain":                   {"paused", `href="act/resume?"`, "rota resume rebuild"},
			"/jobs/export/explain?shard=1":            {"Shard 1", `href="act/retry?fire=2000-01-01T00%3A01%3A00Z&amp;shards=1"`},
			"/jobs/export/grid":                       {"<svg", "Shards and fires", "The same as a table", `fires/2000-01-01T00:01:00Z`},
			"/jobs/export/grid?shards=1":              {"<svg"},
			"/jobs/export/fires/2000-01-01T00:01:00Z": {"<svg", "The same as a table", "failed"},
			"/jobs/export/fires/2000-01-01T00:01:00Z/shards/1": {"Shard 1", secret},
			"/instances":                       {"leader", "instances/b/act/drain"},
			"/timeline?job=settle":             {"settle", "a"},
			"/acts?job=rebuild":                {"pause", "kim"},
			"/acts":                            {"rebuild", "pause", "kim", "pause the whole group", `href="act/pause"`},
			"/doctor":                          {"Findings"},
			"/jobs/settle/act/trigger":         {"Run the job now", "Parameter", "Yes, trigger settle", `href="../../../jobs/settle"`},
			"/jobs/export/act/retry?shards=1":  {`value="1"`, "Fire (required)"},
			"/instances/b/act/drain":           {"Yes, drain b"},
			"/act/pause":                       {"Stop all jobs of the group", "Yes, pause the whole group"},
			"/static/style.css":                {"--back"},
			"/jobs/" + url.PathEscape(hostile): {"&lt;script&gt;"},
		} {
			body := k.page(path)
			for _, text := range want {
				assert.Contains(t, body, text, path)
			}
		}
		assert.NotContains(t, k.page("/?q=sett"), `id="job-export"`)
		assert.NotContains(t, k.page("/?state=paused"), `id="job-settle"`)
		assert.NotContains(t, k.page("/acts?job=rebuild"), "act/pause", "the page of a job has no act on all jobs")
		w := k.get("/jobs/settle/explain?shard=99")
		assert.Equal(t, http.StatusNotFound, w.Code)
		assert.Contains(t, w.Body.String(), "there is no shard 99 of 4")
	})
}

// The states count the jobs that the name selects.
func TestFleet_CountsTheStatesOfWhatIsSelected(t *testing.T) {
	onFleet(t, func(k *kit) {
		assert.Contains(t, k.page("/"), "1 failing")
		body := k.page("/?q=sett")
		assert.Contains(t, body, "1 ok")
		assert.NotContains(t, body, "1 failing")
		body = k.page("/?q=e&state=paused")
		assert.Contains(t, body, "1 failing", "another state of the same names can be chosen")
		assert.Contains(t, body, "1 paused")
		assert.Contains(t, k.page("/?q=sett&state=paused"), "0 paused", "the chosen state stays")
	})
}

// Instants of addresses have the forms that the command takes.
func TestInstants_HaveTheFormsOfTheCommand(t *testing.T) {
	onFleet(t, func(k *kit) {
		for _, at := range []string{"2000-01-01T00:01:00Z", "2000-01-01 00:01", "2000-01-01T00:01", "00:01", "2000-01-01T08:01:00+08:00", " 00:01 "} {
			assert.Contains(t, k.page("/jobs/export/explain?shard=1&at="+url.QueryEscape(at)), "attempt 1 ended at 2000-01-01T00:01:00Z", at)
			assert.Contains(t, k.page("/jobs/export/grid?until="+url.QueryEscape(at)), "fires/2000-01-01T00:01:00Z", at)
		}
		w := k.get("/jobs/export/explain?at=noon")
		assert.Equal(t, http.StatusBadRequest, w.Code)
		assert.Contains(t, w.Body.String(), "neither RFC 3339 nor a time of day")
	})
}

// The page of a fire leads to the retry of what failed, if the user may.
func TestFire_LeadsToItsRetry(t *testing.T) {
	onFleet(t, func(k *kit) {
		const fire = "/jobs/export/fires/2000-01-01T00:01:00Z"
		const link = "../act/retry?fire=2000-01-01T00%3A01%3A00Z"
		assert.Contains(t, k.page(fire), `href="`+link+`"`)
		assert.Contains(t, k.page("/jobs/export/act/retry?fire=2000-01-01T00%3A01%3A00Z"), `value="2000-01-01T00:01:00Z"`)
		assert.NotContains(t, k.page("/jobs/settle/fires/2000-01-01T00:01:00Z"), "Retry what failed", "nothing failed")
		k.user.Role = Reveal
		assert.NotContains(t, k.page(fire), "Retry what failed")
	})
}

// Without a history, a link to a run that has ended since it was shown leads to a page that says so.
func TestFire_ThatNothingKnows(t *testing.T) {
	onFleet(t, func(k *kit) {
		for _, path := range []string{"/jobs/settle/fires/~1", "/jobs/settle/fires/~1/shards/2", "/jobs/settle/fires/2000-01-01T00:00:30Z"} {
			assert.Equal(t, http.StatusNotFound, k.get(path).Code, "%s with a history", path)
		}
		k.history = nil
		k.console = k.newConsole(Options{Acts: true})
		defer k.console.Close()
		for _, path := range []string{"/jobs/settle/fires/~1", "/jobs/settle/fires/~1/shards/2", "/jobs/settle/fires/2000-01-01T00:00:30Z"} {
			assert.Contains(t, k.page(path), "Nothing is on record of this", path)
		}
		assert.Equal(t, http.StatusNotFound, k.get("/jobs/nothing/fires/~1").Code)
	})
}

// A drained instance says so, and only what changes something is offered.
func TestInstances_OfferDrainOrUndrain(t *testing.T) {
	onFleet(t, func(k *kit) {
		body := k.page("/instances")
		assert.Contains(t, body, "instances/b/act/drain")
		assert.NotContains(t, body, "act/undrain")
		require.Equal(t, http.StatusSeeOther, k.post("/instances/b/act/drain", nil).Code)
		k.fleet.Sleep(5 * time.Second)
		body = k.page("/instances")
		assert.Contains(t, body, `is-drained">drained</span>`)
		assert.NotContains(t, body, ">disabled</span>")
		assert.Contains(t, body, "instances/b/act/undrain")
		assert.NotContains(t, body, "instances/b/act/drain")
		assert.Contains(t, body, "instances/a/act/drain")

		require.Equal(t, http.StatusSeeOther, k.post("/instances/gone/act/drain", nil).Code)
		assert.Contains(t, k.page("/instances"), "instances/gone/act/undrain", "the drain of an instance that is not there can be taken back")
	})
}

func TestPages_HaveNoMarkupOfTheFleet(t *testing.T) {
	onFleet(t, func(k *kit) {
		require.NoError(t, k.op.As(hostile, hostile).Pause(context.Background(), hostile))
		k.fleet.Sleep(3 * time.Second)
		job := "/jobs/" + url.PathEscape(hostile)
		for _, path := range []string{
			"/", "/acts?job=" + url.QueryEscape(hostile), job, job + "/explain", job + "/explain?shard=" + url.QueryEscape(hostile),
			job + "/act/trigger?param=" + url.QueryEscape(hostile), "/?q=" + url.QueryEscape(hostile), "/?said=" + url.QueryEscape(hostile),
			"/timeline?job=" + url.QueryEscape(hostile),
		} {
			w := k.get(path)
			assert.NotContains(t, w.Body.String(), "<script>alert", path)
			assert.NotContains(t, w.Body.String(), `style="`, path)
			assert.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'", path)
		}
	})
}

// Every row of routes is tried by every role. A pattern that has no path here fails.
func TestRoutes(t *testing.T) {
	paths := map[string]string{
		"GET /{$}": "/", "GET /jobs/{job}": "/jobs/settle", "GET /jobs/{job}/explain": "/jobs/settle/explain", "GET /instances": "/instances",
		"GET /jobs/{job}/grid": "/jobs/export/grid", "GET /jobs/{job}/fires/{fire}": "/jobs/export/fires/2000-01-01T00:01:00Z",
		"GET /jobs/{job}/fires/{fire}/shards/{shard}": "/jobs/export/fires/2000-01-01T00:01:00Z/shards/1", "GET /definitions": "/definitions", "GET /kinds": "/kinds",
		"GET /timeline": "/timeline", "GET /acts": "/acts", "GET /doctor": "/doctor", "GET /events": "/events",
		"GET /act/{verb}": "/act/pause", "POST /act/{verb}": "/act/pause", "GET /jobs/{job}/act/{verb}": "/jobs/settle/act/pause",
		"POST /jobs/{job}/act/{verb}": "/jobs/settle/act/pause", "GET /instances/{instance}/act/{verb}": "/instances/b/act/drain",
		"POST /instances/{instance}/act/{verb}": "/instances/b/act/drain", "GET /static/{file}": "/static/app.js",
	}
	onFleet(t, func(k *kit) {
		for _, rt := range routes {
			path, ok := paths[rt.pattern]
			if !assert.True(t, ok, "no path for %s", rt.pattern) {
				continue
			}
			method, _, _ := strings.Cut(rt.pattern, " ")
			for role := range Admin + 1 {
				k.user = User{Name: "lee", Role: role}
				ctx, cancel := context.WithCancel(context.Background())
				time.AfterFunc(time.Second, cancel) // of the stream
				r := httptest.NewRequest(method, path, nil).WithContext(ctx)
				got := k.do(k.console, r).Code
				cancel()
				switch {
				case rt.least == 0:
					assert.Equal(t, http.StatusOK, got, "%s by %v", rt.pattern, role)
				case role == 0:
					assert.Equal(t, http.StatusUnauthorized, got, "%s by a stranger", rt.pattern)
				case role < rt.least:
					assert.Equal(t, http.StatusForbidden, got, "%s by %v", rt.pattern, role)
				default:
					assert.Less(t, got, 400, "%s by %v", rt.pattern, role)
				}
			}
		}
		k.user.Role = Admin
		assert.Contains(t, k.page("/api/v1/jobs/settle"), `"name": "settle"`)
		k.user.Role = 0
		assert.Equal(t, http.StatusUnauthorized, k.get("/api/v1/jobs").Code)
		k.user.Role = Admin
		assert.Equal(t, http.StatusNotFound, k.get("/nothing").Code)
		assert.Equal(t, http.StatusMethodNotAllowed, k.post("/instances", nil).Code)
	})
}

func TestAuthorize_NilIsForThisMachine(t *testing.T) {
	onFleet(t, func(k *kit) {
		c, err := New(k.op, Options{Acts: true})
		require.NoError(t, err)
		defer c.Close()
		for _, of := range []struct {
			addr, host string
			want       int
		}{
			{"127.0.0.1:1", "localhost:7682", http.StatusOK},
			{"[::1]:1", "[::1]:7682", http.StatusOK},
			{"[::ffff:127.0.0.1]:1", "127.0.0.1", http.StatusOK},
			{"127.0.0.1:1", "evil.test", http.StatusUnauthorized}, // a name that leads here
			{"10.0.0.1:1", "localhost", http.StatusUnauthorized},
			{"@", "localhost", http.StatusUnauthorized},
		} {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr, r.Host = of.addr, of.host
			assert.Equal(t, of.want, k.do(c, r).Code, "%v", of)
			r = httptest.NewRequest(http.MethodPost, "/jobs/settle/act/trigger", nil)
			r.RemoteAddr, r.Host = of.addr, of.host
			assert.GreaterOrEqual(t, k.do(c, r).Code, 400, "an act by %v", of)
		}
	})
}

func TestActs(t *testing.T) {
	onFleet(t, func(k *kit) {
		w := k.post("/jobs/settle/act/pause", url.Values{"reason": {"deploy"}})
		require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
		to := w.Header().Get("Location")
		require.True(t, strings.HasPrefix(to, "/jobs/settle?said="), to)
		assert.Contains(t, k.page(to), "Paused settle.")
		acts, err := k.op.Acts(context.Background(), "settle")
		require.NoError(t, err)
		require.NotEmpty(t, acts)
		last := acts[len(acts)-1]
		assert.Equal(t, "lee: deploy", last.By+": "+last.Reason)

		require.Equal(t, http.StatusSeeOther, k.post("/jobs/settle/act/resume", nil).Code)
		require.Equal(t, http.StatusSeeOther, k.post("/jobs/settle/act/trigger", url.Values{"shards": {"1-2"}, "param": {"x"}}).Code)
		k.fleet.Sleep(5 * time.Second)
		var shards []int
		for _, r := range k.fleet.Runs("settle") {
			if r.Trigger > 0 && r.Param == "x" {
				shards = append(shards, r.Shard)
			}
		}
		assert.ElementsMatch(t, []int{1, 2}, shards)
	})
}

// The page after an act shows the act, though the snapshot that viewers share may be a second old.
func TestActs_AreOnTheNextPage(t *testing.T) {
	onFleet(t, func(k *kit) {
		for range 3 {
			assert.NotContains(t, k.page("/?q=settle"), "paused by lee")
			require.Equal(t, http.StatusSeeOther, k.post("/jobs/settle/act/pause", nil).Code)
			assert.Contains(t, k.page("/?q=settle"), "paused by lee")
			assert.Contains(t, k.page("/jobs/settle"), "paused by lee")
			require.Equal(t, http.StatusSeeOther, k.post("/jobs/settle/act/resume", nil).Code)
			assert.NotContains(t, k.page("/jobs/settle"), "paused by lee")
			require.Equal(t, http.StatusSeeOther, k.post("/act/pause", nil).Code)
			assert.Contains(t, k.page("/?q=settle"), "paused with the group")
			require.Equal(t, http.StatusSeeOther, k.post("/act/resume", nil).Code)
		}
	})
}

// An override has a field for each key, and a refused one keeps what was typed, but for parameters.
func TestActs_OverrideByFields(t *testing.T) {
	onFleet(t, func(k *kit) {
		form := k.page("/jobs/settle/act/override")
		for _, text := range []string{
			`<label for="f-fields.timeout">Timeout of a run</label> <input id="f-fields.timeout" name="fields.timeout"`, `<select id="f-fields.on_crash"`, "<option>rerun elsewhere</option>",
			`<input id="f-fields.shards" name="fields.shards" value="" inputmode="numeric"`, `<textarea id="f-fields.run_on"`, `<input type="checkbox" id="f-clear_all"`,
		} {
			assert.Contains(t, form, text)
		}
		assert.NotContains(t, form, `<textarea id="f-fields"`)

		typed := url.Values{"fields.timeout": {"2x"}, "fields.on_crash": {"count as failed"}, "fields.param": {secret}, "fields.run_on": {"zone=" + hostile}}
		w := k.post("/jobs/settle/act/override", typed)
		require.Equal(t, http.StatusUnprocessableEntity, w.Code)
		assert.Contains(t, w.Body.String(), `value="2x"`)
		assert.Contains(t, w.Body.String(), "<option selected>count as failed</option>")
		assert.Contains(t, w.Body.String(), "zone=&#34;&gt;&lt;script&gt;")
		assert.NotContains(t, w.Body.String(), secret)

		typed = url.Values{"fields.timeout": {"2h"}, "fields.shards": {""}, "fields.run_on": {"zone=a\r\n"}}
		w = k.post("/jobs/settle/act/override", typed)
		require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
		assert.Contains(t, k.page(w.Header().Get("Location")), "Overrides run_on, timeout of settle")
	})
}

// The records name few failures. A retry of a fire that only the history knows runs the shards that failed.
func TestActs_RetryByTheHistory(t *testing.T) {
	onFleet(t, func(k *kit) {
		k.fleet.Sleep(30 * time.Minute)
		fire := url.Values{"fire": {"2000-01-01T00:01:00Z"}}
		_, err := k.op.Retry(context.Background(), "export", time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC), operator.RetryOptions{})
		require.ErrorIs(t, err, operator.ErrNoFailure, "the records name the failure still")
		w := k.post("/jobs/export/act/retry", fire)
		require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
		assert.Contains(t, k.page(w.Header().Get("Location")), "Retries shards 0-1 of fire 2000-01-01T00:01:00Z of export")

		k.history = away{k.history}
		k.console = k.newConsole(Options{Acts: true})
		defer k.console.Close()
		w = k.post("/jobs/export/act/retry", url.Values{"fire": {"2000-01-01T00:02:00Z"}})
		assert.Equal(t, http.StatusServiceUnavailable, w.Code)
		assert.NotContains(t, w.Body.String(), "database is down")
	})
}

func TestActs_Refuse(t *testing.T) {
	onFleet(t, func(k *kit) {
		for path, c := range map[string]struct {
			form url.Values
			want string
		}{
			"/jobs/settle/act/disable":   {nil, "refused"},
			"/jobs/settle/act/trigger":   {url.Values{"shards": {"7-x"}, "param": {secret}}, "shards: "},
			"/jobs/settle/act/retry":     {url.Values{"fire": {"yesterday"}}, "fire: "},
			"/jobs/settle/act/backfill":  {url.Values{"from": {"2000-01-01T00:00:00Z"}, "to": {"2000-01-01T00:00:00Z"}}, "refused"},
			"/jobs/settle/act/override":  {url.Values{"fields": {"schedule=0 4 * * *"}}, "without its kind"},
			"/jobs/settle/act/forget":    {nil, "in use"},
			"/jobs/settle/act/cancel":    {nil, "no run is in progress"},
			"/jobs/settle/act/pause":     {url.Values{"until": {"1999-01-01T00:00:00Z"}}, "not in the future"},
			"/instances/b/act/acquit":    {nil, "There is no act"},
			"/jobs/settle/act/undrain":   {nil, "There is no act"},
			"/jobs/nowhere/act/override": {url.Values{"fields": {"shards=2"}}, ""},
		} {
			w := k.post(path, c.form)
			assert.GreaterOrEqual(t, w.Code, 400, path)
			assert.Less(t, w.Code, 500, path)
			assert.Contains(t, w.Body.String(), c.want, path)
			assert.NotContains(t, w.Body.String(), secret, path)
		}
	})
}

func TestActs_NeedTheirRoleAndTheOption(t *testing.T) {
	onFleet(t, func(k *kit) {
		k.user.Role = Operate
		for _, v := range acts.Verbs {
			if v.On == acts.OnJob && role.For(v.Name) == Admin {
				assert.Equal(t, http.StatusForbidden, k.post("/jobs/settle/act/"+v.Name, nil).Code, v.Name)
				assert.NotContains(t, k.page("/jobs/settle"), `href="settle/act/`+v.Name+`"`)
			}
		}
		k.user.Role = Admin
		reads := k.newConsole(Options{})
		defer reads.Close()
		for _, v := range acts.Verbs {
			if v.On == acts.OnJob {
				r := httptest.NewRequest(http.MethodPost, "/jobs/settle/act/"+v.Name, nil)
				assert.Equal(t, http.StatusForbidden, k.do(reads, r).Code, v.Name)
			}
		}
	})
}

func TestActs_RefuseOtherSites(t *testing.T) {
	onFleet(t, func(k *kit) {
		for _, rt := range routes {
			method, pattern, _ := strings.Cut(rt.pattern, " ")
			if method != http.MethodPost {
				continue
			}
			path := strings.NewReplacer("{job}", "settle", "{instance}", "b", "/act/{verb}", "/act/pause").Replace(pattern)
			for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.test", "Sec-Fetch-Site ": "same-site"} {
				r := httptest.NewRequest(http.MethodPost, path, nil)
				r.Header.Set(strings.TrimSpace(header), value)
				assert.Equal(t, http.StatusForbidden, k.do(k.console, r).Code, "%s: %s to %s", header, value, path)
			}
		}
		r := httptest.NewRequest(http.MethodPost, "/api/v1/jobs/settle/pause", strings.NewReader("{}"))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		assert.Equal(t, http.StatusForbidden, k.do(k.console, r).Code, "an act by the HTTP API")
		for _, job := range []string{"settle", ""} {
			acts, err := k.op.Acts(context.Background(), job)
			require.NoError(t, err)
			assert.Empty(t, acts, "a refused act is on record")
		}
	})
}

// Every answer forbids frames, other sites and inline scripts: pages, problems, files, redirects and the HTTP API.
func TestHeaders(t *testing.T) {
	onFleet(t, func(k *kit) {
		want := http.Header{}
		SetSecurityHeaders(want)
		for _, of := range []string{"frame-ancestors 'none'", "default-src 'none'", "form-action 'self'", "base-uri 'none'"} {
			assert.Contains(t, want.Get("Content-Security-Policy"), of)
		}
		assert.NotContains(t, want.Get("Content-Security-Policy"), "unsafe")
		assert.Equal(t, "DENY", want.Get("X-Frame-Options"))
		for _, path := range []string{"/", "/jobs/settle", "/jobs/none", "/jobs/settle/act/pause", "/act/define", "/static/app.js", "/static/none", "/nothing", "/api/v1/jobs", "/api/v1/nothing", "/events/"} {
			h := k.get(path).Header()
			for name := range want {
				if name == "Cache-Control" && strings.HasPrefix(path, "/static/") {
					continue
				}
				assert.Equal(t, want.Get(name), h.Get(name), "%s of %s", name, path)
			}
		}
		h := k.post("/jobs/settle/act/pause", nil).Header()
		assert.Equal(t, want.Get("Content-Security-Policy"), h.Get("Content-Security-Policy"))
	})
}

// Line breaks in names, reasons and addresses add no header, and lead to no other site.
func TestHeaders_AreNotInjected(t *testing.T) {
	onFleet(t, func(k *kit) {
		const breaks = "settle\r\nSet-Cookie: a=b\r\n\r\n<script>"
		for _, path := range []string{
			"/jobs/" + url.PathEscape(breaks), "/jobs/" + url.PathEscape(breaks) + "/act/pause", "/instances/" + url.PathEscape(breaks) + "/act/drain",
			"/jobs/" + url.PathEscape("//evil.test/") + "/act/pause", "/jobs/" + url.PathEscape(`..\..\evil`) + "/act/pause", "/?said=" + url.QueryEscape(breaks), "/?q=" + url.QueryEscape(breaks),
		} {
			for _, w := range []*httptest.ResponseRecorder{k.get(path), k.post(path, url.Values{"reason": {breaks}})} {
				assert.Empty(t, w.Header().Get("Set-Cookie"), path)
				for name, values := range w.Header() {
					assert.NotContains(t, strings.Join(values, ""), "\n", "%s of %s", name, path)
				}
				if to := w.Header().Get("Location"); to != "" {
					u, err := url.Parse(to)
					require.NoError(t, err)
					assert.Empty(t, u.Host, path)
					assert.False(t, strings.HasPrefix(to, "//"), to)
				}
			}
		}
	})
}

// Another site can send no token, and a request with one and with a cookie may be by the cookie.
func TestActs_OfATokenNeedNoOrigin(t *testing.T) {
	onFleet(t, func(k *kit) {
		for _, c := range []struct {
			path, header, value string
			want                int
		}{
			{"/api/v1/jobs/settle/pause", "Authorization", "Bearer x", http.StatusOK},
			{"/api/v1/jobs/settle/pause", "Authorization", "Basic x", http.StatusForbidden},
			{"/api/v1/jobs/settle/pause", "X-Token", "Bearer x", http.StatusForbidden},
			{"/jobs/settle/act/pause", "Authorization", "Bearer x", http.StatusForbidden},
		} {
			r := httptest.NewRequest(http.MethodPost, c.path, strings.NewReader("{}"))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set(c.header, c.value)
			assert.Equal(t, c.want, k.do(k.console, r).Code, "%v", c)
			r = r.Clone(r.Context())
			r.Header.Set("Cookie", "session=x")
			assert.Equal(t, http.StatusForbidden, k.do(k.console, r).Code, "%v with a cookie", c)
		}
	})
}

func TestLook_SeesNoErrors(t *testing.T) {
	onFleet(t, func(k *kit) {
		k.user.Role = Look
		fire := "/jobs/export/fires/2000-01-01T00:01:00Z"
		for _, path := range []string{"/", "/jobs/export", fire, fire + "/shards/1", "/jobs/export/grid", "/jobs/export/explain", "/jobs/export/explain?shard=1", "/doctor", "/timeline?job=export"} {
			assert.NotContains(t, k.page(path), secret, path)
		}
		assert.Contains(t, k.page("/jobs/export/explain?shard=1"), "failed: attempt 1 ended at 2000-01-01T00:01:00Z with: (hidden)", "all but the error is told")
		assert.Contains(t, k.page("/jobs/export/explain?shard=1"), "attempt 1 failed at 2000-01-01T00:01:00Z: (hidden)")
		k.user.Role = Reveal
		assert.Contains(t, k.page("/jobs/export"), secret)
	})
}

func TestPrefix(t *testing.T) {
	onFleet(t, func(k *kit) {
		mux := http.NewServeMux()
		mux.Handle("/ops/rota/", http.StripPrefix("/ops/rota", k.console))
		mux.Handle("/ops/rota", http.StripPrefix("/ops/rota", k.console))
		w := k.do(mux, httptest.NewRequest(http.MethodGet, "/ops/rota", nil))
		assert.Contains(t, []string{"/ops/rota/"}, w.Header().Get("Location"))
		w = k.do(mux, httptest.NewRequest(http.MethodGet, "/ops/rota/jobs/settle", nil))
		assert.Contains(t, w.Body.String(), `href="../static/style.css"`)
		assert.NotContains(t, w.Body.String(), `href="/`)
		w = k.do(mux, httptest.NewRequest(http.MethodPost, "/ops/rota/jobs/settle/act/pause", nil))
		assert.True(t, strings.HasPrefix(w.Header().Get("Location"), "/ops/rota/jobs/settle?said="), w.Header().Get("Location"))
	})
}

// fleetOf returns a group of many jobs.
func fleetOf(jobs int) operator.GroupStatus {
	st := operator.GroupStatus{At: time.Now(), Namespace: "n", Group: "g", Leader: operator.LeaderStatus{Instance: "a", Term: 1}}
	for i := range jobs {
		st.Jobs = append(st.Jobs, operator.JobSummary{
			Job: "tenant-" + strings.Repeat("x", 40) + string(rune('a'+i%26)), Schedule: "cron 0 3 * * * in Asia/Shanghai", Shards: 64, Revision: 1,
			NextFire: st.At.Add(time.Hour), LastFire: st.At.Add(-time.Hour),
		})
	}
	for i := range jobs / 2 {
		st.Jobs[i].Failing = []int{1, 2, 3}
	}
	return st
}

func TestFleet_OfManyJobsIsSmall(t *testing.T) {
	c, err := New(&operator.Operator{}, Options{Authorize: func(*http.Request) (User, error) { return User{"lee", Admin}, nil }})
	require.NoError(t, err)
	c.feed.status = fleetOf(10_000)
	c.feed.failed = time.Now().Add(time.Hour) // so that no watch begins
	w := httptest.NewRecorder()
	c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, http.StatusOK, w.Code)
	assert.Less(t, w.Body.Len(), 200<<10)
	assert.Contains(t, w.Body.String(), "1 to 60 of 10000")
	assert.Contains(t, w.Body.String(), "and 4980 more")
}

func BenchmarkFleet(b *testing.B) {
	c, _ := New(&operator.Operator{}, Options{Authorize: func(*http.Request) (User, error) { return User{"lee", Admin}, nil }})
	c.feed.status = fleetOf(10_000)
	c.feed.failed = time.Now().Add(time.Hour)
	for b.Loop() {
		c.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	}
}

// jobOf returns a job of many shards, of which no two neighbours are alike.
func jobOf(shards int) *operator.Status {
	st := &operator.Status{Job: "big", Schedule: "cron 0 3 * * * in Asia/Shanghai", Shards: shards, NextFire: time.Now().Add(time.Hour)}
	members := make([]operator.MemberStatus, 20)
	for i := range members {
		members[i] = operator.MemberStatus{Instance: "instance-" + strings.Repeat("x", 20) + string(rune('a'+i)), Alive: true, Offers: true}
	}
	for i := range shards {
		m := &members[i%len(members)]
		m.Shards = append(m.Shards, i)
		st.PerShard = append(st.PerShard, operator.ShardStatus{Shard: i, Owner: m.Instance, Attempt: 1 + i%3, LastFire: time.Now().Add(-time.Hour), Running: i%2 == 0})
		st.Failing = append(st.Failing, i)
	}
	st.Members = members
	for i := range 100 {
		st.Failures = append(st.Failures, operator.Failure{
			Runs: operator.Runs{Shards: []int{7 * i}, Fire: time.Now().Add(-time.Hour), Attempt: 1}, Error: strings.Repeat("dial tcp: i/o timeout ", 20), At: time.Now(),
		})
	}
	return st
}

// withBigJob returns a console that knows the state of a job of 10,000 shards.
func withBigJob() *Console {
	c, _ := New(&operator.Operator{}, Options{Acts: true, Authorize: func(*http.Request) (User, error) { return User{"lee", Admin}, nil }})
	c.feed.status = fleetOf(1)
	c.feed.failed = time.Now().Add(time.Hour)
	done := make(chan struct{})
	close(done)
	c.statuses.entries["big"] = &entry[*operator.Status]{done: done, until: time.Now().Add(time.Hour), value: jobOf(10_000)}
	return c
}

func TestJob_OfManyShardsIsSmall(t *testing.T) {
	for _, path := range []string{"/jobs/big", "/jobs/big/grid"} {
		w := httptest.NewRecorder()
		withBigJob().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		require.Equal(t, http.StatusOK, w.Code, path)
		assert.Less(t, w.Body.Len(), 200<<10, path)
	}
}

func BenchmarkJob(b *testing.B) {
	c := withBigJob()
	for b.Loop() {
		c.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/jobs/big", nil))
	}
}

// listCounter counts the lists of a registry.
type listCounter struct {
	registry.Registry
	lists atomic.Int64
}

func (c *listCounter) List(ctx context.Context, dir registry.Key, o registry.ReadOptions) (registry.Listing, error) {
	c.lists.Add(1)
	return c.Registry.List(ctx, dir, o)
}

// A diagnosis reads the whole store, and is kept for all viewers, of the page and of the HTTP API.
func TestDoctor_ReadsTheStoreOnceInTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := &listCounter{Registry: memory.New().Client("web")}
		op, err := operator.New(reg, "billing", "")
		require.NoError(t, err)
		c, err := New(op, Options{Authorize: func(*http.Request) (User, error) { return User{"lee", Look}, nil }})
		require.NoError(t, err)
		get := func(path string) int64 {
			before := reg.lists.Load()
			w := httptest.NewRecorder()
			c.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			require.Equal(t, http.StatusOK, w.Code, w.Body)
			return reg.lists.Load() - before
		}
		get("/instances") // opens the watches
		first := get("/doctor")
		require.NotZero(t, first)
		for range 10 {
			time.Sleep(900 * time.Millisecond)
			assert.Zero(t, get("/doctor"))
			assert.Zero(t, get("/api/v1/diagnosis"))
		}
		time.Sleep(1100 * time.Millisecond)
		assert.Equal(t, first, get("/api/v1/diagnosis"))
		assert.Zero(t, get("/doctor"))
		c.Close()
	})
}

// away is a history whose database is down.
type away struct{ history.Reader }

func (away) RunsOfFire(context.Context, string, time.Time) ([]history.Run, error) {
	return nil, errors.New("the database is down")
}

func TestExplanation_WithoutTheHistoryIsByTheRecords(t *testing.T) {
	onFleet(t, func(k *kit) {
		k.fleet.Sleep(2 * time.Minute)
		k.history = away{k.history}
		k.console = k.newConsole(Options{})
		defer k.console.Close()
		assert.Contains(t, k.page("/jobs/settle/explain?at=2000-01-01T00:01:00Z"), "only the run history has its outcome")
	})
}
