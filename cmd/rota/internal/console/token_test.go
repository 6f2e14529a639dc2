package console

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/console/account"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
	"github.com/rota-dev/rota/web"
)

// tokenFile writes a file with the users of usersFile and a token that operates billing, and returns the token.
func tokenFile(t *testing.T, expires time.Time) (path, secret string) {
	t.Helper()
	path = usersFile(t)
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	secret, entry, err := account.NewToken("deploys", account.Roles{"billing": web.Operate}, expires)
	require.NoError(t, err)
	writeUsers(t, path, strings.TrimPrefix(string(before), "users:\n")+"tokens:\n"+entry)
	return path, secret
}

// bearer sets the token of further requests.
func (c *client) bearer(secret string) { c.header.Set("Authorization", "Bearer "+secret) }

func TestToken_LetsAProgramUseTheAPI(t *testing.T) {
	path, secret := tokenFile(t, time.Time{})
	s, log := newTestServer(t, options{users: path, contexts: []string{"billing", "search"}})
	c := newClient(t, s)
	c.bearer(secret)
	for _, header := range []string{"Bearer " + secret, "bearer " + secret, "Bearer  " + secret} {
		c.header.Set("Authorization", header)
		assert.Equal(t, "billing /api/v1/jobs deploys operate Authorization", c.get("/billing/api/v1/jobs").Body.String())
	}
	assert.Equal(t, http.StatusForbidden, c.get("/search/api/v1/jobs").Code, "it has no role there")
	for _, path := range []string{"/", "/billing/", "/billing/jobs/a", "/billing/act/pause", "/billing/api", "/billing/api/v2/jobs"} {
		assert.Equal(t, http.StatusForbidden, c.get(path).Code, "%s is for people", path)
	}
	assert.Equal(t, http.StatusForbidden, c.send("POST", "/billing/act/pause", url.Values{}).Code)
	assert.NotContains(t, log.String(), secret)
}

func TestToken_OfNobodyIsRefused(t *testing.T) {
	path, secret := tokenFile(t, time.Time{})
	s, log := newTestServer(t, options{users: path})
	c := newClient(t, s)
	for _, wrong := range []string{"", "x", secret + "x", secret[1:], account.TokenPrefix} {
		c.bearer(wrong)
		w := c.get("/billing/api/v1/jobs")
		assert.Equal(t, http.StatusUnauthorized, w.Code, wrong)
		assert.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
		assert.Equal(t, "Bearer", w.Header().Get("WWW-Authenticate"))
	}
	assert.NotContains(t, log.String(), secret)
	c.header.Set("Authorization", "Basic "+secret)
	assert.Equal(t, http.StatusUnauthorized, c.get("/billing/api/v1/jobs").Code)
}

// A token alone identifies its request: cookies add nothing.
func TestToken_AndCookiesDoNotMix(t *testing.T) {
	path, secret := tokenFile(t, time.Time{})
	s, _ := newTestServer(t, options{users: path, contexts: []string{"billing", "search"}})
	c := newClient(t, s)
	require.Equal(t, http.StatusSeeOther, c.login("kim", password).Code)
	require.Contains(t, c.get("/billing/api/v1/jobs").Body.String(), "kim admin")
	c.bearer(secret)
	assert.Contains(t, c.get("/billing/api/v1/jobs").Body.String(), "deploys operate")
	assert.Equal(t, http.StatusForbidden, c.get("/search/api/v1/jobs").Code, "the cookie adds no role")
	c.bearer("wrong")
	assert.Equal(t, http.StatusUnauthorized, c.get("/billing/api/v1/jobs").Code, "the cookie does not help")
	assert.Equal(t, http.StatusUnauthorized, c.get("/billing/").Code)
}

// A browser adds no token by itself, so a request with one needs no protection from other sites. One with cookies does.
func TestToken_NeedsNoOrigin(t *testing.T) {
	path, secret := tokenFile(t, time.Time{})
	s, _ := newTestServer(t, options{users: path})
	for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
		c := newClient(t, s)
		require.Equal(t, http.StatusSeeOther, c.login("kim", password).Code)
		c.header.Set(header, value)
		assert.Equal(t, http.StatusForbidden, c.send("POST", "/billing/api/v1/jobs/a/pause", nil).Code, "with the cookie")
		c.bearer(secret)
		assert.Contains(t, c.send("POST", "/billing/api/v1/jobs/a/pause", nil).Body.String(), "deploys operate")
		for _, path := range []string{"/-/login", "/-/logout", "/billing/act/pause"} {
			assert.Equal(t, http.StatusForbidden, c.send("POST", path, url.Values{}).Code, path)
		}
	}
}

func TestToken_BehindAProxy(t *testing.T) {
	path, secret := tokenFile(t, time.Time{})
	s, _ := newTestServer(t, options{listen: ":0", users: path, proxyHeader: "X-Forwarded-User", proxyFrom: []string{"10.0.0.0/8"}})
	c := proxied(newClient(t, s))
	c.bearer(secret)
	assert.Contains(t, c.get("/billing/api/v1/jobs").Body.String(), "deploys operate")
	c.header.Set("X-Forwarded-User", "lee")
	assert.Contains(t, c.get("/billing/api/v1/jobs").Body.String(), "deploys operate")
	c.bearer("a-token-of-the-proxy")
	assert.Contains(t, c.get("/billing/api/v1/jobs").Body.String(), "lee look")
	c.bearer(account.TokenPrefix + "wrong")
	assert.Equal(t, http.StatusUnauthorized, c.get("/billing/api/v1/jobs").Code, "the header of the proxy does not help")
	direct := newClient(t, s)
	direct.bearer(secret)
	assert.Equal(t, http.StatusForbidden, direct.get("/billing/api/v1/jobs").Code, "only the proxy may connect")
}

func TestToken_WithoutUsersIsNothing(t *testing.T) {
	s, _ := newTestServer(t, options{})
	c := newClient(t, s)
	c.bearer("rota_x")
	assert.Contains(t, c.get("/billing/api/v1/jobs").Body.String(), "local look")
	c.header.Set("Sec-Fetch-Site", "cross-site")
	assert.Equal(t, http.StatusForbidden, c.send("POST", "/billing/api/v1/jobs/a/pause", nil).Code)
}

// A stream ends when its token expires, and when the file changes: the token may be gone.
func TestToken_EndsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, secret := tokenFile(t, time.Now().Add(5*time.Minute))
		s, _ := newTestServer(t, options{users: path})
		s.fleets[0].handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		stream := func() (ended chan struct{}) {
			c := newClient(t, s)
			c.bearer(secret)
			ended = make(chan struct{})
			go func() {
				defer close(ended)
				c.get("/billing/api/v1/watch")
			}()
			time.Sleep(time.Minute)
			return ended
		}
		began := time.Now()
		ended := stream()
		users, err := s.readUsers()
		require.NoError(t, err)
		s.replaceUsers(users)
		<-ended
		assert.Equal(t, time.Minute, time.Since(began), "the file")
		<-stream()
		assert.Equal(t, 5*time.Minute, time.Since(began), "the end of its time")
		c := newClient(t, s)
		c.bearer(secret)
		w := c.get("/billing/api/v1/jobs")
		assert.Equal(t, http.StatusUnauthorized, w.Code)
		assert.Contains(t, w.Body.String(), "the token has expired")
	})
}

// The acts of a program are on record under the name of its token.
func TestToken_IsTheAuthorOfActs(t *testing.T) {
	store := memory.New()
	ex, err := executor.New(store.Client("a"), "billing", executor.Options{Instance: "a"})
	require.NoError(t, err)
	require.NoError(t, ex.Register(executor.Job{Name: "settle", Schedule: schedule.Every(time.Hour), Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil })}))
	require.NoError(t, ex.Start(t.Context()))
	t.Cleanup(func() { _ = ex.Shutdown(t.Context()) })
	path, secret := tokenFile(t, time.Time{})
	s, _ := newRealServer(t, options{users: path, allowActs: true}, func(string, registryurl.Options) (registry.Registry, error) { return store.Client("web"), nil })
	address, _ := start(t, s)
	c := browser(t)
	post := func(verb, secret string) int {
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+address+"/billing/api/v1/jobs/settle/"+verb, strings.NewReader(`{"reason": "quarter end"}`))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+secret)
		r.Header.Set("Origin", "https://elsewhere.example")
		resp, err := c.Do(r)
		require.NoError(t, err)
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	require.Eventually(t, func() bool { return post("pause", secret) == http.StatusOK }, time.Minute, 50*time.Millisecond)
	assert.Equal(t, http.StatusForbidden, post("retire", secret), "which needs the role admin")
	assert.Equal(t, http.StatusUnauthorized, post("resume", secret+"x"))
	op, err := operator.New(store.Client("test"), "billing", "")
	require.NoError(t, err)
	acts, err := op.Acts(t.Context(), "settle")
	require.NoError(t, err)
	require.Len(t, acts, 1)
	assert.Equal(t, "deploys quarter end", acts[0].By+" "+acts[0].Reason)
}

func TestTokenCommand(t *testing.T) {
	root := withFlags(settingsOf(t, nil))
	var out, told bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&told)
	root.SetArgs([]string{"web", "token", "deploys", "--roles", "look,billing=operate", "--expires", "90d"})
	require.NoError(t, root.ExecuteContext(t.Context()))
	path := filepath.Join(t.TempDir(), "users.yaml")
	require.NoError(t, os.WriteFile(path, []byte("tokens:\n"+out.String()), 0o600))
	users, err := (&options{users: path, uid: os.Geteuid()}).readUsers()
	require.NoError(t, err, out.String())
	secret := strings.TrimSpace(told.String()[strings.LastIndex(told.String(), " "):])
	assert.NotContains(t, out.String(), secret)
	found, err := users.FindToken(secret, time.Now())
	require.NoError(t, err)
	assert.Equal(t, "deploys", found.Name)
	assert.Equal(t, web.Operate, found.Roles.In("billing"))
	assert.WithinDuration(t, time.Now().Add(90*24*time.Hour), found.Expires, time.Minute)

	for want, args := range map[string][]string{
		`required flag(s) "roles" not set`: {"x"},
		"--roles: role is \"root\"":        {"x", "--roles", "root"},
		"--expires is \"soon\"":            {"x", "--roles", "look", "--expires", "soon"},
		"--expires is \"0s\"":              {"x", "--roles", "look", "--expires", "0s"},
		"the name is empty":                {"", "--roles", "look"},
	} {
		root := withFlags(settingsOf(t, nil))
		root.SetArgs(append([]string{"web", "token"}, args...))
		assert.ErrorContains(t, root.ExecuteContext(t.Context()), want)
	}
}

// The answer to a refused token is a problem as those of the API.
func TestToken_RefusalIsAProblem(t *testing.T) {
	path, _ := tokenFile(t, time.Time{})
	s, _ := newTestServer(t, options{users: path})
	c := newClient(t, s)
	c.bearer("rota_wrong")
	var p struct{ Type, Detail string }
	require.NoError(t, json.Unmarshal(c.get("/billing/api/v1/jobs").Body.Bytes(), &p))
	assert.Equal(t, "urn:rota:problem:unauthorized", p.Type)
	assert.Contains(t, p.Detail, "the token is not known")
}
