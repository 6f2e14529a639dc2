package zookeeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/internal/remote"
	"github.com/rota-dev/rota/registry"
)

// plan turns a transaction into the entries of a multi. The server judges those in order
// and names the first that does not hold; so the conditions come first, then what the
// operations require and do, one after another: each has a key of its own and cannot
// disturb what the next requires.
//
//	Absent(k)      create k, delete it; the znode is there without a value: check its version
//	At(k, rev)     check the version; of an owned key, also that it was not made again
//	Alive(s)       check the znode of s
//	Dead(s)        create the znode of s, delete it
//	Create(k)      create k, set it; the znode is there without a value: set it
//	CreateOwned(k) create its birth and k, both ephemeral, set k
//	Set(k, rev)    set k at its version; of an owned key, also check its birth
//	Delete(k, rev) set k, at its version, to no value; an owned key: delete its birth and it
//
// A create returns no Stat, a set does: hence both, where one would do.
//
// # Versions
//
// The server can check a version and nothing else, and that begins at 0 whenever a znode
// is made. So the znode of a key that was deleted stays, without a value, and the next key
// of that name goes on with its versions. When it has been there for long it is taken
// away, and the version of one znode, ":reaped", counts how often that was done: each plan
// that relies on the version of a key checks that count too, as of before it learned the
// version.
//
// Owned keys go by themselves when their session ends. Each has a birth, a znode with a
// name that no other has, which is there exactly as long.
type plan struct {
	c *Client
	t registry.Txn
	s *session // of CreateOwned, or nil

	reaped  int32
	facts   map[registry.Key]fact // of keys that have to be at a Rev
	none    map[registry.Key]fact // znodes without a value, at keys that have to be absent
	missing map[string]bool       // paths above such keys at which nothing is, the topmost of each
	births  map[int]uint64        // of owned keys, by item

	// padded: a Delete leaves as many bytes as there were, because the server is over its quota
	// and refuses every set that changes their number.
	padded bool

	entries []any
	items   []int           // of the transaction, by entry
	empty   map[string]bool // what of missing is checked by an entry
	guarded bool
	sent    int64 // when the entries were sent, there had been this commit
}

// guard is the item of the entry that checks the count of reapings.
const guard = -1

func newPlan(c *Client, t registry.Txn, s *session) *plan {
	return &plan{
		c: c, t: t, s: s,
		facts:   make(map[registry.Key]fact),
		none:    make(map[registry.Key]fact),
		missing: make(map[string]bool),
		births:  make(map[int]uint64),
	}
}

// prepare makes the entries by what is known, and reads what is not. If an item can never
// hold, it returns the first of those, else -1.
func (p *plan) prepare(ctx context.Context) (stale int, err error) {
	p.reaped = p.c.reaped.Load()
	if err := p.learn(ctx); err != nil {
		return 0, err
	}
	p.entries, p.items, p.guarded = nil, nil, false
	p.empty = make(map[string]bool)
	for i := range p.t.If {
		if !p.condition(i, &p.t.If[i]) {
			return i, nil
		}
	}
	for i := range p.t.Then {
		if !p.operation(len(p.t.If)+i, &p.t.Then[i]) {
			return len(p.t.If) + i, nil
		}
	}
	if p.guarded {
		p.entries = append([]any{&zk.CheckVersionRequest{Path: p.c.layout.reaped(), Version: p.reaped}}, p.entries...)
		p.items = append([]int{guard}, p.items...)
	}
	if len(p.entries) == 0 {
		p.add(guard, &zk.CheckVersionRequest{Path: p.c.layout.root, Version: -1})
	}
	return -1, nil
}

// learn finds out the versions of keys that have to be at a Rev.
func (p *plan) learn(ctx context.Context) error {
	var unknown []registry.Key
	newest := uint64(0)
	for key, rev := range p.revs() {
		f, ok := p.c.memo.get(key, p.reaped)
		if ok && f.is(rev) {
			p.facts[key] = f
		} else {
			unknown, newest = append(unknown, key), max(newest, rev.Seq)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return p.c.steady(ctx, p.c.base, func() error {
		// What is read has to be newer than the Rev, to tell that it is outdated.
		if err := p.c.catchUp(ctx, p.c.base, int64(min(newest, 1<<63-1))); err != nil {
			return err
		}
		return p.c.readAll(ctx, p.c.base, unknown, func(key registry.Key, n *node, err error) error {
			delete(p.facts, key)
			switch {
			case errors.Is(err, registry.ErrForeign): // hence not at any Rev
				return nil
			case err != nil:
				return err
			case n != nil:
				f := fact{*n, p.reaped}
				f.value = nil
				p.facts[key] = f
			}
			return nil
		})
	})
}

// revs yields the keys that have to be at a Rev. A key may come with two.
func (p *plan) revs() func(yield func(registry.Key, registry.Rev) bool) {
	return func(yield func(registry.Key, registry.Rev) bool) {
		for i := range p.t.If {
			if c := &p.t.If[i]; c.Kind == registry.CondAt && !yield(c.Key, c.Rev) {
				return
			}
		}
		for i := range p.t.Then {
			o := &p.t.Then[i]
			if (o.Kind == registry.OpSet || o.Kind == registry.OpDelete) && !yield(o.Key, o.Rev) {
				return
			}
		}
	}
}

// at returns what is known of a key that has to be at rev, or false if it is not.
func (p *plan) at(key registry.Key, rev registry.Rev) (fact, bool) {
	f, ok := p.facts[key]
	return f, ok && f.is(rev)
}

func (p *plan) add(item int, entries ...any) {
	for _, e := range entries {
		p.entries, p.items = append(p.entries, e), append(p.items, item)
	}
}

// rely adds entries that lean on a version that was learned.
func (p *plan) rely(item int, entries ...any) {
	p.guarded = true
	p.add(item, entries...)
}

// condition adds the entries of a condition, or returns false if it can never hold.
func (p *plan) condition(item int, c *registry.Cond) bool {
	l := p.c.layout
	switch c.Kind {
	case registry.CondAbsent:
		p.absent(item, c.Key)
	case registry.CondAt:
		f, ok := p.at(c.Key, c.Rev)
		if !ok {
			return false
		}
		check := &zk.CheckVersionRequest{Path: l.key(c.Key), Version: f.version}
		if f.owner != "" {
			p.add(item, &zk.CheckVersionRequest{Path: l.birth(f.owner, f.birth), Version: -1}, check)
			break
		}
		p.rely(item, check)
	case registry.CondAlive:
		path, ok := l.session(c.Session)
		if !ok {
			return false
		}
		p.add(item, &zk.CheckVersionRequest{Path: path, Version: -1})
	case registry.CondDead:
		if path, ok := l.session(c.Session); ok {
			p.add(item, p.create(path, 0), &zk.DeleteRequest{Path: path, Version: -1})
		}
	}
	return true
}

func (p *plan) absent(item int, key registry.Key) {
	path := p.c.layout.key(key)
	if f, ok := p.emptyZnode(key); ok {
		p.rely(item, &zk.CheckVersionRequest{Path: path, Version: f.version})
		return
	}
	if above := p.missingAbove(path); above != "" {
		if p.empty[above] {
			return // an entry before has seen to it, for another key below
		}
		p.empty[above] = true
		path = above
	}
	p.add(item, p.create(path, 0), &zk.DeleteRequest{Path: path, Version: -1})
}

// missingAbove returns what of p.missing is above path, or "".
func (p *plan) missingAbove(path string) string {
	for path != p.c.layout.root {
		if path = parent(path); p.missing[path] {
			return path
		}
	}
	return ""
}

// emptyZnode returns the znode without a value that is known to be at key.
func (p *plan) emptyZnode(key registry.Key) (fact, bool) {
	if f, ok := p.none[key]; ok && f.reaped == p.reaped {
		return f, true
	}
	f, ok := p.c.memo.get(key, p.reaped)
	return f, ok && f.none
}

func (p *plan) create(path string, flags int32) *zk.CreateRequest {
	return &zk.CreateRequest{Path: path, Data: []byte{}, Acl: p.c.o.ACL, Flags: flags}
}

// operation adds the entries of an operation, or returns false if it can never be done.
func (p *plan) operation(item int, o *registry.Op) bool {
	path := p.c.layout.key(o.Key)
	switch o.Kind {
	case registry.OpCreate:
		n := node{txn: p.t.ID, value: o.Value}
		if f, ok := p.emptyZnode(o.Key); ok {
			p.rely(item, &zk.SetDataRequest{Path: path, Data: n.encode(), Version: f.version})
			break
		}
		p.add(item, p.create(path, 0), &zk.SetDataRequest{Path: path, Data: n.encode(), Version: 0})
	case registry.OpCreateOwned:
		n := node{txn: p.t.ID, value: o.Value, owner: o.Session, birth: p.birth(item)}
		p.add(item,
			p.create(p.c.layout.birth(n.owner, n.birth), zk.FlagEphemeral),
			p.create(path, zk.FlagEphemeral),
			&zk.SetDataRequest{Path: path, Data: n.encode(), Version: 0})
	default: // OpSet, OpDelete: CheckTxn lets no other pass
		f, ok := p.at(o.Key, o.Rev)
		if !ok {
			return false
		}
		p.change(item, o, f)
	}
	return true
}

// birth returns the number of the owned key that an item makes, the same each time: what
// was refused has used none.
func (p *plan) birth(item int) uint64 {
	if p.births[item] == 0 {
		p.births[item] = p.s.births.Add(1)
	}
	return p.births[item]
}

// change adds the entries of a Set or Delete of a key of which f is known.
func (p *plan) change(item int, o *registry.Op, f fact) {
	path := p.c.layout.key(o.Key)
	n := f.node
	n.txn, n.value = p.t.ID, o.Value
	if f.owner == "" {
		n.none = o.Kind == registry.OpDelete
		data := n.encode()
		if n.none && p.padded {
			data = append(data, bytes.Repeat([]byte(" "), max(f.size-len(data), 0))...)
		}
		p.rely(item, &zk.SetDataRequest{Path: path, Data: data, Version: f.version})
		return
	}
	birth := p.c.layout.birth(f.owner, f.birth)
	if o.Kind == registry.OpSet {
		p.add(item, &zk.CheckVersionRequest{Path: birth, Version: -1},
			&zk.SetDataRequest{Path: path, Data: n.encode(), Version: f.version})
		return
	}
	// A delete returns no Stat, and hence no zxid. The owner's znode is there as long as
	// the key is, and what it holds is nobody's concern.
	owner, _ := p.c.layout.session(f.owner)
	p.add(item, &zk.DeleteRequest{Path: birth, Version: -1}, &zk.DeleteRequest{Path: path, Version: f.version},
		&zk.SetDataRequest{Path: owner, Data: []byte(sessionValue), Version: -1})
}

// committed takes in what the server says of a multi that it has executed on l.
func (p *plan) committed(done []zk.MultiResponse, l *link) registry.Rev {
	rev := registry.Rev{Seq: uint64(l.zxid())}
	var deleted []registry.Key
	for i := range done {
		if done[i].Stat != nil {
			rev.Seq = uint64(done[i].Stat.Mzxid)
			break
		}
	}
	p.c.saw(int64(rev.Seq))
	for i := range done {
		set, ok := p.entries[i].(*zk.SetDataRequest)
		if !ok || done[i].Stat == nil {
			continue
		}
		key, ok := p.c.layout.of(set.Path)
		if !ok {
			continue // it is of a session
		}
		if n, err := decode(key, set.Data, done[i].Stat); err == nil {
			p.c.memo.put(key, n, p.reaped)
			if n.none && p.c.o.ReapAfter > 0 {
				p.c.graves.dig(key)
				deleted = append(deleted, key)
			}
		}
	}
	if p.padded && len(deleted) > 0 { // the room is needed now
		p.c.calls.Go(func() { p.c.bury(p.c.calls.Context(), deleted) })
	}
	for i := range p.t.Then {
		if o := &p.t.Then[i]; o.Kind == registry.OpDelete && o.Key.Owned() {
			p.c.memo.drop(o.Key)
		}
	}
	return rev
}

// refused finds out why entry i was refused. It returns an error if that is the
// transaction's fault, and nil if it was the plan's.
func (p *plan) refused(ctx context.Context, i int, cause error, l *link) error {
	item := p.items[i]
	if known := translate(cause); remote.Said(known) {
		if errors.Is(known, registry.ErrQuota) && !p.padded && p.deletes(item) {
			p.padded = true
			return nil
		}
		return known
	}
	if item == guard {
		return p.reapedSince(ctx, cause)
	}
	if errors.Is(cause, zk.ErrNoNode) && p.ofLayout(i) {
		if err := p.c.makeLayout(ctx); err != nil {
			return remote.NotApplied(err)
		}
		return nil
	}
	var key registry.Key
	if item < len(p.t.If) {
		c := &p.t.If[item]
		if c.Kind != registry.CondAbsent {
			p.c.memo.drop(c.Key)
			return registry.Conflict(p.t, item) // at this very commit, and none before it
		}
		key = c.Key
	} else {
		o := &p.t.Then[item-len(p.t.If)]
		if o.Kind == registry.OpSet || o.Kind == registry.OpDelete {
			p.c.memo.drop(o.Key)
			return registry.Conflict(p.t, item)
		}
		key = o.Key
	}
	return p.occupied(ctx, item, key, cause, l)
}

// deletes reports whether an item of the transaction is a Delete.
func (p *plan) deletes(item int) bool {
	return item >= len(p.t.If) && p.t.Then[item-len(p.t.If)].Kind == registry.OpDelete
}

// reapedSince takes in that znodes have been taken away since the versions were learned.
func (p *plan) reapedSince(ctx context.Context, cause error) error {
	if errors.Is(cause, zk.ErrNoNode) {
		if err := p.c.makeLayout(ctx); err != nil {
			return remote.NotApplied(err)
		}
	}
	if err := p.c.countReaped(ctx); err != nil {
		return remote.NotApplied(err)
	}
	return nil
}

// ofLayout reports whether entry i makes or checks one of the znodes that are not keys.
func (p *plan) ofLayout(i int) bool {
	create, ok := p.entries[i].(*zk.CreateRequest)
	if !ok {
		return false
	}
	_, key := p.c.layout.of(create.Path)
	return !key
}

// occupied finds out why a key that has to be absent could not be made, or checked, as
// planned.
func (p *plan) occupied(ctx context.Context, item int, key registry.Key, cause error, l *link) error {
	delete(p.none, key)
	delete(p.missing, p.missingAbove(p.c.layout.key(key)))
	p.c.memo.drop(key)
	switch {
	case errors.Is(cause, zk.ErrNoChildrenForEphemerals):
		return remote.Foreign(key.Dir(), "it is ephemeral, and so nothing can be below it")
	case errors.Is(cause, zk.ErrNoNode):
		return p.ancestors(ctx, item, key)
	}
	n, err := p.readNow(ctx, key, l)
	switch {
	case errors.Is(err, registry.ErrForeign):
		return p.c.conflict(ctx, p.t, item)
	case err != nil:
		return remote.NotApplied(err)
	case n == nil:
		return nil // it has gone
	case n.none:
		p.none[key] = fact{*n, p.reaped}
		return nil
	}
	if n.mzxid <= p.sent { // it was like this when the entries before it were found to hold
		return registry.Conflict(p.t, item)
	}
	evidence := []registry.Cond{registry.At(key, registry.Rev{Seq: uint64(n.mzxid)})}
	_, err = p.c.firstOf(ctx, p.t, item, evidence)
	return err // nil if it has moved
}

// readNow reads key as of the refusal that came on l, or later.
func (p *plan) readNow(ctx context.Context, key registry.Key, l *link) (n *node, err error) {
	at := l.zxid()
	p.reaped = p.c.reaped.Load()
	err = p.c.steady(ctx, p.c.base, func() error {
		if err := p.c.catchUp(ctx, p.c.base, at); err != nil {
			return err
		}
		n, err = p.c.read(ctx, p.c.base, key)
		return err
	})
	return n, err
}

// ancestors sees to those of a key: a key that is to be made needs them; for one that is
// only to be absent it is enough that one of them is.
func (p *plan) ancestors(ctx context.Context, item int, key registry.Key) error {
	path := p.c.layout.key(key)
	if item >= len(p.t.If) {
		if err := p.c.makePath(ctx, parent(path)); err != nil {
			return remote.NotApplied(fmt.Errorf("make what is above %s: %w", key, err))
		}
		return nil
	}
	for {
		above := parent(path)
		r, err := p.c.readRaw(ctx, p.c.base, above)
		switch {
		case err != nil:
			return remote.NotApplied(err)
		case r.stat != nil || above == p.c.layout.root:
			if path != p.c.layout.key(key) {
				p.missing[path] = true
			}
			return nil
		}
		path = above
	}
}
