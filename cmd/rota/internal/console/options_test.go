package console

import (
	"io"
	"net/http/httptest"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
)

// withFlags gives settings their defaults, as the root command does.
func withFlags(s *settings.Settings) *cobra.Command {
	root := &cobra.Command{Use: "rota", SilenceErrors: true, SilenceUsage: true}
	s.AddFlags(root)
	root.AddCommand(Command(s))
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	return root
}

// TestOptions_Start has each combination of an address, TLS, users and a proxy. The others are refused, with the reason.
func TestOptions_Start(t *testing.T) {
	const (
		noUsers = "name who may look"
		noTLS   = "in the clear"
		noName  = "--proxy-from needs --users or --proxy-header"
		noProxy = "--proxy-header needs --proxy-from"
		noRoles = "--proxy-header needs the roles"
		noActor = "--allow-acts needs --users"
	)
	tls := func(o *options) { o.tlsCert, o.tlsKey = "cert", "key" }
	users := func(o *options) { o.users = "users" }
	from := func(o *options) { o.proxyFrom = []string{"10.0.0.0/8", "::1"} }
	header := func(o *options) { o.proxyHeader = "X-Forwarded-User" }
	roles := func(o *options) { o.proxyRoles = "X-Roles" }
	acts := func(o *options) { o.allowActs = true }
	for _, c := range []struct {
		name         string
		with         []func(*options)
		local, world string // why it is refused on 127.0.0.1, and on all addresses; empty if it starts
	}{
		{"nothing", nil, "", noUsers},
		{"TLS", []func(*options){tls}, "", noUsers},
		{"users", []func(*options){users}, "", noTLS},
		{"users, TLS", []func(*options){users, tls}, "", ""},
		{"users, proxy", []func(*options){users, from}, "", ""},
		{"users, proxy, TLS", []func(*options){users, from, tls}, "", ""},
		{"proxy", []func(*options){from}, noName, noUsers},
		{"proxy, TLS", []func(*options){from, tls}, noName, noUsers},
		{"header", []func(*options){header}, noProxy, noProxy},
		{"header, TLS", []func(*options){header, tls}, noProxy, noProxy},
		{"header, users", []func(*options){header, users}, noProxy, noProxy},
		{"header, users, TLS", []func(*options){header, users, tls}, noProxy, noProxy},
		{"header, proxy", []func(*options){header, from}, noRoles, noRoles},
		{"header, proxy, TLS", []func(*options){header, from, tls}, noRoles, noRoles},
		{"header, proxy, users", []func(*options){header, from, users}, "", ""},
		{"header, proxy, users, TLS", []func(*options){header, from, users, tls}, "", ""},
		{"header, proxy, roles", []func(*options){header, from, roles}, "", ""},
		{"header, proxy, roles, TLS", []func(*options){header, from, roles, tls}, "", ""},
		{"header, proxy, roles, users", []func(*options){header, from, roles, users}, "both give roles", "both give roles"},
		{"roles", []func(*options){roles}, "--proxy-roles needs --proxy-header", "--proxy-roles needs --proxy-header"},
		{"acts", []func(*options){acts}, noActor, noUsers},
		{"acts, TLS", []func(*options){acts, tls}, noActor, noUsers},
		{"acts, users", []func(*options){acts, users}, "", noTLS},
		{"acts, users, TLS", []func(*options){acts, users, tls}, "", ""},
		{"acts, header, proxy, roles", []func(*options){acts, header, from, roles}, "", ""},
	} {
		for address, want := range map[string]string{
			"127.0.0.1:7682": c.local, "[::1]:7682": c.local, "localhost:7682": c.local,
			":7682": c.world, "0.0.0.0:7682": c.world, "[::]:7682": c.world, "10.1.2.3:7682": c.world,
		} {
			o := options{listen: address, path: "/"}
			for _, set := range c.with {
				set(&o)
			}
			err := o.check()
			if want == "" {
				assert.NoError(t, err, "%s on %s", c.name, address)
				continue
			}
			require.ErrorContains(t, err, want, "%s on %s", c.name, address)
			assert.Equal(t, exit.Usage, exit.CodeOf(err))
		}
	}
}

func TestOptions_RefuseWhatIsWrong(t *testing.T) {
	for want, o := range map[string]options{
		"not HOST:PORT":                      {listen: "127.0.0.1"},
		"not a path such as /rota/":          {path: "/rota"},
		`--path is "//a/"`:                   {path: "//a/"},
		`--path is "/../"`:                   {path: "/../"},
		`--path is "/a b/"`:                  {path: "/a b/"},
		"--tls-cert and --tls-key belong":    {tlsKey: "key"},
		"neither an address nor a prefix":    {proxyFrom: []string{"proxy"}},
		`--proxy-from is "0.0.0.0/0", which`: {proxyFrom: []string{"0.0.0.0/0"}},
		`--proxy-from is "::/0", which is`:   {proxyFrom: []string{"::/0"}},
		"not the name of a header":           {proxyHeader: "X User", proxyFrom: []string{"10.0.0.1"}},
		"--proxy-header are the same header": {proxyHeader: "X-User", proxyRoles: "x-user", proxyFrom: []string{"10.0.0.1"}},
	} {
		if o.listen == "" {
			o.listen = "127.0.0.1:0"
		}
		if o.path == "" {
			o.path = "/"
		}
		assert.ErrorContains(t, o.check(), want)
	}
}

// The address of a client is the last one that no proxy has: the others are the client's own statements.
func TestOptions_ClientOf(t *testing.T) {
	o := options{listen: ":1", path: "/", users: "users", proxyFrom: []string{"10.0.0.0/8", "fd00::/8"}}
	require.NoError(t, o.check())
	for _, c := range []struct {
		from string
		hops []string
		want string
	}{
		{"192.0.2.1:1", []string{"198.51.100.7"}, "192.0.2.1"},
		{"10.0.0.1:1", nil, "10.0.0.1"},
		{"10.0.0.1:1", []string{"198.51.100.7"}, "198.51.100.7"},
		{"10.0.0.1:1", []string{"203.0.113.9, 198.51.100.7"}, "198.51.100.7"},
		{"10.0.0.1:1", []string{"203.0.113.9", "198.51.100.7, 10.2.2.2"}, "198.51.100.7"},
		{"10.0.0.1:1", []string{"nonsense"}, "10.0.0.1"},
		{"10.0.0.1:1", []string{"nonsense, 10.2.2.2"}, "10.2.2.2"},
		{"[fd00::1]:1", []string{"2001:db8:1:2:3:4:5:6"}, "2001:db8:1:2::/64"},
		{"[::ffff:10.0.0.1]:1", []string{"::ffff:198.51.100.7"}, "198.51.100.7"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = c.from
		r.Header["X-Forwarded-For"] = c.hops
		assert.Equal(t, c.want, o.clientOf(r), "%v", c)
	}
}
