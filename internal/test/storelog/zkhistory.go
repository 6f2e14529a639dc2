package storelog

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/registry"
)

// zkHistory converts transactions, which it receives in order, to commits.
type zkHistory struct {
	*pending
	root    string
	exists  map[registry.Key]bool
	owned   map[int64]map[string]bool // paths of ephemeral znodes, by ZooKeeper's session
	written uint64                    // the last zxid
}

func newZKHistory(root string) *zkHistory {
	return &zkHistory{
		pending: newPending(), root: root, exists: map[registry.Key]bool{}, owned: map[int64]map[string]bool{},
	}
}

// errRefused is the error of refused transactions, whose reason the log does not hold.
var errRefused = errors.New("refused by the server")

// take adds the commit of a transaction.
func (l *zkHistory) take(t *zkTxn) {
	if t.zxid <= l.written {
		return // logged again after a restart
	}
	l.written = t.zxid
	c := commit(t.zxid, t.at)
	if t.failed() {
		c.Err = errRefused
		l.add(t.zxid, c)
		return
	}
	changes := map[string]*zkChange{}
	var order []string
	for _, s := range t.parts {
		switch s.kind {
		case zkCreate, zkSetData, zkDelete:
			if changes[s.path] == nil {
				changes[s.path] = &zkChange{}
				order = append(order, s.path)
			}
			changes[s.path].apply(s)
		case zkCloseSession:
			for path := range l.owned[t.session] {
				changes[path] = &zkChange{deleted: true}
				order = append(order, path)
			}
			delete(l.owned, t.session)
		}
	}
	closing := slices.ContainsFunc(t.parts, func(s zkPart) bool { return s.kind == zkCloseSession })
	for _, path := range order {
		l.change(&c, path, changes[path], t.session)
	}
	switch {
	case closing && c.Ended == "", !closing && c.Opened == "" && c.Ended == "" && len(c.Then) == 0:
		l.add(t.zxid)
		return
	case c.Ended != "" || c.Opened != "":
		c.Then = nil // owned keys vanish with their session
	}
	l.add(t.zxid, c)
}

// zkChange is the effect of a transaction on a znode.
type zkChange struct {
	created, deleted, ephemeral bool
	data                        []byte
}

func (c *zkChange) apply(s zkPart) {
	switch s.kind {
	case zkCreate:
		c.created, c.deleted, c.ephemeral, c.data = true, false, s.ephemeral, s.data
	case zkSetData:
		c.data = s.data
	case zkDelete:
		c.deleted = true
	}
}

// change adds the effect of a change of a znode to c.
func (l *zkHistory) change(c *judge.Commit, path string, z *zkChange, session int64) {
	if z.created && z.deleted {
		return // a check that the znode does not exist
	}
	if z.created && z.ephemeral {
		if l.owned[session] == nil {
			l.owned[session] = map[string]bool{}
		}
		l.owned[session][path] = true
	}
	if z.deleted {
		delete(l.owned[session], path)
	}
	name, ok := trimRoot(path, l.root)
	if !ok {
		return
	}
	if id, ok := strings.CutPrefix(name, ":sessions/"); ok {
		switch {
		case z.created:
			c.Opened = registry.SessionID(id)
		case z.deleted:
			c.Ended = registry.SessionID(id)
		}
		return
	}
	if strings.HasPrefix(name, ":") {
		return
	}
	key := registry.Key(name)
	line, value, _ := bytes.Cut(z.data, []byte("\n"))
	word, _, _ := strings.Cut(strings.TrimPrefix(string(line), "rota1 "), " ")
	switch was := l.exists[key]; {
	case z.deleted || word == "none" || len(line) == 0: // a znode without a value: it only holds others, or was deleted
		delete(l.exists, key)
		if was {
			c.Then = append(c.Then, registry.Op{Kind: registry.OpDelete, Key: key})
		}
	case was:
		c.Then = append(c.Then, registry.Op{Kind: registry.OpSet, Key: key, Value: value})
	case key.Owned():
		l.exists[key] = true
		c.Then = append(c.Then, registry.Op{Kind: registry.OpCreateOwned, Key: key, Value: value, Session: ownerIn(string(line))})
	default:
		l.exists[key] = true
		c.Then = append(c.Then, registry.Op{Kind: registry.OpCreate, Key: key, Value: value})
	}
}

// ownerIn returns the session in the first line of a stored value.
func ownerIn(line string) registry.SessionID {
	for _, word := range strings.Fields(line) {
		if id, ok := strings.CutPrefix(word, "owner="); ok {
			return registry.SessionID(id)
		}
	}
	return ""
}
