package web

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/rota-dev/rota/web/internal/api"
)

// Role is what a user may do. Each role includes those below it. The console enforces roles, and nothing else does: to the store,
// whoever can write may do everything.
type Role int

const (
	// Look sees the fleet without errors, outputs and parameters.
	Look Role = iota + 1
	// Reveal sees these too.
	Reveal
	// Operate acts: trigger, pause, retry and the like.
	Operate
	// Admin also does what takes more than one act to undo: override, reset, retire, forget.
	Admin
)

var roleNames = []string{"none", "look", "reveal", "operate", "admin"}

// String returns the name of a role, such as "look".
func (r Role) String() string {
	if r < 0 || int(r) >= len(roleNames) {
		return fmt.Sprintf("Role(%d)", int(r))
	}
	return roleNames[r]
}

// ParseRole returns the role of a name.
func ParseRole(name string) (Role, error) {
	for i, n := range roleNames[1:] {
		if n == name {
			return Role(i + 1), nil
		}
	}
	return 0, fmt.Errorf("role is %q, not one of %s", name, strings.Join(roleNames[1:], ", "))
}

// User is who makes a request.
type User struct {
	Name string // in the record of acts
	Role Role
}

// roleFor returns the least role for an act.
func roleFor(verb string) Role { return Role(api.LevelOf(verb)) }

// CheckLocal returns an error unless a request is from this machine, and to it by one of its own names. A name that leads here by DNS
// would let a page of another site read the answers.
func CheckLocal(r *http.Request) error {
	addr, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !addr.Addr().Unmap().IsLoopback() {
		return fmt.Errorf("%s is not this machine", r.RemoteAddr)
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if ip, err := netip.ParseAddr(strings.Trim(host, "[]")); (err != nil || !ip.IsLoopback()) && host != "localhost" {
		return fmt.Errorf("the host %q is not localhost", r.Host)
	}
	return nil
}

// authorizeLocal is the default of Options.Authorize.
func authorizeLocal(r *http.Request) (User, error) {
	if err := CheckLocal(r); err != nil {
		return User{}, fmt.Errorf("%w, and Options.Authorize is nil", err)
	}
	return User{Name: "local", Role: Look}, nil
}
