package zookeeper

import (
	"bytes"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/registry"
)

// multiRequest translates a transaction into the entries of a ZooKeeper multi. The server
// executes the entries in order and reports the first that fails. The conditions therefore come
// first, followed by the requirements and changes of one operation after another. Operations do
// not interfere, since each has a key of its own.
//
//	Absent(k)      create k, delete k; if an empty znode is known: check its version
//	At(k, rev)     check the version; for an owned key, also check its birth
//	Alive(s)       check the znode of s
//	Dead(s)        create the znode of s, delete it
//	Create(k)      create k, set k; if an empty znode is known: set it at its version
//	CreateOwned(k) create its birth and k, both ephemeral, set k
//	Set(k, rev)    set k at its version; for an owned key, also check its birth
//	Delete(k, rev) set k at its version to no value; for an owned key: delete its birth and k,
//	               and if no other operation returns a zxid: set the znode of its owner
//
// Create is followed by a set because only a set returns the Stat with the zxid.
//
// # Versions
//
// The server can check only versions, and the versions of a znode begin at 0 each time it is
// created. The znode of a deleted key therefore remains, without a value, and its versions
// continue with the next key of that name. When it is finally removed, the commit also
// increments the version of the znode ":reaped". Every request that relies on a cached version
// checks that count as well, with the value from before the version was read.
//
// Owned keys are deleted by the server when their session ends. Each has a "birth", a znode
// with a unique name that exists exactly as long.
type multiRequest struct {
	client  *Client
	txn     registry.Txn
	session *session // of the CreateOwned operations, or nil

	reapedCount  int32
	known        map[registry.Key]cachedZnode // keys required at a Rev
	emptyZnodes  map[registry.Key]cachedZnode // keys required to be absent that have an empty znode
	missingPaths map[string]bool              // topmost missing ancestors of keys required to be absent
	births       map[int]uint64               // numbers of the owned keys, by item

	// padded makes a Delete write as many bytes as the znode had: a server over its quota
	// refuses every set that changes the size.
	padded bool

	entries        []any
	items          []int           // item of the transaction, by entry
	checkedMissing map[string]bool // the missingPaths that an entry checks
	guarded        bool
	sentAfter      int64 // a zxid known before the request was sent
}

// guardItem is the item of the entry that checks the version of ":reaped".
const guardItem = -1

func newMultiRequest(c *Client, t registry.Txn, s *session) *multiRequest {
	return &multiRequest{
		client: c, txn: t, session: s,
		known:        make(map[registry.Key]cachedZnode),
		emptyZnodes:  make(map[registry.Key]cachedZnode),
		missingPaths: make(map[string]bool),
		births:       make(map[int]uint64),
	}
}

// assembleEntries makes the entries from known versions. stale is the first item that can never
// hold, or -1.
func (m *multiRequest) assembleEntries() (stale int) {
	m.entries, m.items, m.guarded = nil, nil, false
	m.checkedMissing = make(map[string]bool)
	for i := range m.txn.If {
		if !m.addCondition(i, &m.txn.If[i]) {
			return i
		}
	}
	for i := range m.txn.Then {
		if !m.addOperation(len(m.txn.If)+i, &m.txn.Then[i]) {
			return len(m.txn.If) + i
		}
	}
	if m.guarded {
		m.entries = append([]any{&zk.CheckVersionRequest{Path: m.client.layout.reapedPath(), Version: m.reapedCount}}, m.entries...)
		m.items = append([]int{guardItem}, m.items...)
	}
	if len(m.entries) == 0 {
		m.addEntries(guardItem, &zk.CheckVersionRequest{Path: m.client.layout.root, Version: -1})
	}
	return -1
}

// requiredRevs yields the keys that are required at a Rev. A key may occur with two Revs.
func (m *multiRequest) requiredRevs() func(yield func(registry.Key, registry.Rev) bool) {
	return func(yield func(registry.Key, registry.Rev) bool) {
		for i := range m.txn.If {
			if c := &m.txn.If[i]; c.Kind == registry.CondAt && !yield(c.Key, c.Rev) {
				return
			}
		}
		for i := range m.txn.Then {
			o := &m.txn.Then[i]
			if (o.Kind == registry.OpSet || o.Kind == registry.OpDelete) && !yield(o.Key, o.Rev) {
				return
			}
		}
	}
}

// knownAt returns the znode of a key that is required at rev, or false if it is not at rev.
func (m *multiRequest) knownAt(key registry.Key, rev registry.Rev) (cachedZnode, bool) {
	f, ok := m.known[key]
	return f, ok && f.hasRev(rev)
}

func (m *multiRequest) addEntries(item int, entries ...any) {
	for _, e := range entries {
		m.entries, m.items = append(m.entries, e), append(m.items, item)
	}
}

// addGuarded adds entries that rely on a cached version.
func (m *multiRequest) addGuarded(item int, entries ...any) {
	m.guarded = true
	m.addEntries(item, entries...)
}

// addCondition adds the entries of a condition. It returns false if the condition can never
// hold.
func (m *multiRequest) addCondition(item int, c *registry.Cond) bool {
	l := m.client.layout
	switch c.Kind {
	case registry.CondAbsent:
		m.addAbsent(item, c.Key)
	case registry.CondAt:
		f, ok := m.knownAt(c.Key, c.Rev)
		if !ok {
			return false
		}
		check := &zk.CheckVersionRequest{Path: l.keyPath(c.Key), Version: f.version}
		if f.owner != "" {
			m.addEntries(item, &zk.CheckVersionRequest{Path: l.birthPath(f.owner, f.birth), Version: -1}, check)
			break
		}
		m.addGuarded(item, check)
	case registry.CondAlive:
		path, ok := l.sessionPath(c.Session)
		if !ok {
			return false
		}
		m.addEntries(item, &zk.CheckVersionRequest{Path: path, Version: -1})
	case registry.CondDead:
		if path, ok := l.sessionPath(c.Session); ok {
			m.addEntries(item, m.createRequest(path, 0), &zk.DeleteRequest{Path: path, Version: -1})
		}
	}
	return true
}

func (m *multiRequest) addAbsent(item int, key registry.Key) {
	path := m.client.layout.keyPath(key)
	if f, ok := m.knownEmpty(key); ok {
		m.addGuarded(item, &zk.CheckVersionRequest{Path: path, Version: f.version})
		return
	}
	if above := m.missingAncestor(path); above != "" {
		if m.checkedMissing[above] {
			return // checked already, for another key below it
		}
		m.checkedMissing[above] = true
		path = above
	}
	m.addEntries(item, m.createRequest(path, 0), &zk.DeleteRequest{Path: path, Version: -1})
}

// missingAncestor returns the ancestor of path that is in m.missingPaths, or "".
func (m *multiRequest) missingAncestor(path string) string {
	for path != m.client.layout.root {
		if path = parentPath(path); m.missingPaths[path] {
			return path
		}
	}
	return ""
}

// knownEmpty returns the empty znode of key, if one is known.
func (m *multiRequest) knownEmpty(key registry.Key) (cachedZnode, bool) {
	if f, ok := m.emptyZnodes[key]; ok && f.reaped == m.reapedCount {
		return f, true
	}
	f, ok := m.client.versions.get(key, m.reapedCount)
	return f, ok && f.empty
}

func (m *multiRequest) createRequest(path string, flags int32) *zk.CreateRequest {
	return &zk.CreateRequest{Path: path, Data: []byte{}, Acl: m.client.options.ACL, Flags: flags}
}

// addOperation adds the entries of an operation. It returns false if its requirement can never
// hold.
func (m *multiRequest) addOperation(item int, o *registry.Op) bool {
	path := m.client.layout.keyPath(o.Key)
	switch o.Kind {
	case registry.OpCreate:
		n := znode{txn: m.txn.ID, value: o.Value}
		if f, ok := m.knownEmpty(o.Key); ok {
			m.addGuarded(item, &zk.SetDataRequest{Path: path, Data: n.encode(), Version: f.version})
			break
		}
		m.addEntries(item, m.createRequest(path, 0), &zk.SetDataRequest{Path: path, Data: n.encode(), Version: 0})
	case registry.OpCreateOwned:
		n := znode{txn: m.txn.ID, value: o.Value, owner: o.Session, birth: m.birthNumber(item)}
		m.addEntries(item,
			m.createRequest(m.client.layout.birthPath(n.owner, n.birth), zk.FlagEphemeral),
			m.createRequest(path, zk.FlagEphemeral),
			&zk.SetDataRequest{Path: path, Data: n.encode(), Version: 0})
	default: // OpSet, OpDelete; CheckTxn rejects all other kinds
		f, ok := m.knownAt(o.Key, o.Rev)
		if !ok {
			return false
		}
		m.addChange(item, o, f)
	}
	return true
}

// birthNumber returns the number of the owned key that an item creates. It is the same for each
// attempt, since a refused attempt has not used it.
func (m *multiRequest) birthNumber(item int) uint64 {
	if m.births[item] == 0 {
		m.births[item] = m.session.births.Add(1)
	}
	return m.births[item]
}

// addChange adds the entries of a Set or Delete of the key with znode f.
func (m *multiRequest) addChange(item int, o *registry.Op, f cachedZnode) {
	path := m.client.layout.keyPath(o.Key)
	n := f.znode
	n.txn, n.value = m.txn.ID, o.Value
	if f.owner == "" {
		n.empty = o.Kind == registry.OpDelete
		data := n.encode()
		if n.empty && m.padded {
			data = append(data, bytes.Repeat([]byte(" "), max(f.size-len(data), 0))...)
		}
		m.addGuarded(item, &zk.SetDataRequest{Path: path, Data: data, Version: f.version})
		return
	}
	birth := m.client.layout.birthPath(f.owner, f.birth)
	if o.Kind == registry.OpSet {
		m.addEntries(item, &zk.CheckVersionRequest{Path: birth, Version: -1},
			&zk.SetDataRequest{Path: path, Data: n.encode(), Version: f.version})
		return
	}
	m.addEntries(item, &zk.DeleteRequest{Path: birth, Version: -1}, &zk.DeleteRequest{Path: path, Version: f.version})
	if m.returnsZxid() {
		return
	}
	// A delete returns no Stat and hence no zxid. A set of the owner's znode does, and that
	// znode exists as long as the key; its content has no meaning.
	owner, _ := m.client.layout.sessionPath(f.owner)
	m.addEntries(item, &zk.SetDataRequest{Path: owner, Data: []byte(sessionValue), Version: -1})
}

// returnsZxid reports whether an operation of the transaction sets a znode of a key, as all do
// but a Delete of an owned key.
func (m *multiRequest) returnsZxid() bool {
	return slices.ContainsFunc(m.txn.Then, func(o registry.Op) bool {
		return o.Kind != registry.OpDelete || !o.Key.Owned()
	})
}
