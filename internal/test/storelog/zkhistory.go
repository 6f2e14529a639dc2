package storelog

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/registry"
)

// zkHistory makes commits of transactions, which it is given in order.
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

// errRefused is all that the log tells of why.
var errRefused = errors.New("refused by the server")

// take makes a commit of a transaction.
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
				changes[path] = &zkChange{gone: true}
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
		c.Then = nil // owned keys go with their session
	}
	l.add(t.zxid, c)
}

// zkChange is what a transaction makes of a znode.
type zkChange struct {
	made, gone, ephemeral bool
	data                  []byte
}

func (c *zkChange) apply(s zkPart) {
	switch s.kind {
	case zkCreate:
		c.made, c.gone, c.ephemeral, c.data = true, false, s.ephemeral, s.data
	case zkSetData:
		c.data = s.data
	case zkDelete:
		c.gone = true
	}
}

// change adds to c what a change of a znode means.
func (l *zkHistory) change(c *judge.Commit, path string, z *zkChange, session int64) {
	if z.made && z.gone {
		return // it only made sure that there was none
	}
	if z.made && z.ephemeral {
		if l.owned[session] == nil {
			l.owned[session] = map[string]bool{}
		}
		l.owned[session][path] = true
	}
	if z.gone {
		delete(l.owned[session], path)
	}
	name, ok := trimRoot(path, l.root)
	if !ok {
		return
	}
	if id, ok := strings.CutPrefix(name, ":sessions/"); ok {
		switch {
		case z.made:
			c.Opened = registry.SessionID(id)
		case z.gone:
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
	case z.gone || word == "none" || len(line) == 0: // no value: for those below it, or no more
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

// ownerIn returns the session that the line before a value names.
func ownerIn(line string) registry.SessionID {
	for _, word := range strings.Fields(line) {
		if id, ok := strings.CutPrefix(word, "owner="); ok {
			return registry.SessionID(id)
		}
	}
	return ""
}
