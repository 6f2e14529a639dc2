package due

import (
	"strings"

	"github.com/rota-dev/rota/registry"
)

// InstanceOf returns the name of the instance that an incarnation is of.
func InstanceOf(incarnation string) string {
	return strings.TrimSuffix(incarnation, "."+string(SessionOf(incarnation)))
}

// SessionOf returns the session of an incarnation, whose record may be gone.
func SessionOf(incarnation string) registry.SessionID {
	return registry.SessionID(incarnation[strings.LastIndexByte(incarnation, '.')+1:])
}
