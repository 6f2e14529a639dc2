package console

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rota-dev/rota/cmd/rota/internal/console/account"
	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/port"
	"github.com/rota-dev/rota/internal/count"
	"github.com/rota-dev/rota/internal/secret"
	"github.com/rota-dev/rota/web"
)

// The bounds of the port beside those of package port.
const (
	maxConnections = 512
	maxBody        = 256 << 10
	maxHeader      = 16 << 10
	// writeTimeout bounds a page. A stream moves its bound with each event.
	writeTimeout = 30 * time.Second
	// maxRequest bounds a stream, so that the rights of its user are found anew from time to time. The browser follows again.
	maxRequest = 15 * time.Minute
	// shutdownTimeout is the time that acts have to finish.
	shutdownTimeout = 5 * time.Second
)

// server is a process that serves consoles.
type server struct {
	options
	fleets []*fleet
	open   opener
	log    *slog.Logger
	// secrets are masked in log.
	secrets *secret.Masker
	out     io.Writer

	access   access
	users    atomic.Pointer[account.Users] // nil without --users
	sessions *account.Sessions
	checker  *account.Checker
	stopping context.Context // ends the requests that only look

	listening func(net.Addr) // for tests; may be nil
}

// run serves until ctx ends.
func (s *server) run(ctx context.Context) error {
	files, config, err := s.load()
	if err != nil {
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	listener, err := net.Listen("tcp", s.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	// The system may resolve localhost to any address.
	if addr, ok := listener.Addr().(*net.TCPAddr); ok && port.IsLoopback(s.listen) && !addr.IP.IsLoopback() {
		_ = listener.Close()
		return exit.Usagef("--listen is %q, which is the address %v, not one of this host only", s.listen, addr)
	}

	running, stop := context.WithCancel(ctx)
	s.stopping = running
	var tasks sync.WaitGroup
	defer func() {
		stop()
		tasks.Wait()
	}()
	defer s.sessions.Close()
	tasks.Go(func() { watchFiles(running, files, s.log) })
	// A fleet outlasts the requests, which use its store.
	opened, closeFleets := context.WithCancel(context.WithoutCancel(ctx))
	defer closeFleets()
	for _, f := range s.fleets {
		tasks.Go(func() { f.serve(opened, s.open, s.log) })
	}

	server := newHTTPServer(s)
	server.TLSConfig = config
	bounded := port.Limit(listener, maxConnections)
	ended := make(chan error, 1)
	go func() {
		if config != nil {
			ended <- server.ServeTLS(bounded, "", "")
		} else {
			ended <- server.Serve(bounded)
		}
	}()
	fmt.Fprint(s.out, s.describe(listener.Addr()))
	if s.listening != nil {
		s.listening(listener.Addr())
	}
	select {
	case <-ctx.Done():
		stop()
		timeout, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if server.Shutdown(timeout) != nil {
			s.log.Warn("requests did not end in time and are cut off")
			_ = server.Close()
		}
		<-ended
		return nil
	case err := <-ended:
		return fmt.Errorf("--listen: %w", err)
	}
}

// newHTTPServer returns a server of all pages within the bounds of the port.
func newHTTPServer(s *server) *http.Server {
	server := port.New(s.handler(), s.log, writeTimeout)
	server.MaxHeaderBytes = maxHeader
	return server
}

// load reads the files of the options, and returns them for watchFiles. Config is nil without TLS.
func (s *server) load() (files []*watched, config *tls.Config, err error) {
	s.sessions, s.checker = account.NewSessions(), account.NewChecker()
	if s.options.users != "" {
		files = append(files, &watched{paths: []string{s.options.users}, read: func() error {
			users, err := s.readUsers()
			if err == nil {
				s.replaceUsers(users)
			}
			return err
		}})
	}
	if s.tlsCert != "" {
		c := &certificate{}
		config = c.config()
		files = append(files, &watched{paths: []string{s.tlsCert, s.tlsKey}, read: func() error { return c.load(s.tlsCert, s.tlsKey) }})
	}
	configured, err := s.addReceivers()
	if err != nil {
		return nil, nil, err
	}
	for _, c := range configured {
		files = append(files, &watched{paths: []string{c.path}, read: c.read})
	}
	for _, f := range files {
		if _, err := f.refresh(); err != nil {
			return nil, nil, err
		}
	}
	switch {
	case s.proxyHeader != "":
		s.access = proxyAccess{&s.options, s.users.Load}
	case s.options.users != "":
		s.access = loginAccess{s.users.Load, s.sessions}
	default:
		s.access = localAccess{}
	}
	if s.options.users != "" {
		s.access = tokenAccess{&s.options, s.users.Load, s.access}
	}
	return files, config, nil
}

// replaceUsers puts another file of users in force.
func (s *server) replaceUsers(users *account.Users) {
	if before := s.users.Swap(users); before != nil {
		before.Replace()
	}
	s.sessions.Check(users)
}

// describe returns the first line of the output.
func (s *server) describe(addr net.Addr) string {
	scheme := "http"
	if s.tlsCert != "" {
		scheme = "https"
	}
	acts := "It looks only."
	if s.allowActs {
		acts = "Users act as their roles allow."
	}
	names := s.fleetNames()
	return fmt.Sprintf("The console of %s (%s) is at %s://%s%s\n%s\n%s",
		count.Of(len(names), "fleet"), strings.Join(names, ", "), scheme, addr, s.path, acts, s.describeReceivers())
}

// handler returns all pages, behind the checks that hold for each of them.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+s.own("style.css"), serveStyle)
	if s.hasLogins() {
		mux.HandleFunc("GET "+s.own("login"), s.showLogin)
		mux.HandleFunc("POST "+s.own("login"), s.login)
		mux.HandleFunc("GET "+s.own("logout"), s.showLogout)
		mux.HandleFunc("POST "+s.own("logout"), s.logout)
	}
	mux.Handle("GET "+s.path+"{$}", s.authenticated(s.showFleets))
	for _, f := range s.fleets {
		prefix := s.path + f.name
		mux.Handle(prefix+"/", s.authenticated(s.fleetPages(f, prefix)))
	}
	protected := http.NewCrossOriginProtection().Handler(mux)
	return s.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := s.tokenOf(r); ok && s.isAPI(r) { // which a browser adds to no request by itself, as it does a cookie
			mux.ServeHTTP(w, r)
			return
		}
		protected.ServeHTTP(w, r)
	}))
}

// own returns the path of a page that is no fleet's.
func (s *server) own(name string) string { return s.path + "-/" + name }

// guard admits requests, and bounds them.
func (s *server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		web.SetSecurityHeaders(w.Header())
		if addr, err := addrOf(r); len(s.proxies) > 0 && (err != nil || !s.isProxy(addr)) {
			s.log.Debug("refused a client that is no proxy", "address", r.RemoteAddr)
			s.showProblem(w, r, http.StatusForbidden, "This address is not a proxy of the console.")
			return
		}
		if len(s.proxies) == 0 { // nothing that only a proxy may state reaches a page
			r.Header.Del("X-Forwarded-For")
			r.Header.Del("X-Forwarded-Proto")
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		ctx, cancel := context.WithTimeout(r.Context(), maxRequest)
		defer cancel()
		if r.Method == http.MethodGet || r.Method == http.MethodHead { // an act may finish
			defer context.AfterFunc(s.stopping, cancel)()
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// authenticated admits requests whose user is known.
func (s *server) authenticated(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := s.access.identify(r)
		switch {
		case errors.Is(err, errNoLogin) && isNavigation(r) && r.Header.Get("Sec-Fetch-Site") == "cross-site":
			// A link of another site brings no cookie. The browser sends it if this page asks.
			login := s.own("login") + "?" + nextQuery(r.URL.RequestURI())
			s.show(w, r, http.StatusOK, "again", page{Title: "One moment", Next: login, Refresh: "0; url=" + login})
			return
		case errors.Is(err, errNoLogin) && isNavigation(r):
			http.Redirect(w, r, s.own("login")+"?"+nextQuery(r.URL.RequestURI()), http.StatusSeeOther)
			return
		case err != nil:
			s.log.Debug("refused a request without a user", "address", s.clientOf(r), "path", r.URL.Path, "error", err)
			if s.isAPI(r) {
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
			s.showProblem(w, r, http.StatusUnauthorized, "This page needs a user: "+err.Error()+".")
			return
		}
		if id.token && !s.isAPI(r) {
			s.showProblem(w, r, http.StatusForbidden, "A token is for the HTTP API of a fleet, below api/v1/.")
			return
		}
		for _, header := range []string{s.proxyHeader, s.proxyRoles, "Cookie", "Authorization"} { // the pages need none of them
			r.Header.Del(header)
		}
		if id.token {
			r.Header.Set("Authorization", "Bearer -") // without the secret: the API learns that no cookie names the user
		}
		ctx, cancel := context.WithCancel(withIdentity(r.Context(), id))
		defer cancel()
		if r.Method == http.MethodGet { // a stream ends with the session or the token, and an act may finish
			if id.ends != nil {
				defer context.AfterFunc(id.ends, cancel)()
			}
			if !id.expires.IsZero() {
				ctx, cancel = context.WithDeadline(ctx, id.expires)
				defer cancel()
			}
		}
		next(w, r.WithContext(ctx))
	})
}

// isNavigation reports whether a browser shows the answer to its user, rather than passing it to a script.
func isNavigation(r *http.Request) bool {
	mode := r.Header.Get("Sec-Fetch-Mode")
	return r.Method == http.MethodGet && (mode == "navigate" || mode == "" && strings.Contains(r.Header.Get("Accept"), "text/html"))
}

// fleetPages returns the pages of a fleet, or one that states why there are none yet.
func (s *server) fleetPages(f *fleet, prefix string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if f.roleOf(identityOf(r)) < web.Look {
			s.showProblem(w, r, http.StatusForbidden, fmt.Sprintf("%s has no role in the namespace %s.", identityOf(r).name, f.settings.Namespace))
			return
		}
		handler, problem := f.state()
		if handler == nil {
			s.showAway(w, r, f, problem)
			return
		}
		http.StripPrefix(prefix, handler).ServeHTTP(w, r)
	}
}
