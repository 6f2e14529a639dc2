// Package web is a console for a fleet: pages that show its state and act on it, for any Go service to mount.
//
//	console, err := web.New(op, web.Options{})
//	mux.Handle("/rota/", http.StripPrefix("/rota", console))
//
// Pages are made on the server and work without scripts. With them, a page follows the fleet: one stream tells the browser when to
// fetch it again. All viewers share one snapshot, read from watches at most once a second. The texts are those of the command rota.
package web

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/web/internal/api"
	"github.com/rota-dev/rota/web/internal/past"
)

// Options are the options of New. The zero value shows the fleet to this machine, and acts for nobody.
type Options struct {
	// History has what has ended. Nil means that the pages and the HTTP API know the records of the fleet only.
	History history.Reader
	// Authorize returns the user of a request. An error is answered with 401, and its text is logged and not shown. Nil gives the role
	// Look to requests from loopback addresses to a loopback host, and refuses others.
	Authorize func(*http.Request) (User, error)
	// Acts allows acts to those whose role does. Without it, every act is refused.
	Acts bool
	// Fleets are links to the consoles of other fleets, at the top of each page. This one has no URL.
	Fleets []Link
	// Zone is the zone of instants unless the viewer chooses UTC. Nil means UTC.
	Zone *time.Location
	// Logger gets a line for each act and each request that fails in the console. Nil means slog.Default.
	Logger *slog.Logger
}

// pastFor is how long the last fires of the jobs on a page are kept for all viewers: a history is a database.
const pastFor = 2 * time.Second

// logFor is how long the logs on the page of a run are kept for all viewers. A line has to be there within two seconds.
const logFor = 300 * time.Millisecond

// diagnosisFor is how long a diagnosis is kept for all viewers, and diagnosisTimes how many times as long as it took: it reads the whole
// store, for seconds if a hundred thousand jobs are defined.
const (
	diagnosisFor   = 10 * time.Second
	diagnosisTimes = 20
)

// Link is a link to a page elsewhere.
type Link struct{ Name, URL string }

// Console serves the pages of one group. Its address is the directory of the fleet's page, so a prefix is stripped without its last slash.
type Console struct {
	op      *operator.Operator
	options Options
	feed    *feed
	digest  digest
	said    said

	chronicle chronicle
	handler   http.Handler

	statuses  *cache[*operator.Status]
	diagnoses *cache[operator.Diagnosis]
	// explanations and findings are of the snapshot, for what is wrong on the fleet's page.
	explanations *cache[view.Explanation]
	findings     *cache[[]operator.Finding]
	pasts        *cache[map[string]past.Strip] // by the names of the jobs on a page
	runs         *cache[foundRun]
	logs         *cache[foundLogs]
}

// New returns the console of the group that op is for. Close ends it; op stays the caller's.
func New(op *operator.Operator, o Options) (*Console, error) {
	if op == nil {
		return nil, errors.New("web: the operator is nil")
	}
	if o.Zone == nil {
		o.Zone = time.UTC
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	c := &Console{
		op: op, options: o, feed: newFeed(op.Watch),
		statuses: newCache[*operator.Status](readEvery, 256), diagnoses: newCache[operator.Diagnosis](diagnosisFor, 1),
		explanations: newCache[view.Explanation](readAtLeast, 256), findings: newCache[[]operator.Finding](diagnosisFor, 1),
		pasts: newCache[map[string]past.Strip](pastFor, 64), runs: newCache[foundRun](pastFor, 64), logs: newCache[foundLogs](logFor, 16),
	}
	c.diagnoses.times = diagnosisTimes
	c.feed.probe = func(ctx context.Context) error {
		_, err := op.Intent(ctx, "")
		return err
	}
	c.feed.observe = c.chronicle.observe
	c.feed.onChange = func() { // a page that is fetched for a change must show it
		c.statuses.dropAll()
		c.runs.dropAll()
		c.explanations.dropAll()
		c.digest.drop()
	}
	c.handler = protect(c.routes(c.newAPI()))
	return c, nil
}

// protect refuses requests of other sites, as which a browser would send the cookies of its user. To a request with a bearer token and
// without cookies a browser adds nothing, and another site cannot send one.
func protect(next http.Handler) http.Handler {
	protected := http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if strings.EqualFold(scheme, "Bearer") && len(r.Header.Values("Cookie")) == 0 && strings.HasPrefix(r.URL.Path, apiPath+"/") {
			next.ServeHTTP(w, r)
			return
		}
		protected.ServeHTTP(w, r)
	})
}

// newAPI returns the HTTP API, which shares the snapshot and the users of the pages.
func (c *Console) newAPI() http.Handler {
	return api.New(api.Config{
		Op: c.op, History: c.options.History, ReadOnly: !c.options.Acts, Done: c.feed.ctx.Done(), Logger: c.options.Logger,
		Snapshot: func(ctx context.Context) (operator.GroupStatus, error) {
			st, _, err := c.feed.read(ctx)
			return st, err
		},
		Changed:  c.feed.next,
		Diagnose: func(context.Context) (operator.Diagnosis, error) { return c.diagnose() },
		Authorize: func(r *http.Request, least Role) (string, error) {
			u, err := c.findUser(r)
			if err == nil && u.Role < least {
				err = api.ErrForbidden
			}
			return u.Name, err
		},
	})
}

// ServeHTTP serves a page.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.handler.ServeHTTP(w, r) }

// Close ends the watches and the streams, and waits for them. Later requests are answered with 503.
func (c *Console) Close() { c.feed.close() }
