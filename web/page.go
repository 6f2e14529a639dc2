package web

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

// callTimeout bounds the calls of the store for a page.
const callTimeout = 10 * time.Second

//go:embed pages
var pageFiles embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{"pathOf": url.PathEscape, "title": capitalize}).ParseFS(pageFiles, "pages/*.tmpl"))

// page is what templates get. Body is of the page's own type.
type page struct {
	Title   string
	Problem string // in place of the rest, or above it
	Body    any

	// The rest is set by render.
	Root    string // the relative address of the fleet's page: "", "../", ...
	User    User
	Group   view.Group
	Fleets  []Link
	At      stamp
	Section string // of the navigation
	Said    string // the result of an act
}

// stamp is an instant as text, with its exact form.
type stamp struct{ Text, Exact, Machine string }

// Base returns the name of the fleet.
func (p page) Base() string { return p.Group.Namespace + "/" + p.Group.Name }

// render writes a page. A failure of a template is a defect, and answered as one.
func (c *Console) render(w http.ResponseWriter, r *request, status int, name string, p page) {
	p.Root = rootOf(r)
	p.User, p.Fleets = r.user, c.options.Fleets
	p.Section, _, _ = strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	p.Said = c.said.of(r.URL.Query().Get("said"))
	p.At = stampOf(c.times(r), time.Now())
	var out bytes.Buffer
	if err := templates.ExecuteTemplate(&out, name, p); err != nil {
		c.options.Logger.Error("a page of the console cannot be written", "page", name, "error", err)
		http.Error(w, "the console failed; its log has the cause", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // the browser has gone
}

// rootOf returns the address of the fleet's page relative to that of a request.
func rootOf(r *request) string {
	return strings.Repeat("../", max(0, strings.Count(r.URL.EscapedPath(), "/")-1))
}

// group returns the group as of the latest snapshot, if there is one.
func (c *Console) group() view.Group {
	st := c.feed.latest()
	return view.Group{Namespace: st.Namespace, Name: st.Group, Leader: st.Leader.Instance, Term: st.Leader.Term}
}

// times returns the form of instants, relative ones. The query ?zone=utc chooses the zone of exact ones.
func (c *Console) times(r *request) view.Times {
	zone := c.options.Zone
	if r.URL.Query().Get("zone") == "utc" {
		zone = time.UTC
	}
	return view.Times{Now: time.Now(), Mode: "relative", Zone: zone}
}

func stampOf(t view.Times, at time.Time) stamp {
	return stamp{at.In(t.Zone).Format(time.TimeOnly), at.In(t.Zone).Format(time.RFC1123Z), at.UTC().Format(time.RFC3339)}
}

// readGroup returns the snapshot of the group. If the store is away, it returns the latest one with a text about that.
func (c *Console) readGroup(r *request) (st operator.GroupStatus, stale string, err error) {
	st, _, err = c.feed.read(r.Context())
	if err != nil && !st.At.IsZero() && !errors.Is(err, errClosed) {
		return st, fmt.Sprintf("The store does not answer. This is what was on record at %s.", st.At.In(c.options.Zone).Format(time.RFC3339)), nil
	}
	return st, "", err
}

// call returns a context for a call of the store.
func call(r *request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), callTimeout)
}

// problemOf returns the page of an error of a call.
func (c *Console) problemOf(r *request, err error) *problem {
	switch {
	case errors.Is(err, errClosed):
		return &problem{http.StatusServiceUnavailable, "The console is being shut down."}
	case errors.Is(err, operator.ErrUnknownJob):
		return &problem{http.StatusNotFound, "There is no job of this name. It may have been deleted."}
	case errors.Is(err, operator.ErrInvalidArgument):
		return &problem{http.StatusNotFound, sentence(err)}
	case isUnreachable(err):
		c.options.Logger.Warn("the console cannot reach the store", "path", r.URL.Path, "error", err)
		return &problem{http.StatusServiceUnavailable, "The store does not answer. Jobs whose instances reach it go on."}
	case errors.Is(err, registry.ErrPermission), errors.Is(err, registry.ErrUnauthenticated):
		c.options.Logger.Error("the console has no right in the store", "path", r.URL.Path, "error", err)
		return &problem{http.StatusBadGateway, "The console has no right to do this in the store."}
	}
	c.options.Logger.Error("a request of the console failed", "path", r.URL.Path, "error", err)
	return &problem{http.StatusInternalServerError, "The console failed; its log has the cause."}
}

// sentence returns the text of an error as a sentence.
func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// isUnreachable reports whether a call failed since the store did not answer.
func isUnreachable(err error) bool {
	return errors.Is(err, registry.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}
