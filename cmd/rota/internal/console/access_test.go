package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Without users, this host looks, and a page of another site whose name leads here gets nothing.
func TestLocal(t *testing.T) {
	s, _ := newTestServer(t, options{})
	for _, host := range []string{"127.0.0.1:7682", "localhost:7682", "[::1]:7682", "localhost", "127.0.0.5"} {
		c := newClient(t, s)
		c.host = host
		assert.Equal(t, "billing / local look", c.get("/billing/").Body.String(), host)
		assert.Equal(t, "/billing/", c.get("/").Header().Get("Location"), "one fleet needs no list")
	}
	for _, host := range []string{"evil.example", "evil.example:7682", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", ""} {
		c := newClient(t, s)
		c.host = host
		for _, path := range []string{"/billing/", "/"} {
			w := c.get(path)
			assert.Equal(t, http.StatusUnauthorized, w.Code, host)
			assert.NotContains(t, w.Body.String(), "billing", host)
		}
	}
	c := newClient(t, s)
	c.from = "10.0.0.1:1"
	assert.Equal(t, http.StatusUnauthorized, c.get("/billing/").Code)
	assert.Equal(t, http.StatusNotFound, newClient(t, s).get("/-/login").Code, "there is nobody to log in")
}

func TestProxy(t *testing.T) {
	withUsers := options{listen: ":0", users: usersFile(t), proxyHeader: "X-Forwarded-User", proxyFrom: []string{"10.0.0.0/8"}}
	withRoles := options{listen: ":0", proxyRoles: "X-Roles", proxyHeader: "X-Forwarded-User", proxyFrom: []string{"10.0.0.0/8"}}
	for name, c := range map[string]struct {
		o      options
		from   string
		header http.Header
		code   int
		want   string
	}{
		"a user of the file":           {withUsers, "10.0.0.1:1", http.Header{"X-Forwarded-User": {"lee"}}, 200, "billing / lee look"},
		"one that is not in the file":  {withUsers, "10.0.0.1:1", http.Header{"X-Forwarded-User": {"nix"}}, 403, "nix has no role"},
		"no name":                      {withUsers, "10.0.0.1:1", nil, 401, "sent no header X-Forwarded-User"},
		"an empty name":                {withUsers, "10.0.0.1:1", http.Header{"X-Forwarded-User": {""}}, 401, "the name is empty"},
		"two names":                    {withUsers, "10.0.0.1:1", http.Header{"X-Forwarded-User": {"lee", "kim"}}, 401, "several values"},
		"one name twice":               {withUsers, "10.0.0.1:1", http.Header{"X-Forwarded-User": {"lee", "lee"}}, 401, "several values"},
		"two names in a line":          {withUsers, "10.0.0.1:1", http.Header{"X-Forwarded-User": {"kim, lee"}}, 401, "several values"},
		"a strange name":               {withUsers, "10.0.0.1:1", http.Header{"X-Forwarded-User": {"k\tm"}}, 401, "not printed"},
		"roles that do not count":      {withUsers, "10.0.0.1:1", http.Header{"X-Forwarded-User": {"lee"}, "X-Roles": {"admin"}}, 200, "billing / lee look X-Roles"},
		"another address":              {withUsers, "192.0.2.1:1", http.Header{"X-Forwarded-User": {"kim"}}, 403, "not a proxy"},
		"another address, no header":   {withUsers, "192.0.2.1:1", nil, 403, "not a proxy"},
		"another one that names a hop": {withUsers, "192.0.2.1:1", http.Header{"X-Forwarded-User": {"kim"}, "X-Forwarded-For": {"10.0.0.1"}}, 403, "not a proxy"},
		"a proxy as IPv6 has it":       {withUsers, "[::ffff:10.0.0.1]:1", http.Header{"X-Forwarded-User": {"lee"}}, 200, "lee look"},
		"no address":                   {withUsers, "@", http.Header{"X-Forwarded-User": {"kim"}}, 403, "not a proxy"},
		"roles of a header":            {withRoles, "10.0.0.1:1", http.Header{"X-Forwarded-User": {"may"}, "X-Roles": {"look,billing=operate"}}, 200, "billing / may operate"},
		"two headers of roles":         {withRoles, "10.0.0.1:1", http.Header{"X-Forwarded-User": {"may"}, "X-Roles": {"look", "admin"}}, 401, "several values"},
		"no roles":                     {withRoles, "10.0.0.1:1", http.Header{"X-Forwarded-User": {"may"}}, 401, "sent no header X-Roles"},
		"an unknown role":              {withRoles, "10.0.0.1:1", http.Header{"X-Forwarded-User": {"may"}, "X-Roles": {"root"}}, 401, "root"},
		"a role elsewhere":             {withRoles, "10.0.0.1:1", http.Header{"X-Forwarded-User": {"may"}, "X-Roles": {"search=admin"}}, 403, "may has no role"},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newTestServer(t, c.o)
			client := newClient(t, s)
			client.from, client.host, client.header = c.from, "rota.example", c.header
			w := client.get("/billing/")
			assert.Equal(t, c.code, w.Code)
			assert.Contains(t, w.Body.String(), c.want)
			if w.Code == http.StatusOK {
				assert.NotContains(t, w.Body.String(), "X-Forwarded-User", "a page does not get the header")
			}
			assert.Equal(t, http.StatusNotFound, proxied(client).get("/-/login").Code)
		})
	}
}

// proxied returns a client behind the proxy.
func proxied(c *client) *client {
	with := *c
	with.from = "10.0.0.1:1"
	return &with
}

// Every page needs a user, also those of a fleet that is added later.
func TestPages_NeedAUser(t *testing.T) {
	s, _ := newTestServer(t, options{users: usersFile(t), contexts: []string{"billing", "search"}})
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"} {
		for _, path := range []string{"/", "/billing/", "/billing/events", "/billing/static/app.js", "/search/act/pause", "/search/../billing/", "/billing//", "/nothing"} {
			w := newClient(t, s).send(method, path, nil)
			assert.NotEqual(t, http.StatusOK, w.Code, "%s %s", method, path)
			assert.NotContains(t, w.Body.String(), "admin")
		}
	}
	assert.Equal(t, http.StatusOK, newClient(t, s).get("/-/style.css").Code)
}

func TestPages_BoundTheBody(t *testing.T) {
	s, _ := newTestServer(t, options{users: usersFile(t)})
	c := newClient(t, s)
	require.Equal(t, http.StatusBadRequest, c.send("POST", "/-/login", url.Values{"name": {strings.Repeat("x", maxLoginBytes)}}).Code)
	require.Equal(t, http.StatusSeeOther, c.login("kim", password).Code)
	var err error
	s.fleets[0].handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { err = r.ParseForm() })
	c.send("POST", "/billing/act/trigger", url.Values{"param": {strings.Repeat("x", maxBody/2)}})
	require.NoError(t, err)
	c.send("POST", "/billing/act/trigger", url.Values{"param": {strings.Repeat("x", maxBody)}})
	assert.Error(t, err)
}

// Names come from files and from other systems.
func TestPages_EscapeNames(t *testing.T) {
	s, _ := newTestServer(t, options{listen: ":0", proxyRoles: "X-Roles", proxyHeader: "X-User", proxyFrom: []string{"10.0.0.0/8"}, contexts: []string{"billing", "search"}})
	c := proxied(newClient(t, s))
	c.header = http.Header{"X-User": {`<script>"'`}, "X-Roles": {"look"}}
	w := c.get("/")
	require.Equal(t, http.StatusOK, w.Code)
	assert.NotContains(t, w.Body.String(), "<script")
	s.fleets[0].handler, s.fleets[0].problem = nil, `<img src=x>`
	w = c.get("/billing/")
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.NotContains(t, w.Body.String(), "<img")
}
