package zookeeper

import (
	"strconv"
	"strings"

	"github.com/rota-dev/rota/registry"
)

// layout maps keys to paths. The znode of a key has the key's path below the root. Other znodes
// have names that begin with a colon, which no key can have:
//
//	/rota/some/key             a key, or only a directory
//	/rota/:sessions/<session>  ephemeral, exists as long as the session
//	/rota/:births/<session>.n  ephemeral, exists as long as the n-th owned key of the session
//	/rota/:reaped              its version counts the commits that removed znodes of deleted keys
//	/rota/:swept               its version counts the sweeps, see sweep.go
type layout struct{ root string }

const (
	sessionsName = ":sessions"
	birthsName   = ":births"
	reapedName   = ":reaped"
	sweptName    = ":swept"
)

// keyPath returns the path of a key or directory.
func (l layout) keyPath(k registry.Key) string {
	if k == "" {
		return l.root
	}
	return l.root + "/" + string(k)
}

// keyAt is the inverse of keyPath. ok is false if no key or directory can have that path.
func (l layout) keyAt(path string) (registry.Key, bool) {
	if path == l.root {
		return "", true
	}
	k, ok := strings.CutPrefix(path, l.root+"/")
	return registry.Key(k), ok && registry.CheckKey(registry.Key(k)) == nil
}

func (l layout) sessionsPath() string { return l.root + "/" + sessionsName }
func (l layout) birthsPath() string   { return l.root + "/" + birthsName }
func (l layout) reapedPath() string   { return l.root + "/" + reapedName }
func (l layout) sweptPath() string    { return l.root + "/" + sweptName }

// sessionPath returns the path of the session's znode. ok is false if id cannot be the ID of a
// session.
func (l layout) sessionPath(id registry.SessionID) (path string, ok bool) {
	if strings.Contains(string(id), "/") || registry.CheckDir(registry.Key(id)) != nil || id == "" {
		return "", false
	}
	return l.sessionsPath() + "/" + string(id), true
}

// birthPath returns the path of the znode that exists as long as the n-th owned key of the
// session.
func (l layout) birthPath(id registry.SessionID, n uint64) string {
	return l.birthsPath() + "/" + string(id) + "." + strconv.FormatUint(n, 10)
}

// parentPath returns the path above path, or "/" at the top.
func parentPath(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return path[:i]
	}
	return "/"
}
