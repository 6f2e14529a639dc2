package console

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"

	"github.com/rota-dev/rota/cmd/rota/internal/console/account"
	"github.com/rota-dev/rota/web"
)

//go:embed pages.tmpl style.css
var files embed.FS

var templates = template.Must(template.ParseFS(files, "pages.tmpl"))

// sessionCookie is the name of the cookie with the token of a session.
const sessionCookie = "rota_session"

// maxLoginBytes bounds the body of a login.
const maxLoginBytes = 4 << 10

// page holds the values of a template.
type page struct {
	Title    string
	Path     string // of the console
	User     string // empty if there is none
	CanLeave bool   // the user has logged in here
	Problem  string
	Next     string // where a login leads
	Name     string // of a login that failed
	Fleets   []row
	Refresh  string // of the header Refresh; empty if the page stays
}

// row is a line of the list of fleets.
type row struct{ Name, Target, Role, Problem string }

// show answers with a page or, if a program asked the HTTP API, with a problem as the API has them.
func (s *server) show(w http.ResponseWriter, r *http.Request, status int, name string, p page) {
	if s.isAPI(r) && status >= http.StatusBadRequest {
		web.WriteProblem(w, status, p.Problem)
		return
	}
	id := identityOf(r)
	p.Path, p.User, p.CanLeave = s.path, id.name, id.session != nil
	var out bytes.Buffer
	if err := templates.ExecuteTemplate(&out, name, p); err != nil {
		s.log.Error("a page of the console cannot be written", "page", name, "error", err)
		http.Error(w, "the console failed; its log has the cause", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // the browser has gone
}

// isAPI reports whether a request is to the HTTP API of a fleet.
func (s *server) isAPI(r *http.Request) bool {
	_, ofFleet, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, s.path), "/")
	return strings.HasPrefix(ofFleet, "api/v1/")
}

func (s *server) showProblem(w http.ResponseWriter, r *http.Request, status int, text string) {
	s.show(w, r, status, "problem", page{Title: http.StatusText(status), Problem: text})
}

func serveStyle(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "private, max-age=300")
	http.ServeFileFS(w, r, files, "style.css")
}

// showFleets lists the fleets in which the user has a role, or goes to the only one.
func (s *server) showFleets(w http.ResponseWriter, r *http.Request) {
	p := page{Title: "Fleets", Refresh: "10"}
	for _, f := range s.fleets {
		role := f.roleOf(identityOf(r))
		if role < web.Look {
			continue
		}
		handler, problem := f.state()
		if handler != nil {
			problem = ""
		}
		p.Fleets = append(p.Fleets, row{f.name, f.target(), role.String(), problem})
	}
	switch {
	case len(p.Fleets) == 0:
		s.showProblem(w, r, http.StatusForbidden, identityOf(r).name+" has no role in a fleet of this console.")
	case len(s.fleets) == 1:
		http.Redirect(w, r, s.path+s.fleets[0].name+"/", http.StatusSeeOther)
	default:
		s.show(w, r, http.StatusOK, "fleets", p)
	}
}

// showAway states why a fleet has no pages yet.
func (s *server) showAway(w http.ResponseWriter, r *http.Request, f *fleet, problem string) {
	w.Header().Set("Retry-After", "10")
	s.show(w, r, http.StatusServiceUnavailable, "away", page{Title: f.name + ": its store is away", Problem: problem, Refresh: "10"})
}

// nextQuery returns the query with where a login leads.
func nextQuery(uri string) string { return url.Values{"next": {uri}}.Encode() }

// localPath returns where a login leads: a path of this console. Any other one could be that of another site.
func (s *server) localPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.IsAbs() || u.Host != "" || u.User != nil || !strings.HasPrefix(u.Path, s.path) || strings.HasPrefix(next, "//") || strings.Contains(next, `\`) {
		return s.path
	}
	return u.RequestURI()
}

func (s *server) showLogin(w http.ResponseWriter, r *http.Request) {
	next := s.localPath(r.URL.Query().Get("next"))
	if _, err := s.access.identify(r); err == nil {
		http.Redirect(w, r, next, http.StatusSeeOther)
		return
	}
	s.show(w, r, http.StatusOK, "login", page{Title: "Log in", Next: next})
}

// login begins a session for a name and a password.
func (s *server) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxLoginBytes)
	if err := r.ParseForm(); err != nil {
		s.showProblem(w, r, http.StatusBadRequest, "This is not the form of a login.")
		return
	}
	name, from, next := r.PostForm.Get("name"), s.clientOf(r), s.localPath(r.PostForm.Get("next"))
	user, err := s.checker.Check(r.Context(), s.users.Load(), name, r.PostForm.Get("password"), from)
	if err != nil {
		s.refuseLogin(w, r, name, from, next, err)
		return
	}
	// A token that came with the request is not used again: another hand may have set it.
	s.endSessions(r)
	s.log.Info("a user has logged in", "user", user.Name, "address", from)
	http.SetCookie(w, s.cookie(r, s.sessions.Begin(user), int(account.MaxAge.Seconds())))
	http.Redirect(w, r, next, http.StatusSeeOther)
}

// refuseLogin shows the form again. Its text is the same for a wrong password and an unknown name.
func (s *server) refuseLogin(w http.ResponseWriter, r *http.Request, name, from, next string, err error) {
	p, status := page{Title: "Log in", Next: next, Name: name}, http.StatusUnauthorized
	limited, isLimited := errors.AsType[*account.LimitedError](err)
	switch {
	case isLimited:
		status, p.Problem = http.StatusTooManyRequests, fmt.Sprintf("There were t%s.", limited.Error()[1:])
		w.Header().Set("Retry-After", fmt.Sprint(int(limited.Wait.Seconds())+1))
		s.log.Debug("refused a login beyond the limit", "address", from)
	case errors.Is(err, account.ErrWrong):
		p.Problem = "Name or password is wrong."
		s.log.Warn("refused a login", "user", fmt.Sprintf("%.64s", name), "address", from)
	default:
		status, p.Problem = http.StatusServiceUnavailable, "Too many users log in at a time. Try again."
		w.Header().Set("Retry-After", "5")
	}
	s.show(w, r, status, "login", p)
}

func (s *server) showLogout(w http.ResponseWriter, r *http.Request) {
	s.show(w, r, http.StatusOK, "logout", page{Title: "Log out"})
}

// logout ends the session of the browser. One that has none gets the same answer.
func (s *server) logout(w http.ResponseWriter, r *http.Request) {
	s.endSessions(r)
	http.SetCookie(w, s.cookie(r, "", -1))
	http.Redirect(w, r, s.own("login"), http.StatusSeeOther)
}

// endSessions ends the sessions whose tokens a request has.
func (s *server) endSessions(r *http.Request) {
	for _, cookie := range r.CookiesNamed(sessionCookie) {
		s.sessions.End(cookie.Value)
	}
}

// cookie returns the cookie of a session. Behind a proxy it is for TLS, unless the proxy states that its client has none.
func (s *server) cookie(r *http.Request, token string, maxAge int) *http.Cookie {
	secure := r.TLS != nil || len(s.proxies) > 0 && r.Header.Get("X-Forwarded-Proto") != "http"
	return &http.Cookie{
		Name: sessionCookie, Value: token, Path: s.path, MaxAge: maxAge, HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode,
	}
}
