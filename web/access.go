package web

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/rota-dev/rota/web/internal/role"
)

// Role is what a user may do. Each role includes those below it. The console enforces roles, and nothing else does: to the store,
// whoever can write may do everything. String returns its name, such as "look".
type Role = role.Role

const (
	// Look sees the fleet without errors, outputs and parameters.
	Look = role.Look
	// Reveal sees these too.
	Reveal = role.Reveal
	// Operate acts: trigger, pause, retry and the like.
	Operate = role.Operate
	// Admin also does what takes more than one act to undo: override, define, delete, reset, retire, forget, set-pool.
	Admin = role.Admin
)

// ParseRole returns the role of a name.
func ParseRole(name string) (Role, error) { return role.Parse(name) }

// User is who makes a request.
type User struct {
	Name string // in the record of acts
	Role Role
}

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
