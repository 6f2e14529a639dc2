// Package role has the roles of users, for the pages and the HTTP API.
package role

import (
	"fmt"
	"slices"
	"strings"
)

// Role is what a user may do. Each role includes those below it.
type Role int

// The roles.
const (
	Look Role = iota + 1
	Reveal
	Operate
	Admin
)

var names = []string{"none", "look", "reveal", "operate", "admin"}

// String returns the name of a role, such as "look".
func (r Role) String() string {
	if r < 0 || int(r) >= len(names) {
		return fmt.Sprintf("Role(%d)", int(r))
	}
	return names[r]
}

// Parse returns the role of a name.
func Parse(name string) (Role, error) {
	for i, n := range names[1:] {
		if n == name {
			return Role(i + 1), nil
		}
	}
	return 0, fmt.Errorf("role is %q, not one of %s", name, strings.Join(names[1:], ", "))
}

// operateVerbs are the acts that can be taken back or do no more than the job does by itself.
var operateVerbs = []string{"trigger", "backfill", "stop-backfills", "retry", "cancel", "pause", "resume", "disable", "enable", "drain", "undrain"}

// For returns the least role for an act. Acts that are not known here need the highest.
func For(verb string) Role {
	if slices.Contains(operateVerbs, verb) {
		return Operate
	}
	return Admin
}
