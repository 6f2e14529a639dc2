package browsertest

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/web"
)

// pages are the pages of the console. Each pattern that links lead to has a row, and each row is tested in each look.
var pages = []struct {
	pattern string
	path    string   // below the prefix
	facts   []string // what a reader must find
	history []string // what a reader must find too if there is a history
}{
	{"", "", []string{"billing/default", "settle", "tenants", "failing", "invoices", "paused", oddJob}, nil},
	{"jobs/{}", "jobs/tenants", []string{"tenants", "polls each tenant", "web-1", "HTTP 503 from <script>", "42"}, nil},
	{"jobs/{}", "jobs/" + url.PathEscape(oddJob), []string{oddJob}, nil},
	{"jobs/{}", "jobs/rebuild", []string{"paused", "kim", `move of the <i>archive</i> & "more"`}, nil},
	{"jobs/{}/explain", "jobs/invoices/explain", []string{"invoices", "gpu=yes"}, nil},
	{"jobs/{}/grid", "jobs/tenants/grid", []string{"tenants"}, nil},
	{"jobs/{}/fires/{}", "jobs/tenants/fires/~1", []string{"tenants", "41"}, []string{"web-2", "61 of 64 ok, 2 failed"}},
	{"jobs/{}/fires/{}/shards/{}", "jobs/tenants/fires/~1/shards/7", []string{"tenants", "Shard 7"}, []string{"Attempt 1 on web-", "HTTP 503 from <script>"}},
	{"instances", "instances", []string{"web-1", "web-2", "web-3", "host-3", "zone=b"}, nil},
	{"timeline", "timeline", []string{"web-1 joined", "leads", "trigger", "kim"}, nil},
	{"acts", "acts", []string{"kim"}, nil},
	{"doctor", "doctor", []string{"gpu=yes"}, nil},
	{"definitions", "definitions", []string{"Definitions", "acme/reminder", "define a job"}, nil},
	{"jobs/{}", "jobs/acme%2Freminder", []string{"Defined as data", "creation", "revision", "by kim", "deletion", oddJob}, nil},
	{"jobs/{}/act/{}", "jobs/acme%2Freminder/act/define", []string{"Keep parameters", "Only change revision", "Schedule"}, nil},
	{"jobs/{}/act/{}", "jobs/acme%2Freminder/act/delete", []string{"This will delete acme/reminder", "finish, unless you cancel them"}, nil},
	{"act/{}", "act/define", []string{"Name (required)", "Schedule (required)", "Only create"}, nil},
	{"kinds", "kinds", []string{"Kinds"}, nil},
	{"jobs/{}/act/{}", "jobs/settle/act/pause", []string{"settle", "pause"}, nil},
	{"instances/{}/act/{}", "instances/web-1/act/drain", []string{"web-1", "drain"}, nil},
	{"act/{}", "act/pause", []string{"pause"}, nil},
}

// patternOf returns the pattern of a path below the prefix.
func patternOf(path string) string {
	parts := strings.Split(path, "/")
	for i := range parts {
		if i > 0 && slices.Contains([]string{"jobs", "fires", "shards", "instances", "act"}, parts[i-1]) {
			parts[i] = "{}"
		}
	}
	return strings.Join(parts, "/")
}

func TestPages(t *testing.T) {
	f := startFleet(t)
	at := f.mount(t, web.Admin)
	for _, l := range []look{{}, {dark: true}, {phone: true}, {noScripts: true}, {phone: true, noScripts: true}} {
		t.Run(l.String(), func(t *testing.T) {
			b := openTab(t, l)
			for _, p := range pages {
				b.subtest(t, "page "+p.path, func(t *testing.T) {
					require.EqualValues(t, http.StatusOK, b.visit(at+p.path))
					text := b.text("body")
					facts := p.facts
					if f.history != nil {
						facts = slices.Concat(facts, p.history)
					}
					for _, fact := range facts {
						assert.Contains(t, text, fact)
					}
					assert.Empty(t, faultsOf(b, checkPage, checkWidth))
					if l.noScripts {
						assert.Empty(t, faultsOf(b, checkKeyboard))
						b.visit(at + p.path)
						assert.Empty(t, faultsOf(b, checkSkipLink))
					} else {
						assert.Empty(t, faultsOf(b, checkAxe))
					}
				})
			}
		})
	}
}

// Scripts add nothing that a reader needs: the text is the same without them.
func TestPages_HaveTheSameTextWithoutScripts(t *testing.T) {
	at := startFleet(t).mount(t, web.Admin)
	with, without := openTab(t, look{}), openTab(t, look{noScripts: true})
	for _, p := range pages {
		t.Run(p.path, func(t *testing.T) {
			texts := []string{}
			for _, b := range []*tab{with, without} {
				require.EqualValues(t, http.StatusOK, b.visit(at+p.path))
				texts = append(texts, eval[string](b, `[...document.querySelectorAll("main h1, main h2, main th[scope=row], main label, main a, main button")].map(e => (e.innerText ?? e.textContent).replace(/\d+m?s ago/, "ago")).join("\n")`))
			}
			assert.Equal(t, texts[0], texts[1])
			assert.NotEmpty(t, texts[0])
		})
	}
}

func TestPages_HaveTitlesOfTheirOwn(t *testing.T) {
	at := startFleet(t).mount(t, web.Admin)
	b := openTab(t, look{})
	seen := map[string]string{}
	for _, p := range pages {
		require.EqualValues(t, http.StatusOK, b.visit(at+p.path))
		title := eval[string](b, "document.title")
		assert.Empty(t, seen[title], "%q and %q have the title %q", seen[title], p.path, title)
		seen[title] = p.path
	}
}

// Links lead from the page of the fleet to every other page, and to none that is missing here.
func TestPages_AreReachedByLinks(t *testing.T) {
	at := startFleet(t).mount(t, web.Admin)
	b := openTab(t, look{noScripts: true})
	visited, patterns := map[string]int{}, map[string]bool{}
	for todo := []string{at}; len(todo) > 0; {
		address := todo[0]
		todo = todo[1:]
		u, err := url.Parse(address)
		require.NoError(t, err)
		path := strings.TrimPrefix(u.EscapedPath(), prefix)
		pattern := patternOf(path)
		key := pattern
		if strings.Contains(pattern, "/act/") { // each verb once
			key = pattern + path[strings.LastIndex(path, "/"):]
		}
		if visited[key]++; visited[key] > 3 {
			continue
		}
		require.True(t, strings.HasPrefix(u.Path, prefix), "the link %s leaves the console", address)
		assert.EqualValues(t, http.StatusOK, b.visit(address), address)
		assert.Empty(t, faultsOf(b, checkPage), address)
		patterns[pattern] = true
		for _, link := range eval[[]string](b, `[...document.querySelectorAll("a[href]")].map(a => new URL(a.getAttribute("href"), location.href).href.split("#")[0])`) {
			if !slices.Contains(todo, link) && link != address {
				todo = append(todo, link)
			}
		}
	}
	var listed []string
	for _, p := range pages {
		listed = append(listed, p.pattern)
		assert.True(t, patterns[p.pattern], "no link leads to a page like %q", p.path)
	}
	for pattern := range patterns {
		assert.Contains(t, listed, pattern, "no row of pages")
	}
}

// A role that may not see parameters, errors and outputs finds none of them in any byte of a page.
func TestPages_HideSecretsFromLook(t *testing.T) {
	f := startFleet(t)
	for role, want := range map[web.Role]bool{web.Look: false, web.Reveal: true} {
		t.Run(role.String(), func(t *testing.T) {
			at := f.mount(t, role)
			found := false
			for _, p := range pages {
				res, err := http.Get(at + p.path)
				require.NoError(t, err)
				body := readAll(t, res)
				found = found || strings.Contains(body, secret)
				assert.False(t, !want && strings.Contains(body, secret), "%s shows a secret", p.path)
			}
			assert.Equal(t, want, found)
		})
	}
}
