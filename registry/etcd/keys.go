package etcd

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rota-dev/rota/registry"
)

// DefaultNamespace is the namespace if Options.Namespace is empty.
const DefaultNamespace = "/rota"

// Names in the namespace that cannot collide with a registry key, because of the colon.
const (
	sessionsDir   = "/:sessions/"
	compactionKey = "/:compaction"
)

// checkNamespace returns an error that names the rule that ns violates.
func checkNamespace(ns string) error {
	dir, rooted := strings.CutPrefix(ns, "/")
	if !rooted || dir == "" {
		return fmt.Errorf("namespace %q does not begin with a slash and a name", ns)
	}
	if err := registry.CheckDir(registry.Key(dir)); err != nil {
		return fmt.Errorf("namespace: %w", err)
	}
	return nil
}

// storedKey returns the etcd key for key: its path below the namespace with the last slash
// doubled, so that one key range holds exactly the children of a directory.
func (c *Client) storedKey(key registry.Key) string {
	return c.childrenPrefix(key.Dir()) + key.Name()
}

// childrenPrefix returns the common prefix of the stored keys of all children of dir.
func (c *Client) childrenPrefix(dir registry.Key) string {
	if dir == "" {
		return c.namespace + "//"
	}
	return c.namespace + "/" + string(dir) + "//"
}

// sessionKey returns the key that exists exactly as long as the session.
func (c *Client) sessionKey(id registry.SessionID) string {
	return c.namespace + sessionsDir + string(id)
}

// rangeEnd returns the end of the range of keys that begin with prefix. The last byte of prefix
// must not be 0xff.
func rangeEnd(prefix string) []byte {
	end := []byte(prefix)
	end[len(end)-1]++
	return end
}

// The ID of a session is the ID of its lease in hexadecimal, as etcdctl prints it.

func sessionID(lease int64) registry.SessionID {
	return registry.SessionID(fmt.Sprintf("%016x", lease))
}

// leaseID is the inverse of sessionID. ok is false if id cannot be the ID of a session.
func leaseID(id registry.SessionID) (lease int64, ok bool) {
	lease, err := strconv.ParseInt(string(id), 16, 64)
	return lease, err == nil && lease > 0 && sessionID(lease) == id
}
