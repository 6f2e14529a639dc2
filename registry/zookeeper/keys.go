package zookeeper

import (
	"strconv"
	"strings"

	"github.com/rota-dev/rota/registry"
)

// layout tells where things are. Keys are znodes below the root, by their own names. What
// else there is begins with a colon, which no key does:
//
//	/rota/some/key             the znode of a key, or only of a directory
//	/rota/:sessions/<session>  ephemeral, as long as the session lives
//	/rota/:births/<session>.n  ephemeral, as long as the n-th owned key that it made
//	/rota/:reaped              its version counts the times when znodes of deleted keys
//	                           were taken away
//	/rota/:swept               written by who looks for such znodes
type layout struct{ root string }

const (
	sessionsName = ":sessions"
	birthsName   = ":births"
	reapedName   = ":reaped"
	sweptName    = ":swept"
)

// key is the path of a key or directory.
func (l layout) key(k registry.Key) string {
	if k == "" {
		return l.root
	}
	return l.root + "/" + string(k)
}

// of is the inverse of key: the key or directory at path, and whether there can be one.
func (l layout) of(path string) (registry.Key, bool) {
	if path == l.root {
		return "", true
	}
	k, ok := strings.CutPrefix(path, l.root+"/")
	return registry.Key(k), ok && registry.CheckKey(registry.Key(k)) == nil
}

func (l layout) sessions() string { return l.root + "/" + sessionsName }
func (l layout) births() string   { return l.root + "/" + birthsName }
func (l layout) reaped() string   { return l.root + "/" + reapedName }
func (l layout) swept() string    { return l.root + "/" + sweptName }

// session is the znode of a session. ok is false for what cannot be the id of one.
func (l layout) session(id registry.SessionID) (path string, ok bool) {
	if strings.Contains(string(id), "/") || registry.CheckDir(registry.Key(id)) != nil || id == "" {
		return "", false
	}
	return l.sessions() + "/" + string(id), true
}

// birth is the znode that lives as long as the n-th owned key that a session made.
func (l layout) birth(id registry.SessionID, n uint64) string {
	return l.births() + "/" + string(id) + "." + strconv.FormatUint(n, 10)
}

// parent returns the path of the znode above, "/" for one at the top.
func parent(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return path[:i]
	}
	return "/"
}
