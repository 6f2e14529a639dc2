package browsertest

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/testserver/provision"
)

// quote returns a string as a literal of JavaScript.
func quote(s string) string { return strconv.QuoteToASCII(s) }

// describe is a function of JavaScript that names an element for a message.
const describe = `const describe = e => e.tagName.toLowerCase() + (e.id ? "#" + e.id : "") + (e.getAttribute("class") ? "." + e.getAttribute("class") : "") +
	(e.getAttribute("href") ? "[href=" + e.getAttribute("href") + "]" : "") + (e.name ? "[name=" + e.name + "]" : "") +
	" " + JSON.stringify((e.innerText ?? "").trim().slice(0, 40));`

// checkWidth returns what is wider than the window, if the page has to be scrolled sideways.
func checkWidth(b *tab) []string {
	b.t.Helper()
	return eval[[]string](b, `(() => {`+describe+`
		const root = document.documentElement;
		if (root.scrollWidth <= root.clientWidth) return [];
		const scrolls = e => e && (getComputedStyle(e).overflowX !== "visible" || scrolls(e.parentElement));
		const wide = [...document.body.querySelectorAll("*")].filter(e => !scrolls(e) &&
			(e.getBoundingClientRect().right > root.clientWidth + 1 || e.scrollWidth > e.clientWidth && e.clientWidth > 0));
		return ["the page is " + root.scrollWidth + " px wide, the window " + root.clientWidth, ...wide.slice(0, 5).map(describe)];
	})()`)
}

// axe is the script of axe-core.
var axe = sync.OnceValues(func() (string, error) {
	path, err := provision.Axe(context.Background(), os.Stderr)
	if err != nil {
		return "", err
	}
	script, err := os.ReadFile(path)
	return string(script), err
})

// checkAxe returns the violations that axe-core finds: of WCAG 2.2 AA, and of its own best practices. The debugger runs the script, so
// the policy of the page stays in force.
func checkAxe(b *tab) []string {
	b.t.Helper()
	script, err := axe()
	require.NoError(b.t, err)
	eval[bool](b, script+`; true`)
	return eval[[]string](b, `axe.run(document, {
		runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"], resultTypes: ["violations"],
	}).then(r => r.violations.flatMap(v => v.nodes.slice(0, 3).map(n =>
		v.id + ": " + n.target.join(" ") + ": " + n.failureSummary.replaceAll(/\s*\n\s*/g, " ") + ": " + n.html.slice(0, 200))))`)
}

// focusable is a function of JavaScript that returns what the keyboard has to reach, in the order of the document.
const focusable = `const focusable = () => [...document.querySelectorAll("a[href], area[href], button, input, select, textarea, summary, [tabindex]")]
	.filter(e => !e.disabled && e.type !== "hidden" && e.checkVisibility({visibilityProperty: true}) && e.getAttribute("tabindex") !== "-1")
	.filter(e => e.type !== "radio" || e.checked);`

// focused is what has the focus.
type focused struct {
	Index    int    // among the focusable ones, -1 if it is none of them
	Name     string // for messages
	Marked   bool   // it shows that it has the focus
	InView   bool   // a viewer sees it
	LeadsIn  string // the fragment of a link within the page
	HasFocus bool   // the page has the focus at all
}

const getFocused = `(() => {` + describe + focusable + `
	const e = document.activeElement, style = getComputedStyle(e);
	const seen = box => { // a link may be broken into lines
		const x = (Math.max(box.left, 0) + Math.min(box.right, innerWidth)) / 2, y = (Math.max(box.top, 0) + Math.min(box.bottom, innerHeight)) / 2;
		const top = document.elementFromPoint(x, y);
		return box.width > 0 && (e.contains(top) || top?.closest("label")?.control === e);
	};
	return {
		Index: focusable().indexOf(e), Name: describe(e), HasFocus: e !== document.body,
		Marked: e.matches(":focus-visible") && (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1 || style.boxShadow !== "none"),
		InView: [...e.getClientRects()].some(seen), LeadsIn: e.tagName === "A" && e.getAttribute("href").startsWith("#") ? e.hash.slice(1) : "",
	};
})()`

// checkKeyboard returns what a viewer without a mouse cannot reach, or reaches without seeing it. The page must not change meanwhile.
func checkKeyboard(b *tab) (faults []string) {
	b.t.Helper()
	names := eval[[]string](b, `(() => {`+describe+focusable+` return focusable().map(describe) })()`)
	reached := 0
	for ; reached < len(names); reached++ {
		b.do(chromedp.KeyEvent(kb.Tab))
		f := eval[focused](b, getFocused)
		switch {
		case !f.HasFocus:
			return append(faults, fmt.Sprintf("the focus leaves the page before %s", names[reached]))
		case f.Index != reached:
			return append(faults, fmt.Sprintf("the focus is on %s, before it on %s", f.Name, names[reached]))
		case !f.Marked:
			faults = append(faults, "the focus does not show on "+f.Name)
		case !f.InView:
			faults = append(faults, "the focus is out of sight on "+f.Name)
		}
	}
	if reached == 0 {
		return append(faults, "the keyboard reaches nothing")
	}
	return faults
}

// checkSkipLink returns what is wrong with the first link, which leads over the navigation. The page must just have been loaded.
func checkSkipLink(b *tab) []string {
	b.t.Helper()
	b.do(chromedp.KeyEvent(kb.Tab))
	f := eval[focused](b, getFocused)
	if f.LeadsIn == "" {
		return []string{"the first stop of the keyboard does not lead over the navigation: " + f.Name}
	}
	b.do(chromedp.KeyEvent(kb.Enter), chromedp.KeyEvent(kb.Tab))
	inside := eval[bool](b, `(() => {
		const main = document.getElementById(`+quote(f.LeadsIn)+`), e = document.activeElement;
		return main?.closest("main") && (main.contains(e) || !main.querySelector("a[href], button, input:not([type=hidden]), select, textarea, summary")) || false;
	})()`)
	if !inside {
		return []string{"the link over the navigation does not lead into <main>: #" + f.LeadsIn}
	}
	return nil
}

// checkPage returns what a page lacks that axe-core does not look for.
func checkPage(b *tab) []string {
	b.t.Helper()
	return eval[[]string](b, `(() => {`+describe+`
		const faults = [], all = (selector, fault) => document.querySelectorAll(selector).forEach(e => faults.push(fault + ": " + describe(e)));
		all("[style], style", "inline style");
		all("script:not([src])", "inline script");
		all("a[href^='/'], form[action^='/'], link[href^='/'], script[src^='/'], img[src^='/']", "an address that ignores the prefix");
		all("time:not([datetime])", "an instant without datetime");
		all("time:not([title])", "an instant without its exact form as title");
		all("th:not([scope])", "a heading of a table without scope");
		all("a[href^='javascript:'], a[href='#'], a:not([href]), [onclick]", "a link that is a button");
		if (document.querySelectorAll("h1").length !== 1) faults.push("the page has " + document.querySelectorAll("h1").length + " headings h1");
		return faults;
	})()`)
}

// faultsOf joins what several checks return.
func faultsOf(b *tab, checks ...func(*tab) []string) string {
	b.t.Helper()
	var faults []string
	for _, check := range checks {
		faults = append(faults, check(b)...)
	}
	return strings.Join(faults, "\n")
}
