package etcd

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rota-dev/rota/registry"
)

// DefaultNamespace is where the keys are if Options name no other place.
const DefaultNamespace = "/rota"

// Names in the namespace that no registry key can have, for their colon.
const (
	sessionsDir   = "/:sessions/"
	compactionKey = "/:compaction"
)

// checkNamespace returns the rule that ns breaks, or nil.
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

// stored returns where key is in etcd: its path below the namespace, with the last slash
// doubled. That makes the children of a directory, and nothing else, one range of keys.
func (c *Client) stored(key registry.Key) string {
	return c.children(key.Dir()) + key.Name()
}

// children returns what the keys of the children of dir begin with.
func (c *Client) children(dir registry.Key) string {
	if dir == "" {
		return c.namespace + "//"
	}
	return c.namespace + "/" + string(dir) + "//"
}

// node returns the key that exists as long as a session.
func (c *Client) node(id registry.SessionID) string {
	return c.namespace + sessionsDir + string(id)
}

// after returns the end of the range of keys that begin with prefix, whose last byte is
// not 0xff.
func after(prefix string) []byte {
	end := []byte(prefix)
	end[len(end)-1]++
	return end
}

// A session goes by the id of its lease, as etcdctl shows it.

func sessionID(lease int64) registry.SessionID {
	return registry.SessionID(fmt.Sprintf("%016x", lease))
}

// leaseID is the inverse of sessionID. It reports false for what is no id of a session.
func leaseID(id registry.SessionID) (lease int64, ok bool) {
	lease, err := strconv.ParseInt(string(id), 16, 64)
	return lease, err == nil && lease > 0 && sessionID(lease) == id
}
