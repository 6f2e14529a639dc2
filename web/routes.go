package web

import (
	"embed"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
)

//go:embed static
var static embed.FS

// route is a page. Least is the role that it needs; zero is for files that all may have.
type route struct {
	pattern string
	least   Role
	serve   func(c *Console, w http.ResponseWriter, r *request) error
}

// apiPath is where the HTTP API is.
const apiPath = "/api/v1"

// routes are all pages. Whatever a browser can reach has a row here, or in the table of package api.
var routes = []route{
	{"GET /{$}", Look, (*Console).showFleet},
	{"GET /jobs/{job}", Look, (*Console).showJob},
	{"GET /jobs/{job}/explain", Look, (*Console).showExplanation},
	{"GET /jobs/{job}/grid", Look, (*Console).showGrid},
	{"GET /jobs/{job}/fires/{fire}", Look, (*Console).showFire},
	{"GET /jobs/{job}/fires/{fire}/shards/{shard}", Look, (*Console).showRun},
	{"GET /instances", Look, (*Console).showInstances},
	{"GET /definitions", Look, (*Console).showDefinitions},
	{"GET /kinds", Look, (*Console).showKinds},
	{"GET /timeline", Look, (*Console).showTimeline},
	{"GET /acts", Look, (*Console).showActs},
	{"GET /doctor", Look, (*Console).showDiagnosis},
	{"GET /events", Look, (*Console).streamEvents},

	{"GET /act/{verb}", Operate, (*Console).askAct},
	{"POST /act/{verb}", Operate, (*Console).doAct},
	{"GET /jobs/{job}/act/{verb}", Operate, (*Console).askAct},
	{"POST /jobs/{job}/act/{verb}", Operate, (*Console).doAct},
	{"GET /instances/{instance}/act/{verb}", Operate, (*Console).askAct},
	{"POST /instances/{instance}/act/{verb}", Operate, (*Console).doAct},

	{"GET /static/{file}", 0, (*Console).serveFile},
}

// request is a request with its user.
type request struct {
	*http.Request
	user User
}

// problem is an error with the status of its page.
type problem struct {
	status int
	text   string
}

func (p *problem) Error() string { return p.text }

func problemf(status int, format string, args ...any) error {
	return &problem{status, fmt.Sprintf(format, args...)}
}

// maxBody bounds the body of a form.
const maxBody = 256 << 10

func (c *Console) routes(api http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(apiPath+"/", http.StripPrefix(apiPath, api)) // whose own table has its routes and roles
	for _, rt := range routes {
		mux.HandleFunc(rt.pattern, func(w http.ResponseWriter, r *http.Request) { c.serve(rt, w, r) })
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		SetSecurityHeaders(w.Header())
		if r.URL.Path == "" { // the prefix without a slash, at which relative links would be wrong
			path, _, _ := strings.Cut(r.RequestURI, "?")
			w.Header().Set("Location", path+"/")
			w.WriteHeader(http.StatusMovedPermanently)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// serve authorizes a request and answers it, also if the page panics.
func (c *Console) serve(rt route, w http.ResponseWriter, r *http.Request) {
	req := &request{Request: r}
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			c.options.Logger.Error("a page of the console panicked", "path", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			c.showProblem(w, req, problemf(http.StatusInternalServerError, "The console failed; its log has the cause."))
		}
	}()
	if rt.least > 0 {
		if err := c.authorize(req, rt.least); err != nil {
			c.showProblem(w, req, err)
			return
		}
		_, _, _ = c.feed.read(r.Context()) // each page names the group; those that show its state handle the error
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	if err := rt.serve(c, w, req); err != nil {
		c.showProblem(w, req, err)
	}
}

// findUser returns the user of a request.
func (c *Console) findUser(r *http.Request) (User, error) {
	if c.options.Authorize == nil {
		return authorizeLocal(r)
	}
	return c.options.Authorize(r)
}

// authorize finds the user of a request, who needs a role.
func (c *Console) authorize(r *request, least Role) error {
	u, err := c.findUser(r.Request)
	if err != nil {
		c.options.Logger.Info("the console refused a request", "path", r.URL.Path, "from", r.RemoteAddr, "error", err)
		return problemf(http.StatusUnauthorized, "This page needs a user.")
	}
	r.user = u
	if u.Role < least {
		return problemf(http.StatusForbidden, "This page needs the role %s; %s has the role %s.", least, u.Name, u.Role)
	}
	return nil
}

func (c *Console) serveFile(w http.ResponseWriter, r *request) error {
	w.Header().Set("Cache-Control", "private, max-age=300")
	http.ServeFileFS(w, r.Request, static, "static/"+r.PathValue("file"))
	return nil
}

// showProblem shows an error as a page.
func (c *Console) showProblem(w http.ResponseWriter, r *request, err error) {
	p, ok := errors.AsType[*problem](err)
	if !ok {
		p = c.problemOf(r, err)
	}
	b := page{Title: http.StatusText(p.status), Problem: p.text}
	if r.user.Role > 0 {
		b.Group = c.group()
	}
	c.render(w, r, p.status, "problem", b)
}
