package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/web"
)

func TestLogin(t *testing.T) {
	s, log := newTestServer(t, options{users: usersFile(t), contexts: []string{"billing", "search"}})
	c := newClient(t, s)
	c.header.Set("Sec-Fetch-Mode", "navigate")
	w := c.get("/billing/jobs/settle?q=a&b=c")
	require.Equal(t, http.StatusSeeOther, w.Code)
	location := w.Header().Get("Location")
	assert.Equal(t, "/-/login?next=%2Fbilling%2Fjobs%2Fsettle%3Fq%3Da%26b%3Dc", location)
	w = c.get(location)
	require.Equal(t, http.StatusOK, w.Code)
	assert.Contains(t, w.Body.String(), `value="/billing/jobs/settle?q=a&amp;b=c"`)
	assert.NotContains(t, w.Body.String(), "<script")
	assert.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'")

	w = c.send("POST", "/-/login", url.Values{"name": {"lee"}, "password": {password}, "next": {"/billing/jobs/settle?q=a&b=c"}})
	require.Equal(t, http.StatusSeeOther, w.Code, w.Body)
	assert.Equal(t, "/billing/jobs/settle?q=a&b=c", w.Header().Get("Location"))
	cookie := c.cookies[sessionCookie]
	require.NotNil(t, cookie)
	assert.True(t, cookie.HttpOnly)
	assert.Equal(t, http.SameSiteStrictMode, cookie.SameSite)
	assert.Equal(t, "/", cookie.Path)
	assert.Len(t, cookie.Value, 43, "256 bits")

	w = c.get("/billing/jobs/settle")
	assert.Equal(t, "billing /jobs/settle lee look Sec-Fetch-Mode", w.Body.String(), "the page does not get the cookie")
	w = c.get("/search/")
	assert.Equal(t, http.StatusForbidden, w.Code)
	w = c.get("/")
	assert.Contains(t, w.Body.String(), ">billing</a>")
	assert.NotContains(t, w.Body.String(), "search", "a fleet without a role is not in the list")
	assert.Equal(t, http.StatusSeeOther, c.get("/-/login").Code, "who has logged in does not log in again")
	assert.Contains(t, log.String(), `msg="a user has logged in" user=lee address=127.0.0.1`)
	assert.NotContains(t, log.String(), password)
	assert.NotContains(t, log.String(), cookie.Value)
}

func TestLogin_AnswersWrongAndUnknownAlike(t *testing.T) {
	s, _ := newTestServer(t, options{users: usersFile(t)})
	var texts []string
	for _, name := range []string{"kim", "nix"} {
		c := newClient(t, s)
		w := c.login(name, "wrong password")
		assert.Equal(t, http.StatusUnauthorized, w.Code)
		assert.Empty(t, c.cookies)
		texts = append(texts, strings.ReplaceAll(w.Body.String(), name, "NAME"))
	}
	assert.Equal(t, texts[0], texts[1])
	assert.Contains(t, texts[0], "Name or password is wrong.")
}

func TestLogin_IsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := newTestServer(t, options{users: usersFile(t)})
		c := newClient(t, s)
		for range 10 {
			require.Equal(t, http.StatusUnauthorized, c.login("kim", "").Code)
		}
		w := c.login("kim", password)
		require.Equal(t, http.StatusTooManyRequests, w.Code, "also with the right password")
		assert.Contains(t, w.Body.String(), "There were too many attempts; the next is possible in 30s.")
		assert.Equal(t, "31", w.Header().Get("Retry-After"))
		c.from = "127.0.0.2:1"
		assert.Equal(t, http.StatusSeeOther, c.login("lee", password).Code, "another user")
		assert.Equal(t, 10, strings.Count(log.String(), "msg=\"refused a login\""), "the log is bounded as the attempts are")
		time.Sleep(30 * time.Second)
		assert.Equal(t, http.StatusSeeOther, c.login("kim", password).Code)
	})
}

func TestLogin_Expires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newTestServer(t, options{users: usersFile(t)})
		c := newClient(t, s)
		require.Equal(t, http.StatusSeeOther, c.login("kim", password).Code)
		for range 11 {
			time.Sleep(59 * time.Minute)
			require.Equal(t, http.StatusOK, c.get("/billing/").Code)
		}
		time.Sleep(time.Hour)
		assert.Equal(t, http.StatusUnauthorized, c.get("/billing/").Code, "idle for an hour")
		require.Equal(t, http.StatusSeeOther, c.login("kim", password).Code)
		for range 23 {
			time.Sleep(30 * time.Minute)
			require.Equal(t, http.StatusOK, c.get("/billing/").Code)
		}
		time.Sleep(30 * time.Minute)
		assert.Equal(t, http.StatusUnauthorized, c.get("/billing/").Code, "12 hours after the login")
	})
}

// A session that another hand has put into the browser is not the one that a login makes.
func TestLogin_MakesANewSession(t *testing.T) {
	s, _ := newTestServer(t, options{users: usersFile(t)})
	attacker, victim := newClient(t, s), newClient(t, s)
	for _, planted := range []string{"made up", ""} {
		if planted == "" {
			require.Equal(t, http.StatusSeeOther, attacker.login("lee", password).Code)
			planted = attacker.cookies[sessionCookie].Value
		}
		victim.cookies[sessionCookie] = &http.Cookie{Name: sessionCookie, Value: planted}
		require.Equal(t, http.StatusSeeOther, victim.login("kim", password).Code)
		assert.NotEqual(t, planted, victim.cookies[sessionCookie].Value)
		attacker.cookies[sessionCookie] = &http.Cookie{Name: sessionCookie, Value: planted}
		assert.Equal(t, http.StatusUnauthorized, attacker.get("/billing/").Code, "the planted session has ended")
	}
}

func TestLogout_EndsAStolenSession(t *testing.T) {
	s, _ := newTestServer(t, options{users: usersFile(t)})
	c, thief := newClient(t, s), newClient(t, s)
	require.Equal(t, http.StatusSeeOther, c.login("kim", password).Code)
	thief.cookies[sessionCookie] = c.cookies[sessionCookie]
	require.Equal(t, http.StatusOK, thief.get("/billing/").Code)
	assert.Equal(t, http.StatusOK, c.get("/-/logout").Code)
	require.Equal(t, http.StatusOK, thief.get("/billing/").Code, "to look at the form ends nothing")
	w := c.send("POST", "/-/logout", url.Values{})
	require.Equal(t, http.StatusSeeOther, w.Code)
	assert.Empty(t, c.cookies)
	assert.Equal(t, http.StatusUnauthorized, thief.get("/billing/").Code)
	assert.Equal(t, http.StatusSeeOther, c.send("POST", "/-/logout", url.Values{}).Code, "without a session")
}

// A stream that is open ends with the session, at a logout as at the end of its time.
func TestLogout_EndsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newTestServer(t, options{users: usersFile(t)})
		s.fleets[0].handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		for name, end := range map[string]func(c *client){
			"logout": func(c *client) { c.send("POST", "/-/logout", url.Values{}) },
			"end":    func(*client) { s.sessions.Close() },
		} {
			c := newClient(t, s)
			require.Equal(t, http.StatusSeeOther, c.login("kim", password).Code)
			began := time.Now()
			ended := make(chan struct{})
			stream := *c
			go func() {
				defer close(ended)
				stream.get("/billing/events")
			}()
			time.Sleep(time.Minute)
			end(c)
			<-ended
			assert.Equal(t, time.Minute, time.Since(began), name)
		}
	})
}

// A page of another site can make a browser send a form.
func TestLogin_RefusesOtherSites(t *testing.T) {
	s, _ := newTestServer(t, options{users: usersFile(t)})
	c := newClient(t, s)
	require.Equal(t, http.StatusSeeOther, c.login("kim", password).Code)
	for header, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"} {
		c.header = http.Header{header: {value}}
		for _, path := range []string{"/-/login", "/-/logout", "/billing/act/pause-all"} {
			assert.Equal(t, http.StatusForbidden, c.send("POST", path, url.Values{}).Code, "%s with %s", path, header)
		}
	}
	c.header = http.Header{"Sec-Fetch-Site": {"same-origin"}}
	assert.Equal(t, http.StatusOK, c.send("POST", "/billing/act/pause-all", url.Values{}).Code)
}

// The cookie does not come with a link of another site, so this site asks for the page first.
func TestLogin_FollowsALinkOfAnotherSite(t *testing.T) {
	s, _ := newTestServer(t, options{users: usersFile(t)})
	c := newClient(t, s)
	c.header = http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"navigate"}}
	w := c.get("/billing/jobs/a")
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Contains(t, w.Body.String(), `<meta http-equiv="refresh" content="0; url=/-/login?next=%2Fbilling%2Fjobs%2Fa">`)
	c.header.Set("Sec-Fetch-Site", "same-origin")
	require.Equal(t, http.StatusOK, c.get("/-/login?next=%2Fbilling%2Fjobs%2Fa").Code)
	require.Equal(t, http.StatusSeeOther, c.login("kim", password).Code)
	assert.Equal(t, "/billing/jobs/a", c.get("/-/login?next=%2Fbilling%2Fjobs%2Fa").Header().Get("Location"), "the cookie has come")
}

func TestLogin_LeadsNowhereElse(t *testing.T) {
	s, _ := newTestServer(t, options{users: usersFile(t), path: "/rota/"})
	for next, want := range map[string]string{
		"":                          "/rota/",
		"/rota/billing/?q=1":        "/rota/billing/?q=1",
		"/other/":                   "/rota/",
		"//evil.example/rota/":      "/rota/",
		"https://evil.example/rota": "/rota/",
		`/rota/\evil.example`:       "/rota/",
		`\\evil.example/rota/`:      "/rota/",
		"javascript:alert(1)":       "/rota/",
		"/rota/%0d%0aSet-Cookie:x":  "/rota/%0d%0aSet-Cookie:x",
		"/rota/\r\nSet-Cookie: x":   "/rota/",
	} {
		assert.Equal(t, want, s.localPath(next), next)
	}
}

// Roles and passwords are those of the file, at any time.
func TestLogin_FollowsTheFile(t *testing.T) {
	path := usersFile(t)
	s, _ := newTestServer(t, options{users: path})
	files, _, err := s.load()
	require.NoError(t, err)
	s.checker.Compare = compareQuickly
	c := newClient(t, s)
	require.Equal(t, http.StatusSeeOther, c.login("kim", password).Code)
	assert.Contains(t, c.get("/billing/").Body.String(), "kim admin")

	refresh := func() {
		t.Helper()
		changed, err := files[0].refresh()
		require.NoError(t, err)
		require.True(t, changed)
	}
	writeUsers(t, path, "- {name: kim, hash: "+passwordHash()+", roles: {billing: look}}\n")
	refresh()
	assert.Contains(t, c.get("/billing/").Body.String(), "kim look")
	writeUsers(t, path, "- {name: kim, hash: "+passwordHash()+", roles: {search: look}}\n")
	refresh()
	assert.Equal(t, http.StatusForbidden, c.get("/billing/").Code)
	assert.Equal(t, http.StatusForbidden, c.get("/").Code, "no role in any fleet")

	// A file that is wrong changes nothing; a removed user is out.
	writeUsers(t, path, "- {name: kim, hash: "+passwordHash()+", roles: {billing: root}}\n")
	_, err = files[0].refresh()
	require.ErrorContains(t, err, "root")
	assert.Equal(t, http.StatusForbidden, c.get("/billing/").Code)
	writeUsers(t, path, "- {name: lee, hash: "+passwordHash()+", roles: {billing: look}}\n")
	refresh()
	assert.Equal(t, http.StatusUnauthorized, c.get("/billing/").Code)
	require.Equal(t, http.StatusSeeOther, c.login("lee", password).Code)
	require.Equal(t, http.StatusOK, c.get("/billing/").Code)
	writeUsers(t, path, "- {name: lee, hash: "+strings.Replace(passwordHash(), "$10$", "$11$", 1)+", roles: {billing: look}}\n")
	refresh()
	assert.Equal(t, http.StatusUnauthorized, c.get("/billing/").Code, "another password")
	changed, err := files[0].refresh()
	require.NoError(t, err)
	assert.False(t, changed, "a file that has not changed is not read")
}

// The cookie goes over TLS only, unless this host alone is between.
func TestCookie_IsSecureWithTLS(t *testing.T) {
	for proto, want := range map[string]bool{"": true, "https": true, "http": false} {
		s, _ := newTestServer(t, options{users: usersFile(t), proxyFrom: []string{"127.0.0.1"}, path: "/rota/"})
		c := newClient(t, s)
		c.header = http.Header{"X-Forwarded-Proto": {proto}}
		w := c.send("POST", "/rota/-/login", url.Values{"name": {"kim"}, "password": {password}})
		require.Equal(t, http.StatusSeeOther, w.Code)
		assert.Equal(t, want, c.cookies[sessionCookie].Secure, proto)
		assert.Equal(t, "/rota/", c.cookies[sessionCookie].Path)
	}
	s, _ := newTestServer(t, options{users: usersFile(t)})
	c := newClient(t, s)
	c.header = http.Header{"X-Forwarded-Proto": {"https"}}
	require.Equal(t, http.StatusSeeOther, c.login("kim", password).Code)
	assert.False(t, c.cookies[sessionCookie].Secure, "a client that is no proxy states nothing")
}

func TestAPI_GetsProblems(t *testing.T) {
	s, _ := newTestServer(t, options{users: usersFile(t), contexts: []string{"billing", "search"}})
	w := newClient(t, s).get("/billing/api/v1/jobs")
	assert.Equal(t, http.StatusUnauthorized, w.Code)
	assert.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	assert.Contains(t, w.Body.String(), `"type": "urn:rota:problem:unauthorized"`)
}

// The own pages of the console and its problems have every header of a fleet's pages.
func TestHeaders_AreThoseOfAConsole(t *testing.T) {
	s, _ := newTestServer(t, options{users: usersFile(t), contexts: []string{"billing", "search"}})
	want := http.Header{}
	web.SetSecurityHeaders(want)
	require.Contains(t, want.Get("Content-Security-Policy"), "frame-ancestors 'none'")
	require.Equal(t, "DENY", want.Get("X-Frame-Options"))
	for _, path := range []string{"/-/login", "/", "/billing/", "/billing/api/v1/jobs", "/elsewhere"} {
		w := newClient(t, s).get(path)
		for name := range want {
			assert.Equal(t, want.Get(name), w.Header().Get(name), "%s of %s", name, path)
		}
	}
}
