package zookeeper

import (
	"sync"

	"github.com/rota-dev/rota/registry"
)

// versionCache caches the versions of znodes, so that a key which this handle has read or
// written can be written without another read. An entry may be outdated, which the server's
// check detects; a missing entry is read again.
type versionCache struct {
	mu            sync.Mutex
	recent, older map[registry.Key]cachedZnode
}

// cachedZnode is a znode as last seen, without its value.
type cachedZnode struct {
	znode
	// reaped is the version of ":reaped" from before the read. While that is unchanged, the
	// znode has not been removed and created again with versions that begin anew.
	reaped int32
}

// versionCacheSize is the minimum number of most recently used keys in the cache: the plans and claims records
// of 30,000 jobs, which an instance checks and writes in turns. With fewer, each commit of many jobs reads all of its
// keys before. An entry takes some 250 bytes, and there are at most twice as many.
const versionCacheSize = 1 << 16

func (c *versionCache) put(key registry.Key, n *znode, reaped int32) {
	f := cachedZnode{*n, reaped}
	f.value = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putLocked(key, f)
}

func (c *versionCache) putLocked(key registry.Key, f cachedZnode) {
	if c.recent == nil || len(c.recent) >= versionCacheSize {
		c.recent, c.older = make(map[registry.Key]cachedZnode), c.recent
	}
	c.recent[key] = f
}

// get returns the cached znode of key if it was read at this count of removals.
func (c *versionCache) get(key registry.Key, reaped int32) (cachedZnode, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := c.recent[key]
	if !ok {
		if f, ok = c.older[key]; ok {
			c.putLocked(key, f)
		}
	}
	return f, ok && f.reaped == reaped
}

func (c *versionCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recent, c.older = nil, nil
}

func (c *versionCache) drop(key registry.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.recent, key)
	delete(c.older, key)
}
