package browsertest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// soundPage keeps every rule.
const soundPage = `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Fleet</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="stylesheet" href="style.css"><script src="app.js" defer></script></head>
<body><a class="skip" href="#main">To the content</a><header><nav aria-label="Pages"><a href="two">Two</a></nav></header>
<main id="main" tabindex="-1"><h1>Fleet</h1><p>Ends <time datetime="2026-11-27T03:00:00Z" title="2026-11-27 03:00:00 UTC">in 4h</time>.</p>
<form method="post" action="two"><label>Reason <input name="reason"></label><button>Pause</button></form></main></body></html>`

const soundStyle = `body { margin: 1rem; font: 16px/1.5 sans-serif; background: #fff; color: #222 } a { color: #0645ad }
nav a, button, input { display: inline-block; min-height: 28px; min-width: 28px }
.skip:not(:focus) { position: absolute; left: -999px } :focus-visible { outline: 2px solid #0645ad }
@media (prefers-color-scheme: dark) { body { background: #111; color: #ddd } a { color: #9bf } }`

// serveText serves files below a prefix, with the policy of the console.
func serveText(t *testing.T, files map[string]string) string {
	types := map[string]string{"css": "text/css", "js": "text/javascript"}
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/at/")
		text, ok := files[name]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, suffix, _ := strings.Cut(name, ".")
		contentType := types[suffix]
		if contentType == "" {
			contentType = "text/html; charset=utf-8"
		}
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'")
		_, _ = w.Write([]byte(text))
	}) + "at/"
}

// serve serves a function on a port of its own and returns its address.
func serve(t *testing.T, f http.HandlerFunc) string {
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s.URL + "/"
}

// sabotages are changes of the sound page, each of which a check must notice.
var sabotages = []struct {
	name     string
	old, new string // in the page
	style    string // more style
	script   string // of app.js
	look     look
	check    func(*tab) []string
	want     string
}{
	{name: "an inline style", old: "<h1>", new: `<h1 style="color: red">`, check: (*tab).takeReports, want: "style-src"},
	{name: "an inline script", old: "<h1>", new: `<script>1</script><h1>`, check: (*tab).takeReports, want: "script-src"},
	{name: "an inline handler", old: "<h1>", new: `<img src="none" alt="" onerror="alert(1)"><h1>`, check: (*tab).takeReports, want: "script-src"},
	{name: "a picture from elsewhere", old: "<h1>", new: `<img src="https://localhost:1/a.png" alt=""><h1>`, check: (*tab).takeReports, want: "img-src"},
	{name: "a script that fails", script: `null.x`, check: (*tab).takeReports, want: "script: "},
	{name: "a script from elsewhere", script: `fetch("http://127.0.0.1:1/")`, check: (*tab).takeReports, want: "connect-src"},
	{name: "a file that does not exist", old: `href="style.css"`, new: `href="styles.css"`, check: (*tab).takeReports, want: "styles.css"},
	{name: "a dialog", script: `alert(1)`, check: (*tab).takeReports, want: "dialog: 1"},

	{name: "a wide table", old: "<h1>", new: `<table class="wide"><tr><td>a</td></tr></table><h1>`, style: ".wide { width: 700px }", look: look{phone: true}, check: checkWidth, want: "table.wide"},
	{name: "a long line", old: "<h1>", new: "<pre>" + strings.Repeat("archive", 20) + "</pre><h1>", look: look{phone: true}, check: checkWidth, want: "pre "},
	{name: "a long name", old: "<h1>", new: "<h1>" + strings.Repeat("archive", 20), look: look{phone: true}, check: checkWidth, want: "390"},

	{name: "a field without a label", old: "<label>Reason <input name=\"reason\"></label>", new: `<input name="reason">`, check: checkAxe, want: "label"},
	{name: "pale text", style: "p { color: #bbb }", check: checkAxe, want: "color-contrast"},
	{name: "pale text in the dark", style: "@media (prefers-color-scheme: dark) { p { color: #444 } }", look: look{dark: true}, check: checkAxe, want: "color-contrast"},
	{name: "headings out of order", old: "<form", new: "<h3>Act</h3><form", check: checkAxe, want: "heading-order"},
	{name: "no language", old: ` lang="en"`, check: checkAxe, want: "html-has-lang"},

	{name: "a button that the keyboard skips", old: "<button>", new: `<button tabindex="1">`, check: checkKeyboard, want: "before it"},
	{name: "a focus that does not show", style: ":focus-visible { outline: none }", check: checkKeyboard, want: "does not show"},
	{name: "a focus below a cover", old: "<h1>", new: `<div class="cover"></div><h1>`, style: ".cover { position: fixed; inset: 0; background: #fff }", check: checkKeyboard, want: "out of sight"},
	{
		name: "a trap", script: `document.querySelector("input").addEventListener("keydown", e => { if (e.key === "Tab") e.preventDefault() })`,
		check: checkKeyboard, want: "before it",
	},
	{name: "no link over the navigation", old: `<a class="skip" href="#main">To the content</a>`, check: checkSkipLink, want: "does not lead over"},
	{name: "a link over the navigation to nowhere", old: `href="#main"`, new: `href="#content"`, check: checkSkipLink, want: "does not lead into"},

	{name: "an address that ignores the prefix", old: `href="two"`, new: `href="/two"`, check: checkPage, want: "prefix"},
	{name: "an instant without a title", old: ` title="2026-11-27 03:00:00 UTC"`, check: checkPage, want: "title"},
	{name: "a heading without scope", old: "<form", new: "<table><tr><th>a</th></tr></table><form", check: checkPage, want: "scope"},
	{name: "a link that is a button", old: `href="two"`, new: `href="#"`, check: checkPage, want: "button"},
}

func TestChecks_NoticeEachFault(t *testing.T) {
	for _, s := range sabotages {
		t.Run(s.name, func(t *testing.T) {
			require.Contains(t, soundPage, s.old)
			at := serveText(t, map[string]string{"": strings.Replace(soundPage, s.old, s.new, 1), "style.css": soundStyle + s.style, "app.js": s.script})
			b := newTab(t, s.look)
			require.EqualValues(t, http.StatusOK, b.visit(at))
			assert.Contains(t, faultsOf(b, s.check), s.want)
		})
	}
}

func TestChecks_AcceptASoundPage(t *testing.T) {
	at := serveText(t, map[string]string{"": soundPage, "two": soundPage, "style.css": soundStyle, "app.js": "document.title"})
	for _, l := range []look{{}, {phone: true}, {dark: true}, {noScripts: true}} {
		t.Run(l.String(), func(t *testing.T) {
			b := openTab(t, l)
			require.EqualValues(t, http.StatusOK, b.visit(at))
			checks := []func(*tab) []string{checkWidth, checkPage, checkKeyboard}
			if !l.noScripts {
				checks = append(checks, checkAxe)
			}
			assert.Empty(t, faultsOf(b, checks...))
			b.visit(at)
			assert.Empty(t, faultsOf(b, checkSkipLink))
			if want := 2 * 3; !l.noScripts {
				assert.Len(t, b.takeRequests(), want, "a page, a style and a script for each visit")
			}
		})
	}
}
