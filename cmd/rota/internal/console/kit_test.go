package console

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/registry"
)

// journal is a log that tests read.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.String()
}

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

const password = "correct horse"

// passwordHash returns the hash of password, which is made once.
var passwordHash = sync.OnceValue(func() string {
	hash, err := bcrypt.GenerateFromPassword([]byte(password), 10)
	if err != nil {
		panic(err)
	}
	return string(hash)
})

// compareQuickly knows the password without bcrypt.
func compareQuickly(_, text []byte) error {
	if string(text) != password {
		return bcrypt.ErrMismatchedHashAndPassword
	}
	return nil
}

// usersFile writes a file of users, with password as that of all: kim administers all namespaces, lee looks at billing.
func usersFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "users.yaml")
	writeUsers(t, path, "- {name: kim, hash: "+passwordHash()+", roles: {\"*\": admin}}\n- {name: lee, hash: "+passwordHash()+", roles: {billing: look}}\n")
	return path
}

// writeUsers replaces a file of users, as an editor does.
func writeUsers(t *testing.T, path, entries string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", []byte("users:\n"+entries), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

// settingsOf returns settings with two contexts: billing and search, in namespaces of these names.
func settingsOf(t *testing.T, open func(url string, o registryurl.Options) (registry.Registry, error)) *settings.Settings {
	t.Helper()
	config := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(config, []byte(`
current: billing
contexts:
  billing: {registry: "etcd://a:1", namespace: billing}
  search: {registry: "etcd://b:1", namespace: search, history: "sqlite:/nonexistent/runs.db"}
  guarded: {registry: "etcd://c:1", namespace: guarded, protected: true}
  "a/b": {registry: "etcd://d:1", namespace: ab}
`), 0o600))
	s := settings.New(nil)
	s.Getenv = func(name string) string { return map[string]string{"ROTA_CONFIG": config}[name] }
	s.OpenRegistry = func(_ context.Context, url string, o registryurl.Options) (registry.Registry, error) {
		return open(url, o)
	}
	return s
}

// echo answers with the user, the role and the path of a request.
func echo(_ context.Context, f *fleet) (http.Handler, io.Closer, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, err := f.authorize(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusTeapot)
			return
		}
		_, _ = io.WriteString(w, f.name+" "+r.URL.Path+" "+user.Name+" "+user.Role.String())
		for name := range r.Header {
			_, _ = io.WriteString(w, " "+name)
		}
	}), closer(func() {}), nil
}

// newTestServer returns a server with these flags whose fleets answer as echo does, without a listener.
func newTestServer(t *testing.T, o options) (*server, *journal) {
	t.Helper()
	if o.listen == "" {
		o.listen = "127.0.0.1:0"
	}
	if o.path == "" {
		o.path = "/"
	}
	require.NoError(t, o.check())
	o.uid = os.Geteuid()
	root := settingsOf(t, nil)
	withFlags(root)
	log := &journal{}
	fleets, err := newFleets(root, o.contexts, o.allowActs, log.logger())
	require.NoError(t, err)
	s := &server{options: o, fleets: fleets, open: echo, log: log.logger(), out: io.Discard, stopping: t.Context()}
	_, _, err = s.load()
	require.NoError(t, err)
	s.checker.Compare = compareQuickly
	t.Cleanup(s.sessions.Close)
	for _, f := range fleets {
		f.handler, _, _ = echo(t.Context(), f)
	}
	return s, log
}

// client is a browser with cookies, whose requests need no network.
type client struct {
	t       *testing.T
	handler http.Handler
	from    string
	host    string
	header  http.Header
	cookies map[string]*http.Cookie
}

func newClient(t *testing.T, s *server) *client {
	return &client{t: t, handler: s.handler(), from: "127.0.0.1:1234", host: "127.0.0.1:7682", header: http.Header{}, cookies: map[string]*http.Cookie{}}
}

// send sends a request, and keeps the cookies of the answer.
func (c *client) send(method, path string, form url.Values) *httptest.ResponseRecorder {
	c.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(form.Encode()))
	r.RemoteAddr, r.Host, r.Header = c.from, c.host, c.header.Clone()
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, cookie := range c.cookies {
		r.AddCookie(cookie)
	}
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, r)
	for _, cookie := range w.Result().Cookies() {
		if c.cookies[cookie.Name] = cookie; cookie.MaxAge < 0 {
			delete(c.cookies, cookie.Name)
		}
	}
	return w
}

func (c *client) get(path string) *httptest.ResponseRecorder {
	c.t.Helper()
	return c.send("GET", path, nil)
}

// login logs in.
func (c *client) login(name, password string) *httptest.ResponseRecorder {
	c.t.Helper()
	return c.send("POST", "/-/login", url.Values{"name": {name}, "password": {password}})
}
