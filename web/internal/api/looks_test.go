package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/web/internal/role"
)

// samples are requests for each look, below those of a route: more than one if its answer has several forms.
var samples = map[string][]string{
	"/jobs":              {"/jobs", "/jobs?glob=b*&state=failing"},
	"/jobs/{job}":        {"/jobs/settle", "/jobs/broken"},
	"/jobs/{job}/shards": {"/jobs/settle/shards", "/jobs/broken/shards?shard=1&owner=web-1"},
	"/jobs/{job}/fires":  {"/jobs/settle/fires", "/jobs/broken/fires?since=7d&failed=true&limit=5"},
	"/jobs/{job}/runs": {
		"/jobs/broken/runs", "/jobs/broken/runs?failed=1&limit=1", "/jobs/broken/runs?slowest=true", "/jobs/settle/runs",
		"/jobs/broken/runs?fire=2000-01-01T00:01:00Z&shard=0-1",
	},
	"/jobs/{job}/logs": {
		"/jobs/broken/logs", "/jobs/settle/logs", "/jobs/broken/logs?fire=2000-01-01T00:01:00Z&shard=1", "/jobs/broken/logs?since=7d&limit=2",
	},
	"/jobs/{job}/explain": {"/jobs/settle/explain", "/jobs/broken/explain", "/jobs/broken/explain?shard=1&at=2000-01-01T00:01:00Z"},
	"/jobs/{job}/next":    {"/jobs/settle/next?count=3"},
	"/definitions":        {"/definitions", "/definitions?kind=report&prefix=set&limit=1&after=x"},
	"/definitions/{job}":  {"/definitions/settle-acme"},
	"/kinds":              {"/kinds"},
	"/instances":          {"/instances"},
	"/pools":              {"/pools"},
	"/decisions":          {"/decisions", "/decisions?job=settle"},
	"/acts":               {"/acts", "/acts?job=settle"},
	"/check":              {"/check?max_late=10m"},
	"/diagnosis":          {"/diagnosis"},
	"/moves":              {"/moves", "/moves?without=web-1&with=2&label=zone=b", "/moves?job=settle"},
}

// decode decodes a body, and returns a pointer to the value. Each field of the body is one of the type.
func decode(t *testing.T, body string, typ reflect.Type) any {
	t.Helper()
	v := reflect.New(typ)
	d := json.NewDecoder(strings.NewReader(body))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(v.Interface()), body)
	return v.Interface()
}

// The answer of a look is what view.WriteJSON writes of the view of the command, byte by byte, and openapi.json describes it.
func TestLooks_AreTheJSONOfTheViews(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		require.NoError(t, f.op.As("kim", "quarter end").Pause(t.Context(), "settle"))
		require.NoError(t, f.op.As("kim", "").Disable(t.Context(), operator.Scope{Hosts: []string{"n-9"}}))
		require.NoError(t, f.op.SetPool(t.Context(), "db", 8))
		f.define("settle-acme")
		waitForChange()
		schemas := compileAnswers(t)
		routes := routesOf(verbs)
		for i := range routes {
			rt := &routes[i]
			if rt.answer == nil || rt.verb != nil {
				continue
			}
			require.NotEmpty(t, samples[rt.path], "%s has no sample", rt.path)
			for _, path := range samples[rt.path] {
				r := f.get(path)
				body := read(t, r)
				require.Equal(t, http.StatusOK, r.StatusCode, "%s: %s", path, body)
				assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
				v := reflect.ValueOf(decode(t, body, rt.answer)).Elem().Interface()
				var again bytes.Buffer
				require.NoError(t, view.WriteJSON(&again, v))
				assert.Equal(t, again.String(), body, path)
				schemas.validate(t, rt, body)
			}
		}
	})
}

// waitForChange waits until the leader and the watches have read the latest act.
func waitForChange() { time.Sleep(3 * time.Second) }

func TestLooks_HideErrorsAndOutputsBelowReveal(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		var revealed []string
		for _, paths := range samples {
			for _, path := range paths {
				looked, all := read(t, f.get(path, levelHeader, strconv.Itoa(int(role.Look)))), read(t, f.get(path, levelHeader, strconv.Itoa(int(role.Reveal))))
				assert.NotContains(t, looked, secret, path)
				if strings.Contains(path, "/logs") { // which needs the role for the whole route
					continue
				}
				if strings.Contains(all, secret) {
					revealed = append(revealed, path)
					assert.Contains(t, looked, view.Concealed, path)
				}
			}
		}
		assert.ElementsMatch(t, []string{
			"/jobs", "/jobs?glob=b*&state=failing", "/jobs/broken", "/jobs/broken/shards?shard=1&owner=web-1", "/check?max_late=10m",
			"/jobs/broken/explain", "/jobs/broken/explain?shard=1&at=2000-01-01T00:01:00Z",
			"/jobs/broken/runs", "/jobs/broken/runs?failed=1&limit=1", "/jobs/broken/runs?slowest=true", "/jobs/broken/runs?fire=2000-01-01T00:01:00Z&shard=0-1",
		}, revealed)
		assert.NotContains(t, read(t, f.get("/jobs/settle")), secret, "no look has a parameter")
	})
}

func TestLooks_HaveAnETagThatIgnoresTheInstantOfReading(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		first := f.get("/jobs/settle")
		tag := first.Header.Get("ETag")
		require.Regexp(t, `^W/"[0-9a-f]{32}"$`, tag)
		time.Sleep(time.Second)
		second := f.get("/jobs/settle")
		assert.NotEqual(t, read(t, first), read(t, second), "the instant differs")
		assert.Equal(t, tag, second.Header.Get("ETag"))
		same := f.get("/jobs/settle", "If-None-Match", `"x", `+tag)
		assert.Equal(t, http.StatusNotModified, same.StatusCode)
		assert.Empty(t, read(t, same))

		require.NoError(t, f.op.Pause(t.Context(), "settle"))
		changed := f.get("/jobs/settle", "If-None-Match", tag)
		assert.Equal(t, http.StatusOK, changed.StatusCode)
		assert.NotEqual(t, tag, changed.Header.Get("ETag"))
		assert.NotEqual(t, f.get("/jobs").Header.Get("ETag"), f.get("/jobs", levelHeader, "1").Header.Get("ETag"), "a concealed answer is another one")
	})
}

func TestLooks_ArePagesOfLongLists(t *testing.T) {
	op, err := operator.New(memory.New().Client("console"), "billing", "")
	require.NoError(t, err)
	st := operator.GroupStatus{At: time.Now(), Namespace: "billing", Group: "default", Leader: operator.LeaderStatus{Instance: "web-1"}}
	for n := range 2500 {
		st.Jobs = append(st.Jobs, operator.JobSummary{Job: fmt.Sprintf("job-%05d", n), Shards: 1})
	}
	h := New(Config{Op: op, Authorize: authorize, Snapshot: func(context.Context) (operator.GroupStatus, error) { return st, nil }})
	list := func(path string) ([]string, http.Header) {
		r := serve(h, request(http.MethodGet, path, ""))
		var v view.Jobs
		require.NoError(t, json.Unmarshal([]byte(read(t, r)), &v))
		return v.Names(), r.Header
	}
	names, header := list("/jobs")
	assert.Len(t, names, 100)
	assert.Equal(t, "2500", header.Get("Total-Count"))
	assert.Equal(t, `<?page=2>; rel="next"`, header.Get("Link"))
	all := map[string]bool{}
	for next := "?limit=1000&glob=job-*"; next != ""; {
		names, header = list("/jobs" + next)
		for _, name := range names {
			all[name] = true
		}
		next = strings.TrimSuffix(strings.TrimPrefix(header.Get("Link"), "<"), `>; rel="next"`)
	}
	assert.Len(t, all, 2500)
	names, header = list("/jobs?page=26")
	assert.Empty(t, names)
	assert.Empty(t, header.Get("Link"))
}

func TestProblems(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		for _, c := range []struct {
			method, path, body string
			status             int
			kind, field        string
		}{
			{"GET", "/", "", 404, "not-found", ""},
			{"GET", "/jobs/", "", 404, "not-found", ""},
			{"GET", "//jobs", "", 404, "not-found", ""},
			{"GET", "/jobs/../jobs", "", 404, "not-found", ""},
			{"POST", "/jobs/settle/explode", "{}", 404, "not-found", ""},
			{"GET", "/jobs/settle/trigger", "", 405, "method-not-allowed", ""},
			{"DELETE", "/jobs/settle", "", 405, "method-not-allowed", ""},
			{"OPTIONS", "/jobs", "", 405, "method-not-allowed", ""},
			{"GET", "/jobs/nope", "", 404, "unknown-job", ""},
			{"GET", "/jobs/nope/explain", "", 404, "unknown-job", ""},
			{"GET", "/jobs/nope/runs", "", 404, "unknown-job", ""},
			{"GET", "/jobs/%2e%2e", "", 404, "unknown-job", ""},
			{"GET", "/acts?job=nope", "", 404, "unknown-job", ""},
			{"GET", "/moves?job=nope", "", 404, "unknown-job", ""},
			{"GET", "/jobs?globb=x", "", 400, "unknown-field", "globb"},
			{"GET", "/jobs?glob=%5B", "", 400, "invalid-argument", "glob"},
			{"GET", "/jobs?state=sad", "", 400, "invalid-argument", "state"},
			{"GET", "/jobs?limit=1001", "", 400, "invalid-argument", "limit"},
			{"GET", "/jobs?page=0", "", 400, "invalid-argument", "page"},
			{"GET", "/jobs?page=1&page=2", "", 400, "invalid-argument", "page"},
			{"GET", "/jobs?%zz", "", 400, "bad-request", ""},
			{"GET", "/jobs?glob=" + strings.Repeat("x", maxQuery), "", 400, "bad-request", ""},
			{"GET", "/jobs/settle/shards?shard=9", "", 400, "invalid-argument", ""},
			{"GET", "/jobs/settle/shards?shard=x", "", 400, "invalid-argument", "shard"},
			{"GET", "/jobs/settle/explain?shard=9", "", 400, "invalid-argument", ""},
			{"GET", "/jobs/settle/explain?at=noon", "", 400, "invalid-argument", "at"},
			{"GET", "/jobs/settle/fires?failed=maybe", "", 400, "invalid-argument", "failed"},
			{"GET", "/jobs/settle/fires?since=-1h", "", 400, "invalid-argument", "since"},
			{"GET", "/jobs/settle/runs?failed=1&slowest=1", "", 400, "invalid-argument", ""},
			{"GET", "/jobs/settle/runs?trigger=1", "", 400, "invalid-argument", "trigger"},
			{"GET", "/jobs/settle/runs?slowest=1&page=101", "", 400, "invalid-argument", "page"},
			{"GET", "/moves?label=zone=a", "", 400, "invalid-argument", "label"},
			{"GET", "/moves?with=1&label=zone", "", 400, "invalid-argument", "label"},
			{"GET", "/moves?without=nobody", "", 400, "invalid-argument", ""},
			{"GET", "/watch?state=late", "", 400, "unknown-field", "state"},
			{"POST", "/jobs/settle/trigger?wait=1", "{}", 400, "unknown-field", "wait"},
			{"POST", "/jobs/settle/trigger", "", 400, "bad-request", ""},
			{"POST", "/jobs/settle/trigger", "[]", 400, "bad-request", ""},
			{"POST", "/jobs/settle/trigger", "{", 400, "bad-request", ""},
			{"POST", "/jobs/settle/trigger", `{"param":`, 400, "bad-request", ""},
			{"POST", "/jobs/settle/trigger", "{} {}", 400, "bad-request", ""},
			{"POST", "/jobs/settle/trigger", `{"parm":"x"}`, 400, "unknown-field", "parm"},
			{"POST", "/jobs/settle/trigger", `{"Param":"x"}`, 400, "unknown-field", "Param"},
			{"POST", "/jobs/settle/trigger", `{"job":"broken"}`, 400, "unknown-field", "job"},
			{"POST", "/jobs/settle/trigger", `{"param":"x","param":"y"}`, 400, "invalid-argument", "param"},
			{"POST", "/jobs/settle/trigger", `{"param":7}`, 400, "invalid-argument", "param"},
			{"POST", "/jobs/settle/trigger", `{"shards":"all"}`, 400, "invalid-argument", "shards"},
			{"POST", "/jobs/settle/trigger", `{"shards":[9]}`, 400, "invalid-argument", ""},
			{"POST", "/jobs/settle/trigger", `{"param":"` + strings.Repeat("x", maxBody) + `"}`, 413, "too-large", ""},
			{"POST", "/jobs/nope/trigger", `{}`, 404, "unknown-job", ""},
			{"POST", "/jobs/broken/retry", `{}`, 400, "invalid-argument", "fire"},
			{"POST", "/jobs/broken/retry", `{"fire":"noon"}`, 400, "invalid-argument", "fire"},
		} {
			r := serve(f.api, request(c.method, c.path, c.body))
			if !assert.Equal(t, c.status, r.StatusCode, "%s %.60s %.40s", c.method, c.path, c.body) {
				continue
			}
			p := problem(t, r)
			assert.Equal(t, []string{c.kind, c.field}, []string{p.Type, p.Field}, "%s %.60s %.40s: %s", c.method, c.path, c.body, p.Detail)
			assert.NotEmpty(t, p.Detail)
			assert.Less(t, len(p.Detail), 500)
			if c.status == 405 {
				assert.NotEmpty(t, r.Header.Get("Allow"))
			}
			for name := range r.Header {
				assert.False(t, strings.HasPrefix(name, "Access-Control-"), "%s: no other site may read or write", name)
			}
		}
	})
}

// The kinds of problems are listed once, and each has a row on the page.
func TestProblems_AreOnThePage(t *testing.T) {
	page := readFile(t, "../../../docs/console/api.md")
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
		assert.Regexp(t, fmt.Sprintf("(?m)^\\| %d \\|.*`%s`", k.status, k.name), page)
	}
	assert.Len(t, slices.Compact(slices.Sorted(slices.Values(names))), len(kinds))
}

func TestLooks_WithoutAHistory(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.config.History = nil
		h := New(f.config)
		for _, path := range []string{"/jobs/settle/fires", "/jobs/settle/runs"} {
			assert.Equal(t, "no-history", problem(t, serve(h, request("GET", path, ""))).Type)
		}
		r := serve(h, request("GET", "/jobs/broken/explain?at=2000-01-01T00:01:00Z", ""))
		assert.Equal(t, http.StatusOK, r.StatusCode, "the records answer")
	})
}

func TestLooks_WithoutTheStore(t *testing.T) {
	server := memory.New()
	op, err := operator.New(server.Client("console"), "billing", "")
	require.NoError(t, err)
	h := New(Config{Op: op, Authorize: authorize, Logger: discard, Snapshot: func(context.Context) (operator.GroupStatus, error) {
		return operator.GroupStatus{}, fmt.Errorf("dial 10.0.0.7: %w", context.DeadlineExceeded)
	}})
	r := serve(h, request("GET", "/jobs", "", levelHeader, "1"))
	p := problem(t, r)
	assert.Equal(t, "unavailable", p.Type)
	assert.NotContains(t, p.Detail, "10.0.0.7")
	assert.Equal(t, "5", r.Header.Get("Retry-After"))

	var check view.Check
	require.NoError(t, json.Unmarshal([]byte(read(t, serve(h, request("GET", "/check", "", levelHeader, "1")))), &check))
	assert.Equal(t, "unknown", check.Result, "a monitor reads no problems")
}

// brokenHistory is a database that is down.
type brokenHistory struct{ history.Reader }

var errHistory = errors.New("dial db.internal:5432: refused")

func (brokenHistory) Fires(context.Context, history.FiresQuery) ([]history.Fire, error) {
	return nil, errHistory
}
func (brokenHistory) Last(context.Context, string) ([]history.Run, error) { return nil, errHistory }
func (brokenHistory) RunsOfFire(context.Context, string, time.Time) ([]history.Run, error) {
	return nil, errHistory
}

func TestLooks_WithoutAnAnswerOfTheHistory(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.config.History = brokenHistory{}
		h := New(f.config)
		for _, path := range []string{"/jobs/settle/fires", "/jobs/settle/runs"} {
			p := problem(t, serve(h, request("GET", path, "")))
			assert.Equal(t, "history-unavailable", p.Type)
			assert.NotContains(t, p.Detail, "db.internal")
		}
		r := serve(h, request("GET", "/jobs/broken/explain?at=2000-01-01T00:00:00Z", ""))
		assert.Equal(t, http.StatusOK, r.StatusCode, "the records answer: "+read(t, r))
	})
}

func TestLooks_TakeABoundedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Config{Authorize: authorize, Logger: discard, Snapshot: func(ctx context.Context) (operator.GroupStatus, error) {
			<-ctx.Done()
			return operator.GroupStatus{}, context.Cause(ctx)
		}})
		for _, path := range []string{"/jobs", "/watch"} {
			began := time.Now()
			assert.Equal(t, "unavailable", problem(t, serve(h, request("GET", path, ""))).Type)
			assert.Equal(t, lookTimeout, time.Since(began))
		}
	})
}

func TestLooks_ThatPanic(t *testing.T) {
	h := New(Config{Authorize: authorize, Logger: discard, Snapshot: func(context.Context) (operator.GroupStatus, error) { panic(secret) }})
	p := problem(t, serve(h, request("GET", "/jobs", "")))
	assert.Equal(t, "internal", p.Type)
	assert.NotContains(t, p.Detail, secret)
}

// Below any prefix, links and redirects stay there.
func TestAPI_BelowAPrefix(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		h := http.StripPrefix("/ops/rota/api/v1", f.api)
		assert.Equal(t, 200, serve(h, request("GET", "/ops/rota/api/v1/jobs/settle", "")).StatusCode)
		assert.Equal(t, 404, serve(h, request("GET", "/ops/rota/api/v1", "")).StatusCode)
		assert.Equal(t, 404, serve(h, request("GET", "/ops/rota/api/v1/jobs//settle", "")).StatusCode)
		name := url.PathEscape("a/b c")
		p := problem(t, serve(h, httptestRequest("/ops/rota/api/v1/jobs/"+name)))
		assert.Contains(t, p.Detail, `"a/b c"`, "a job may have such a name")
	})
}

func httptestRequest(target string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.Header.Set(levelHeader, "1")
	return r
}

// The pages of definitions follow each other by the header Link, and have each job once.
func TestDefinitions_LeadFromPageToPage(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		want := []string{}
		for i := range 25 {
			want = append(want, fmt.Sprintf("tenants/%02d", i))
		}
		f.define(want...)
		f.define("other")
		var got []string
		for path := "/definitions?prefix=tenants%2F&kind=report&limit=10"; path != ""; {
			r := f.get(path)
			body := read(t, r)
			require.Equal(t, http.StatusOK, r.StatusCode, body)
			assert.NotContains(t, body, secret, "the parameter")
			v := decode(t, body, reflect.TypeFor[view.Definitions]()).(*view.Definitions)
			assert.LessOrEqual(t, len(v.Definitions), 10)
			got = append(got, v.Names()...)
			path = ""
			if link := r.Header.Get("Link"); link != "" {
				query, found := strings.CutSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
				require.True(t, found, link)
				path = "/definitions" + query
			}
		}
		slices.Sort(got)
		assert.Equal(t, want, got)

		assert.Equal(t, http.StatusOK, f.get("/definitions/"+url.PathEscape("tenants/07")).StatusCode)
		assert.Equal(t, "unknown-job", problem(t, f.get("/definitions/nosuch")).Type)
		assert.Equal(t, "conflict", problem(t, f.get("/definitions/settle")).Type, "it is registered in code")
		p := problem(t, f.get("/definitions?limit=0"))
		assert.Equal(t, []string{"invalid-argument", "limit"}, []string{p.Type, p.Field})
	})
}
