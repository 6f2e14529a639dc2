package console

import (
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"

	"github.com/rota-dev/rota/cmd/rota/internal/console/account"
	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/ownfile"
	"github.com/rota-dev/rota/cmd/rota/internal/port"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
)

// options are the flags of rota web.
type options struct {
	contexts        settings.Names
	listen, path    string
	allowActs       bool
	users           string
	tlsCert, tlsKey string
	proxyFrom       []string
	proxyHeader     string
	proxyRoles      string
	notify          []string // FILE or CONTEXT=FILE

	proxies []netip.Prefix // of proxyFrom
	uid     int            // who, besides root, may own the file of users
}

// maxUsersBytes bounds the file of users.
const maxUsersBytes = 1 << 20

// validPath matches the paths that the pages may have.
var validPath = regexp.MustCompile(`^/([A-Za-z0-9_~-][A-Za-z0-9._~-]*/)*$`)

// check completes the options. It returns an error, with the reason, for those with which the console would be open to strangers.
func (o *options) check() error {
	if err := port.CheckAddress("--listen", o.listen); err != nil {
		return err
	}
	if !validPath.MatchString(o.path) {
		return exit.Usagef("--path is %q, not a path such as /rota/, with a slash at both ends", o.path)
	}
	if (o.tlsCert == "") != (o.tlsKey == "") {
		return exit.Usagef("--tls-cert and --tls-key belong together")
	}
	if err := o.checkProxy(); err != nil {
		return err
	}
	named := o.users != "" || o.proxyHeader != ""
	switch loopback := port.IsLoopback(o.listen); {
	case !loopback && !named:
		return exit.Usagef("--listen is %q, which other hosts reach: name who may look, with --users, or with --proxy-header and --proxy-from", o.listen)
	case !loopback && o.tlsCert == "" && len(o.proxies) == 0:
		return exit.Usagef("--listen is %q, which other hosts reach, and passwords and sessions would cross the network in the clear: "+
			"pass --tls-cert and --tls-key, or --proxy-from with the addresses of a proxy that has TLS", o.listen)
	case len(o.proxies) > 0 && !named:
		return exit.Usagef("--proxy-from needs --users or --proxy-header: the console would not know who comes through the proxy")
	case o.allowActs && !named:
		return exit.Usagef("--allow-acts needs --users, or --proxy-header and --proxy-from: any process of this host could act, and acts would have no name")
	}
	return nil
}

// checkProxy checks the flags of proxies.
func (o *options) checkProxy() error {
	for _, text := range o.proxyFrom {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			addr, addrErr := netip.ParseAddr(text)
			if addrErr != nil {
				return exit.Usagef("--proxy-from is %q, neither an address nor a prefix such as 10.0.0.0/8", text)
			}
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
		if prefix.Bits() == 0 {
			return exit.Usagef("--proxy-from is %q, which is every address", text)
		}
		o.proxies = append(o.proxies, prefix.Masked())
	}
	for flag, header := range map[string]string{"--proxy-header": o.proxyHeader, "--proxy-roles": o.proxyRoles} {
		if header != "" && !validHeader.MatchString(header) {
			return exit.Usagef("%s is %q, not the name of a header", flag, header)
		}
	}
	switch {
	case o.proxyHeader != "" && len(o.proxies) == 0:
		return exit.Usagef("--proxy-header needs --proxy-from: anyone could send the header")
	case o.proxyRoles != "" && o.proxyHeader == "":
		return exit.Usagef("--proxy-roles needs --proxy-header")
	case o.proxyRoles != "" && o.users != "":
		return exit.Usagef("--proxy-roles and --users both give roles: pass one of them")
	case o.proxyHeader != "" && o.proxyRoles == "" && o.users == "":
		return exit.Usagef("--proxy-header needs the roles of users: pass --users or --proxy-roles")
	case o.proxyRoles != "" && http.CanonicalHeaderKey(o.proxyRoles) == http.CanonicalHeaderKey(o.proxyHeader):
		return exit.Usagef("--proxy-roles and --proxy-header are the same header")
	}
	return nil
}

// validHeader matches names of headers.
var validHeader = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]*$`)

// hasLogins reports whether users log in with passwords.
func (o *options) hasLogins() bool { return o.users != "" && o.proxyHeader == "" }

// isProxy reports whether an address is that of a proxy.
func (o *options) isProxy(addr netip.Addr) bool {
	return slices.ContainsFunc(o.proxies, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// readUsers reads the file of users.
func (o *options) readUsers() (*account.Users, error) {
	file := ownfile.File{Path: o.users, Determines: "who may see the fleets and act on them", UID: o.uid, Private: true, MaxBytes: maxUsersBytes}
	text, err := file.Read()
	if err != nil {
		return nil, err
	}
	if len(text) > maxUsersBytes {
		return nil, fmt.Errorf("%s has more than %d bytes", o.users, maxUsersBytes)
	}
	users, err := account.ParseUsers(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.users, err)
	}
	if o.hasLogins() && !users.HavePassword() && !users.HaveTokens() {
		return nil, fmt.Errorf("%s: no user has a hash, so nobody can log in", o.users)
	}
	return users, nil
}

// addrOf returns the address of the client of a connection.
func addrOf(r *http.Request) (netip.Addr, error) {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	return ap.Addr().Unmap().WithZone(""), err
}
