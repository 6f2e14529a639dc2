package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/rota-dev/rota/cmd/rota/internal/console/account"
	"github.com/rota-dev/rota/web"
)

// identity is who makes a request.
type identity struct {
	name  string
	roles account.Roles
	// session is that of a login, nil without one.
	session *account.Session
	// token reports that a program has come in with one. ends ends when it may not go on to read, at expires at the latest if that is set.
	token   bool
	ends    context.Context
	expires time.Time
}

// errNoLogin is the error of a request without a session, which a login mends.
var errNoLogin = errors.New("nobody is logged in")

// access finds who makes a request.
type access interface {
	identify(r *http.Request) (identity, error)
}

// localAccess lets this host look.
type localAccess struct{}

func (localAccess) identify(r *http.Request) (identity, error) {
	if err := web.CheckLocal(r); err != nil {
		return identity{}, fmt.Errorf("%w, and the console has no users", err)
	}
	return identity{name: "local", roles: account.Roles{account.AnyNamespace: web.Look}}, nil
}

// loginAccess knows users by their sessions.
type loginAccess struct {
	users    func() *account.Users
	sessions *account.Sessions
}

func (a loginAccess) identify(r *http.Request) (identity, error) {
	for _, cookie := range r.CookiesNamed(sessionCookie) {
		session, ok := a.sessions.Find(cookie.Value)
		if !ok {
			continue
		}
		if user, ok := a.users().Find(session.User); ok { // else the session is about to end
			return identity{name: user.Name, roles: user.Roles, session: session, ends: session.Context}, nil
		}
	}
	return identity{}, errNoLogin
}

// tokenAccess knows programs by their tokens, and leaves other requests to another access. A request with a token is never known by a
// cookie or a header of a proxy.
type tokenAccess struct {
	options *options
	users   func() *account.Users
	others  access
}

func (a tokenAccess) identify(r *http.Request) (identity, error) {
	secret, ok := a.options.tokenOf(r)
	if !ok {
		return a.others.identify(r)
	}
	users := a.users()
	t, err := users.FindToken(secret, time.Now())
	if err != nil {
		return identity{}, err
	}
	return identity{name: t.Name, roles: t.Roles, token: true, ends: users.Replaced, expires: t.Expires}, nil
}

// tokenOf returns the token of a request. A proxy that names the users may pass tokens of its own on, which are not the console's.
func (o *options) tokenOf(r *http.Request) (secret string, ok bool) {
	if o.users == "" {
		return "", false
	}
	for _, value := range r.Header.Values("Authorization") {
		scheme, rest, _ := strings.Cut(value, " ")
		if rest = strings.TrimSpace(rest); strings.EqualFold(scheme, "Bearer") && (o.proxyHeader == "" || strings.HasPrefix(rest, account.TokenPrefix)) {
			return rest, true
		}
	}
	return "", false
}

// proxyAccess knows users by the headers of a proxy.
type proxyAccess struct {
	options *options
	users   func() *account.Users // without --proxy-roles
}

func (a proxyAccess) identify(r *http.Request) (identity, error) {
	// Another client has not come this far, see server.admit.
	if addr, err := addrOf(r); err != nil || !a.options.isProxy(addr) {
		return identity{}, fmt.Errorf("%s is not a proxy", r.RemoteAddr)
	}
	name, err := singleHeader(r.Header, a.options.proxyHeader)
	if err != nil {
		return identity{}, err
	}
	if strings.Contains(name, ",") {
		return identity{}, fmt.Errorf("the header %s has several values", a.options.proxyHeader)
	}
	if err := account.CheckName(name); err != nil {
		return identity{}, fmt.Errorf("the header %s: %w", a.options.proxyHeader, err)
	}
	if a.options.proxyRoles == "" {
		user, _ := a.users().Find(name) // one that is not there has no roles
		return identity{name: name, roles: user.Roles}, nil
	}
	text, err := singleHeader(r.Header, a.options.proxyRoles)
	if err != nil {
		return identity{}, err
	}
	roles, err := account.ParseRoles(text)
	if err != nil {
		return identity{}, fmt.Errorf("the header %s: %w", a.options.proxyRoles, err)
	}
	return identity{name: name, roles: roles}, nil
}

// singleHeader returns the value of a header. A second one may be of the client, which the proxy has passed on beside its own.
func singleHeader(h http.Header, name string) (string, error) {
	switch values := h.Values(name); len(values) {
	case 0:
		return "", fmt.Errorf("the proxy sent no header %s", name)
	case 1:
		return values[0], nil
	}
	return "", fmt.Errorf("the header %s has several values", name)
}

// identityKey is the key of the identity in the context of a request.
type identityKey struct{}

func withIdentity(ctx context.Context, id identity) context.Context {
	return context.WithValue(ctx, identityKey{}, id)
}

// identityOf returns who makes a request that has been admitted.
func identityOf(r *http.Request) identity {
	id, _ := r.Context().Value(identityKey{}).(identity)
	return id
}

// clientOf returns the address that a request comes from: with a proxy, the last one in X-Forwarded-For that is not a proxy's. Of an
// IPv6 address it is the network, of which one client has all addresses.
func (o *options) clientOf(r *http.Request) string {
	client, err := addrOf(r)
	if err != nil {
		return "unknown"
	}
	if o.isProxy(client) {
		hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
		for i := len(hops) - 1; i >= 0 && o.isProxy(client); i-- {
			hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
			if err != nil {
				break
			}
			client = hop.Unmap().WithZone("")
		}
	}
	if client.Is6() {
		network, _ := client.Prefix(64)
		return network.String()
	}
	return client.String()
}
