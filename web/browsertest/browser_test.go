package browsertest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/testserver/provision"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
)

// browserTimeout bounds each step of a browser, on a busy machine too.
const browserTimeout = time.Minute

// browser is the process that all tests share. Each tab has cookies of its own.
var browser = sync.OnceValues(startBrowser)

// stopBrowser ends the process, if it was started.
var stopBrowser = func() {}

func startBrowser() (context.Context, error) {
	found, err := provision.Chromium(context.Background(), os.Stderr)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "rota-browser-")
	if err != nil {
		return nil, err
	}
	env := found.Env
	if found.Fonts != "" {
		file := filepath.Join(dir, "fonts.conf")
		if err := os.WriteFile(file, []byte(fmt.Sprintf(fontsConfig, found.Fonts, filepath.Join(dir, "fonts"))), 0o600); err != nil {
			return nil, err
		}
		env = append(env, "FONTCONFIG_FILE="+file)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(found.Path), chromedp.NoInheritEnv, chromedp.Env(env...), chromedp.UserDataDir(filepath.Join(dir, "profile")),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.WSURLReadTimeout(browserTimeout))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium has none for root; it shows only pages of these tests
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeTab := chromedp.NewContext(allocator)
	stopBrowser = func() {
		closeTab()
		stop()
		_ = os.RemoveAll(dir)
	}
	return ctx, chromedp.Do(ctx)
}

// fontsConfig makes pages look alike on each machine.
const fontsConfig = `<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
<dir>%s</dir><cachedir>%s</cachedir>
<alias><family>sans-serif</family><prefer><family>Liberation Sans</family><family>DejaVu Sans</family></prefer></alias>
<alias><family>system-ui</family><prefer><family>Liberation Sans</family><family>DejaVu Sans</family></prefer></alias>
<alias><family>monospace</family><prefer><family>Liberation Mono</family><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
`

func TestMain(m *testing.M) {
	if setting := os.Getenv(memberVariable); setting != "" {
		fmt.Fprintln(os.Stderr, runMember(setting))
		os.Exit(1)
	}
	servertest.Main(m)
	stopBrowser()
}

// look is how a viewer looks at a page. The zero value is a light page on a desk, with scripts.
type look struct {
	phone     bool
	dark      bool
	noScripts bool
}

// String returns the name of a subtest.
func (l look) String() string {
	var parts []string
	for _, p := range []struct {
		is   bool
		name string
	}{{l.phone, "phone"}, {l.dark, "dark"}, {l.noScripts, "without scripts"}} {
		if p.is {
			parts = append(parts, p.name)
		}
	}
	if len(parts) == 0 {
		return "desk"
	}
	return strings.Join(parts, ", ")
}

// phoneWidth is that of common phones, in CSS pixels.
const phoneWidth = 390

func (l look) size() (width, height int64) {
	if l.phone {
		return phoneWidth, 844
	}
	return 1280, 900
}

// tab is a tab of the browser.
type tab struct {
	t     testing.TB
	ctx   context.Context
	look  look
	close func()

	mu       sync.Mutex
	home     string        // the origin of the first page
	status   int64         // of the latest page
	loaded   chan struct{} // closed when the next page has been loaded
	reports  []string      // what the browser has reported
	requests []string      // methods and addresses
}

// openTab opens a tab. The test fails if the browser has reported anything when it ends, unless the test has taken the reports. A test
// mounts its console before, so that the tab ends first: a browser reports that a stream is cut.
func openTab(t testing.TB, l look) *tab {
	t.Helper()
	b := newTab(t, l)
	t.Cleanup(func() {
		if reports := b.takeReports(); len(reports) > 0 {
			t.Errorf("the browser reports:\n%s", strings.Join(reports, "\n"))
		}
	})
	return b
}

// newTab is openTab for a test that causes reports.
func newTab(t testing.TB, l look) *tab {
	t.Helper()
	shared, err := browser()
	require.NoError(t, err)
	return newTabIn(t, l, shared, chromedp.WithNewBrowserContext())
}

// open opens another tab beside b, with the same cookies and storage.
func (b *tab) open() *tab {
	b.t.Helper()
	return newTabIn(b.t, b.look, b.ctx)
}

func newTabIn(t testing.TB, l look, ctx context.Context, options ...chromedp.ContextOption) *tab {
	t.Helper()
	b := &tab{t: t, look: l, loaded: make(chan struct{})}
	b.ctx, b.close = chromedp.NewContext(ctx, append(options, chromedp.WithListener(b.observe))...)
	t.Cleanup(b.close)
	require.NoError(t, chromedp.Do(b.ctx)) // without a time-out, which would end the tab
	width, height := l.size()
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	call(b, audits.Enable, cdp.Empty{})
	call(b, log.Enable, cdp.Empty{})
	call(b, network.Enable, network.EnableParams{})
	call(b, page.Enable, page.EnableParams{})
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: l.noScripts})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: l.phone})
	return b
}

// subtest runs a test that uses the tab and fails for what the browser reports meanwhile.
func (b *tab) subtest(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	outer := b.t
	defer func() { b.t = outer }()
	t.Run(name, func(t *testing.T) {
		b.t = t
		b.takeReports()
		f(t)
		if reports := b.takeReports(); len(reports) > 0 {
			t.Errorf("the browser reports:\n%s", strings.Join(reports, "\n"))
		}
	})
}

// observe is called in order for each event of the tab.
func (b *tab) observe(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	report := func(format string, args ...any) { b.reports = append(b.reports, fmt.Sprintf(format, args...)) }
	switch e := event.(type) {
	case *audits.EventIssueAdded:
		if p := e.Issue.Details.ContentSecurityPolicyIssueDetails; p != nil {
			report("content security policy: %s refuses %q: %s", p.ViolatedDirective, p.BlockedURL, p.ContentSecurityPolicyViolationType)
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			report("log: %s (%s)", e.Entry.Text, e.Entry.URL)
		}
	case *runtime.EventExceptionThrown:
		report("script: %v", &chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails})
	case *page.EventJavascriptDialogOpening:
		report("dialog: %s", e.Message)
		go func() { // commands wait for events to be observed
			_, _ = chromedp.Call(b.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
		}()
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.Method+" "+e.Request.URL)
		if u, err := url.Parse(e.Request.URL); b.home != "" && (err != nil || u.Scheme != "data" && u.Scheme+"://"+u.Host != b.home) {
			report("request to elsewhere: %s", e.Request.URL)
		}
	case *network.EventResponseReceived:
		if e.Type == network.ResourceTypeDocument {
			b.status = e.Response.Status
		}
	case *page.EventLoadEventFired:
		close(b.loaded)
		b.loaded = make(chan struct{})
	}
}

// takeReports returns what the browser has reported since the last call.
func (b *tab) takeReports() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	reports := b.reports
	b.reports = nil
	return reports
}

// takeRequests returns the requests since the last call.
func (b *tab) takeRequests() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	requests := b.requests
	b.requests = nil
	return requests
}

// visit loads a page and returns its status.
func (b *tab) visit(address string) int64 {
	b.t.Helper()
	u, err := url.Parse(address)
	require.NoError(b.t, err)
	b.mu.Lock()
	if b.home == "" {
		b.home = u.Scheme + "://" + u.Host
	}
	b.mu.Unlock()
	return b.follow(func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, page.Navigate, page.NavigateParams{URL: address})
		return chromedp.Void{}, err
	})
}

// follow does what loads another page, waits for that, and returns its status.
func (b *tab) follow(steps ...chromedp.Action[chromedp.Void]) int64 {
	b.t.Helper()
	b.mu.Lock()
	loaded := b.loaded
	b.mu.Unlock()
	b.do(steps...)
	select {
	case <-loaded:
	case <-time.After(browserTimeout):
		b.t.Fatalf("no page was loaded; this one is %s:\n%s", b.location(), b.text("body"))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

// do runs steps.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	run(b, chromedp.Steps(steps...))
}

// location returns the address of the page.
func (b *tab) location() string {
	b.t.Helper()
	return run(b, chromedp.Location())
}

// text returns what a reader sees of an element.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return eval[string](b, `document.querySelector(`+quote(selector)+`)?.innerText ?? ""`)
}

func run[T any](b *tab, a chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, browserTimeout)
	defer cancel()
	v, err := chromedp.Run(ctx, a)
	require.NoError(b.t, err)
	return v
}

// eval evaluates an expression as the debugger does: also in a page whose scripts are disabled, and whatever its policy is.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	return run(b, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// call sends a command of the debugger.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	return run(b, func(ctx context.Context, t *chromedp.Target) (R, error) { return cdp.Call(ctx, t, command, params) })
}

// insert writes text where the focus is, at once. The page sees the events of an input method.
func insert(text string) chromedp.Action[chromedp.Void] {
	return func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, input.InsertText, input.InsertTextParams{Text: text})
		return chromedp.Void{}, err
	}
}
