// Package api is the HTTP API of the console, to be mounted at /api/v1/: the looks and acts of the command, with its JSON. The table
// of routes and openapi.json are equal by test. docs/console/api.md is the page for users.
package api

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/internal/acts"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/web/internal/role"
)

// ErrForbidden is the error of Config.Authorize for a user whose role is too low.
var ErrForbidden = errors.New("the role does not allow this")

// Config is the configuration of the API.
type Config struct {
	Op *operator.Operator
	// History has the runs that have ended; nil: there is no history.
	History history.Reader
	// Snapshot returns the group, and Changed a channel that is closed at its next change, as of operator.GroupView. Nil
	// for Changed means that streams look every few seconds.
	Snapshot func(context.Context) (operator.GroupStatus, error)
	Changed  func() <-chan struct{}
	// Diagnose returns a diagnosis of the group, which is not changed. Nil means Op.Diagnose.
	Diagnose func(context.Context) (operator.Diagnosis, error)
	// Authorize returns the name of the user of a request; ErrForbidden if the role of the user is below least; another error if
	// the user is not known.
	Authorize func(r *http.Request, least role.Role) (user string, err error)
	// Verbs are the acts. Nil means acts.Verbs.
	Verbs []acts.Verb
	// ReadOnly refuses all acts.
	ReadOnly bool
	// Done ends the streams when it is closed. Nil: they end with their requests only.
	Done <-chan struct{}
	// Logger gets a line for each act and for each request that failed here. Nil means slog.Default.
	Logger *slog.Logger
}

// Bounds of requests.
const (
	lookTimeout = 10 * time.Second
	actTimeout  = 30 * time.Second
	maxBody     = 256 << 10 // a list of 10,000 shards and a parameter
	maxQuery    = 8 << 10
)

//go:embed openapi.json
var openAPI []byte

type api struct {
	Config
	routes []route
	mux    *http.ServeMux
	keys   *idempotency
	hub    *hub
}

// New returns the handler of the API. Paths begin after the prefix at which it is mounted.
func New(c Config) http.Handler {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Diagnose == nil {
		c.Diagnose = c.Op.Diagnose
	}
	if c.Verbs == nil {
		c.Verbs = acts.Verbs
	}
	a := &api{Config: c, routes: routesOf(c.Verbs), mux: http.NewServeMux(), keys: newIdempotency()}
	a.hub = newHub(c.Snapshot, c.Changed)
	for i := range a.routes {
		rt := &a.routes[i]
		a.mux.HandleFunc(rt.method+" "+rt.path, func(w http.ResponseWriter, r *http.Request) { a.serveRoute(rt, w, r) })
	}
	return a
}

// ServeHTTP answers a request. Redirects of the mux would lead out of the prefix, and its errors are no problems of RFC 9457.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if p := r.URL.EscapedPath(); p != path.Clean(p) {
		writeProblem(w, problemOf(notFound, "there is no such path"))
		return
	}
	if _, pattern := a.mux.Handler(r); pattern != "" {
		a.mux.ServeHTTP(w, r)
		return
	}
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		other := *r
		other.Method = method
		if _, pattern := a.mux.Handler(&other); pattern != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		writeProblem(w, problemOf(notFound, "there is no such path"))
		return
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	writeProblem(w, problemOf(methodNotAllowed, "use "+strings.Join(allowed, " or ")))
}

// contextWith returns a context with a bound.
func contextWith(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("%w after %v", context.DeadlineExceeded, d))
}

// call is a request whose user is known.
type call struct {
	*api
	r        *http.Request
	user     string
	mayRead  bool // parameters, outputs and errors
	total    int  // of the elements of which the answer is a page; -1 if it is not known
	nextPage int  // zero if there is none

	nextCursor string // of a list that is read by the parameter after; empty if there is none
}

// serveRoute authorizes a request and answers it.
func (a *api) serveRoute(rt *route, w http.ResponseWriter, r *http.Request) {
	user, err := a.Authorize(r, rt.needs)
	switch {
	case errors.Is(err, ErrForbidden):
		writeProblem(w, problemOf(forbidden, "it needs the role "+rt.needs.String()))
		return
	case err != nil: // whose text is for the log
		a.Logger.Info("the HTTP API refused a request", "method", rt.method, "path", rt.path, "from", r.RemoteAddr, "error", err)
		writeProblem(w, problemOf(unauthorized, "it needs a user"))
		return
	}
	c := &call{api: a, r: r, user: user, mayRead: rt.needs >= role.Reveal, total: -1}
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			panic(p)
		default:
			a.fail(c, rt, w, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	if !c.mayRead {
		_, err := a.Authorize(r, role.Reveal)
		c.mayRead = err == nil
	}
	if len(r.URL.RawQuery) > maxQuery {
		err = problemOf(badRequest, fmt.Sprintf("the query has more than %d bytes", maxQuery))
	} else {
		err = rt.serve(c, w)
	}
	if err != nil {
		a.fail(c, rt, w, err)
	}
}

// fail answers a request with the problem of an error.
func (a *api) fail(c *call, rt *route, w http.ResponseWriter, err error) {
	p := findProblem(err)
	if p.Status >= http.StatusInternalServerError {
		a.Logger.Error("request of the HTTP API failed", "method", rt.method, "path", rt.path, "user", c.user, "error", err)
		if !c.mayRead || p.Type == problemTypes+internalError.name {
			p.Detail = "see the log of the console" // the text may quote a record
		}
	}
	writeProblem(w, p)
}

// answer writes a view as the command prints it, unless the client has it.
func (c *call) answer(w http.ResponseWriter, v any) error {
	if !c.mayRead {
		v = view.Conceal(v)
	}
	var body bytes.Buffer
	if err := view.WriteJSON(&body, v); err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if c.total >= 0 {
		h.Set("Total-Count", strconv.Itoa(c.total))
	}
	if c.nextPage > 0 {
		query := c.r.URL.Query()
		query.Set("page", strconv.Itoa(c.nextPage))
		h.Set("Link", "<?"+query.Encode()+`>; rel="next"`)
	}
	if c.nextCursor != "" {
		query := c.r.URL.Query()
		query.Set("after", c.nextCursor)
		h.Set("Link", "<?"+query.Encode()+`>; rel="next"`)
	}
	tag := tagOf(body.Bytes())
	h.Set("ETag", tag)
	for part := range strings.SplitSeq(strings.Join(c.r.Header.Values("If-None-Match"), ","), ",") {
		if part = strings.TrimSpace(part); part == tag || part == "*" {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	_, _ = w.Write(body.Bytes()) // the client has gone
	return nil
}

// tagOf returns the weak ETag of an answer: of its lines but the one with the instant at which it was read.
func tagOf(body []byte) string {
	sum := fnv.New128a()
	for line := range bytes.Lines(body) {
		if !bytes.HasPrefix(line, []byte(`  "at": `)) {
			_, _ = sum.Write(line)
		}
	}
	return `W/"` + hex.EncodeToString(sum.Sum(nil)) + `"`
}

// paging selects a part of a list.
type paging struct {
	Page  int `query:"page" default:"1" min:"1" max:"100000" doc:"the page, from 1"`
	Limit int `query:"limit" default:"100" min:"1" max:"1000" doc:"elements of a page"`
}

// pageOf returns the page of a list.
func pageOf[T any](c *call, p paging, list []T) []T {
	c.setPage(p, len(list))
	from := min((p.Page-1)*p.Limit, len(list))
	return list[from:min(from+p.Limit, len(list))]
}

// setPage records of which list the answer is a page.
func (c *call) setPage(p paging, total int) {
	if c.total = total; p.Page*p.Limit < total {
		c.nextPage = p.Page + 1
	}
}

// job returns the job that the path names.
func (c *call) job() string { return c.r.PathValue("job") }
