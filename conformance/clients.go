package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/registry"
)

// profile describes the work of the clients of a history.
type profile struct {
	seed     uint64
	clients  int
	ops      int // of each client
	groups   int
	keys     int  // of a group
	conds    bool // transactions have conditions and may have no operations
	sessions bool // keys are owned and sessions end
}

func (p profile) String() string {
	return fmt.Sprintf("seed %d: %d clients of %d calls on %d groups of %d keys, conditions %v, sessions %v",
		p.seed, p.clients, p.ops, p.groups, p.keys, p.conds, p.sessions)
}

// scene is the shared state of the clients of a history.
type scene struct {
	profile
	t       *test
	dir     registry.Key
	history history

	mu   sync.Mutex
	held []registry.Session // by number
}

// machineNames returns the machines of the clients of a history.
func machineNames(clients int) []string {
	return []string{"a", "b", "c", "d"}[:min(clients, 4)]
}

// recordHistory runs clients under random faults and returns the history of their calls.
func (t *test) recordHistory(p profile) *history {
	t.Helper()
	s := &scene{profile: p, t: t, dir: registry.Key(fmt.Sprintf("history%d", p.seed))}
	machines := machineNames(p.clients)
	clients := make([]*client, p.clients)
	for i := range clients {
		c := &client{
			scene: s, id: i, reg: t.handle(machines[i%len(machines)]),
			random: rand.New(rand.NewPCG(p.seed, uint64(i+1))),
			known:  map[registry.Key]registry.Rev{},
		}
		if p.sessions {
			c.addSession(t.longSession(c.reg))
		}
		clients[i] = c
	}
	calm := t.injectRandomFaults(machines, p.seed)
	t.runConcurrently(len(clients), func(i int) error { return clients[i].makeCalls(t.ctx) })
	suffered := calm()
	for _, machine := range machines {
		t.awaitUsable(t.handle(machine))
	}
	for _, c := range clients {
		if p.sessions {
			c.recordLostSession()
		}
	}
	last := &client{scene: s, id: p.clients, reg: t.handle("last")}
	for g := range p.groups {
		for k := range p.keys {
			if err := last.recordRead(t.ctx, g, k); err != nil {
				t.Fatalf("read at the end: %v", err)
			}
		}
	}
	s.closeSessions()
	t.Logf("%v: %d calls recorded, %d with an unknown outcome; %v", p, len(s.history.ops), s.history.open, suffered)
	return &s.history
}

// client makes calls one after the other.
type client struct {
	*scene
	id      int // changes after a call with an unknown outcome, which stays pending
	reg     registry.Registry
	random  *rand.Rand
	known   map[registry.Key]registry.Rev // last known Rev per key; zero if absent
	session registry.Session
	number  int   // of the session
	own     []int // numbers of all sessions it opened
	gone    []int // those that ended in its view; the store may end them later
	opened  int64
}

// callTimeout bounds a call of a client.
func (s *scene) callTimeout() time.Duration {
	return time.Duration(s.t.repeats(40, 400)) * time.Millisecond
}

func (s *scene) key(group, key int) registry.Key {
	name := fmt.Sprintf("k%d", key)
	if s.sessions {
		name = "~" + name
	}
	return s.dir.Join(fmt.Sprintf("g%d", group), name)
}

func (c *client) makeCalls(ctx context.Context) error {
	for range c.ops {
		if err := c.makeRandomCall(ctx); err != nil {
			return fmt.Errorf("client %d: %w", c.id, err)
		}
		c.pauseRandomly()
	}
	return nil
}

// pauseRandomly pauses between two calls, long enough for a few faults per history.
func (c *client) pauseRandomly() {
	time.Sleep(time.Duration(c.random.IntN(c.t.repeats(10, 80))) * time.Millisecond)
}

func (c *client) makeRandomCall(ctx context.Context) error {
	group := c.random.IntN(c.groups)
	if c.sessions && c.recordLostSession() {
		return c.reopenSession(ctx)
	}
	switch n := c.random.IntN(100); {
	case n < 30:
		return c.recordRead(ctx, group, c.random.IntN(c.keys))
	case n < 40 && c.keys > 1:
		return c.recordList(ctx, group)
	case n < 55 && c.sessions:
		return c.endOwnSession(ctx)
	}
	for key := range c.keys {
		if _, ok := c.known[c.key(group, key)]; !ok { // else every transaction conflicts
			return c.recordRead(ctx, group, key)
		}
	}
	return c.recordTxn(ctx, group)
}

// recordLostSession reports whether the client's session was lost without being closed,
// and records it. It may have ended at any time since it was opened.
func (c *client) recordLostSession() bool {
	if inState(c.session, registry.SessionLost) != nil {
		return false
	}
	c.history.leaveOpen(c.id, c.opened, action{kind: endSession, session: c.number}, answer{conflict: -1})
	c.gone = append(c.gone, c.number)
	return true
}

// recordRead makes a fresh Get. A failed one is not recorded, since it reveals nothing.
func (c *client) recordRead(ctx context.Context, group, key int) error {
	within, cancel := context.WithTimeout(ctx, c.callTimeout())
	defer cancel()
	call := c.history.beginCall()
	e, err := c.reg.Get(within, c.key(group, key), fresh)
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		return c.awaitHandle(ctx, checkUnavailable(err))
	}
	seen := c.learn(c.key(group, key), e, err == nil)
	c.history.endCall(c.id, call, action{kind: readKeys, group: group, keys: []int{key}}, answer{conflict: -1, cells: []cell{seen}})
	return nil
}

// recordList makes a fresh List. Entries of a listing that is not Atomic count as
// separate reads.
func (c *client) recordList(ctx context.Context, group int) error {
	within, cancel := context.WithTimeout(ctx, c.callTimeout())
	defer cancel()
	call := c.history.beginCall()
	l, err := c.reg.List(within, c.key(group, 0).Dir(), fresh)
	if err != nil {
		return c.awaitHandle(ctx, checkUnavailable(err))
	}
	found := map[registry.Key]registry.Entry{}
	for _, e := range l.Entries {
		found[e.Key] = e
	}
	all := action{kind: readKeys, group: group}
	var seen []cell
	for key := range c.keys {
		e, ok := found[c.key(group, key)]
		all.keys = append(all.keys, key)
		seen = append(seen, c.learn(c.key(group, key), e, ok))
	}
	if l.Atomic {
		c.history.endCall(c.id, call, all, answer{conflict: -1, cells: seen})
		return nil
	}
	for i, key := range all.keys {
		c.history.endCall(c.id, call, action{kind: readKeys, group: group, keys: []int{key}}, answer{conflict: -1, cells: seen[i : i+1]})
	}
	return nil
}

// learn stores the Rev of a read entry and returns the entry as a cell of the model.
func (c *client) learn(key registry.Key, e registry.Entry, there bool) cell {
	if !there {
		e = registry.Entry{}
	}
	if c.known != nil {
		c.known[key] = e.Modified
	}
	return cell{there: there, txn: e.Txn, created: e.Created, modified: e.Modified, owner: c.sessionNumber(e.Owner) + 1}
}

// recordTxn sends a random transaction on a group.
func (c *client) recordTxn(ctx context.Context, group int) error {
	x, m := c.drawTxn(group)
	return c.sendTxn(ctx, group, x, m)
}

// sendTxn sends a transaction on a group and records its outcome.
func (c *client) sendTxn(ctx context.Context, group int, x registry.Txn, m modelTxn) error {
	within, cancel := context.WithTimeout(ctx, c.callTimeout())
	defer cancel()
	input := action{kind: runTxn, group: group, txn: m}
	call := c.history.beginCall()
	rev, err := c.reg.Txn(within, x)
	for _, op := range x.Then {
		delete(c.known, op.Key) // unknown unless the commit succeeds
	}
	var conflict *registry.ConflictError
	switch {
	case err == nil:
		c.history.endCall(c.id, call, input, answer{conflict: -1, rev: rev})
		for _, op := range x.Then {
			c.known[op.Key] = rev
			if op.Kind == registry.OpDelete {
				c.known[op.Key] = registry.Rev{}
			}
		}
	case errors.As(err, &conflict):
		c.history.endCall(c.id, call, input, answer{conflict: conflict.Index})
	case errors.Is(err, registry.ErrUnknownOutcome): // even if it wraps another error
		c.history.leaveOpen(c.id, call, input, answer{conflict: -1, unknown: true})
		c.id += c.clients + 1
		return c.awaitHandle(ctx, nil)
	case errors.Is(err, registry.ErrSessionLost) && c.ownerKnownEnded(m):
		return nil // decided by the handle; the store was not asked
	case errors.Is(err, registry.ErrSessionLost):
		c.history.endCall(c.id, call, input, answer{conflict: -1, dead: true})
	default: // not applied: no effect to record
		return c.awaitHandle(ctx, checkUnanswered(err))
	}
	return nil
}

// ownerKnownEnded reports whether a transaction names an owner that the client's handle
// knows to have ended, by its own clock or since it was asked to close it.
func (c *client) ownerKnownEnded(m modelTxn) bool {
	return slices.ContainsFunc(m.ops, func(o modelItem) bool {
		return o.op == registry.OpCreateOwned &&
			(slices.Contains(c.gone, o.session) || o.session == c.number && inState(c.session, registry.SessionLost) == nil)
	})
}

// drawTxn draws a transaction based on the client's knowledge of the keys.
func (c *client) drawTxn(group int) (registry.Txn, modelTxn) {
	x := registry.Txn{ID: registry.NewTxnID()}
	m := modelTxn{id: x.ID}
	least := 1
	if c.conds {
		least = 0
		for range c.random.IntN(3) {
			cond, item := c.drawCond(group)
			x.If, m.conds = append(x.If, cond), append(m.conds, item)
		}
	}
	owner := c.drawOwner()
	for _, key := range c.random.Perm(c.keys)[:least+c.random.IntN(c.keys+1-least)] {
		op, item := c.drawOp(group, key, owner)
		x.Then, m.ops = append(x.Then, op), append(m.ops, item)
	}
	return x, m
}

func (c *client) drawCond(group int) (registry.Cond, modelItem) {
	if c.sessions && c.random.IntN(2) == 0 {
		number, id := c.drawSession()
		if c.random.IntN(3) > 0 {
			return registry.Alive(id), modelItem{cond: registry.CondAlive, session: number}
		}
		return registry.Dead(id), modelItem{cond: registry.CondDead, session: number}
	}
	key := c.random.IntN(c.keys)
	rev := c.known[c.key(group, key)]
	if rev.IsZero() {
		return registry.Absent(c.key(group, key)), modelItem{cond: registry.CondAbsent, key: key}
	}
	return registry.At(c.key(group, key), rev), modelItem{cond: registry.CondAt, key: key, rev: rev}
}

// drawOwner draws the owner of a transaction's owned keys: the client's session or an
// earlier one, which has ended. A store may support one owner per transaction only, and only
// on the connection that opened the session.
func (c *client) drawOwner() (number int) {
	if earlier := len(c.own) - 1; earlier > 0 && c.random.IntN(3) == 0 {
		return c.own[c.random.IntN(earlier)]
	}
	return c.number
}

func (c *client) drawOp(group, key, owner int) (registry.Op, modelItem) {
	k, rev := c.key(group, key), c.known[c.key(group, key)]
	item := modelItem{key: key, rev: rev}
	switch {
	case rev.IsZero() && c.sessions:
		item.op, item.session = registry.OpCreateOwned, owner
		return registry.CreateOwned(k, nil, c.sessionID(owner)), item
	case rev.IsZero():
		item.op = registry.OpCreate
		return registry.Create(k, nil), item
	case c.random.IntN(4) == 0:
		item.op = registry.OpDelete
		return registry.Delete(k, rev), item
	}
	item.op = registry.OpSet
	return registry.Set(k, rev, nil), item
}

// awaitHandle waits until the client's handle works again, so that a fault leaves one
// call unanswered and not many. It returns a non-nil problem at once.
func (c *client) awaitHandle(ctx context.Context, problem error) error {
	for problem == nil && ctx.Err() == nil {
		within, cancel := context.WithTimeout(ctx, c.callTimeout())
		_, err := c.reg.Txn(within, registry.Txn{If: []registry.Cond{registry.Absent("none")}})
		cancel()
		if err == nil {
			return nil
		}
		problem = checkUnanswered(err)
		time.Sleep(2 * time.Millisecond)
	}
	return errors.Join(problem, ctx.Err())
}

// endOwnSession ends the client's session, by Close or by expiry.
func (c *client) endOwnSession(ctx context.Context) error {
	if c.sessionsExhausted() {
		return nil
	}
	if err := c.createOwnKey(ctx); err != nil {
		return err
	}
	input := action{kind: endSession, session: c.number}
	call := c.history.beginCall()
	if c.t.store.Expire != nil && c.random.IntN(2) == 0 {
		c.t.store.Expire(c.session.ID())
		c.history.endCall(c.id, call, input, answer{conflict: -1})
		return c.replaceSession(ctx)
	}
	within, cancel := context.WithTimeout(ctx, c.callTimeout())
	defer cancel()
	if err := c.session.Close(within); err != nil {
		c.history.leaveOpen(c.id, call, input, answer{conflict: -1, unknown: true})
		c.id += c.clients + 1
		c.gone = append(c.gone, c.number)
	} else {
		c.history.endCall(c.id, call, input, answer{conflict: -1})
	}
	return c.replaceSession(ctx)
}

// createOwnKey creates a key of the client's session, if it knows of one that is absent, since
// the end of a session without keys shows little.
func (c *client) createOwnKey(ctx context.Context) error {
	for group := range c.groups {
		for key := range c.keys {
			k := c.key(group, key)
			if rev, known := c.known[k]; known && rev.IsZero() {
				x := registry.Txn{ID: registry.NewTxnID(), Then: []registry.Op{registry.CreateOwned(k, nil, c.session.ID())}}
				item := modelItem{op: registry.OpCreateOwned, key: key, session: c.number}
				return c.sendTxn(ctx, group, x, modelTxn{id: x.ID, ops: []modelItem{item}})
			}
		}
	}
	return nil
}

// replaceSession lists what the ended session left and opens another.
func (c *client) replaceSession(ctx context.Context) error {
	for group := range c.groups {
		if err := c.recordList(ctx, group); err != nil {
			return err
		}
	}
	return c.reopenSession(ctx)
}

// reopenSession opens another session.
func (c *client) reopenSession(ctx context.Context) error {
	for {
		within, cancel := context.WithTimeout(ctx, c.callTimeout())
		s, err := c.reg.OpenSession(within, registry.SessionOptions{TTL: recovery})
		cancel()
		if err == nil {
			c.addSession(s)
			return nil
		}
		if err := c.awaitHandle(ctx, checkUnavailable(err)); err != nil {
			return err
		}
	}
}

// closeSessions closes all sessions before the next history.
func (s *scene) closeSessions() {
	for _, x := range s.held {
		ctx, cancel := context.WithTimeout(s.t.ctx, s.t.ttl)
		_ = x.Close(ctx) // else it expires
		cancel()
	}
}

func (s *scene) sessionsExhausted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held) >= maxSessions-s.clients
}

func (c *client) addSession(s registry.Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.number, c.session, c.opened = len(c.held), s, c.history.beginCall()
	c.held = append(c.held, s)
	c.own = append(c.own, c.number)
}

// sessionID returns the ID of a session.
func (s *scene) sessionID(number int) registry.SessionID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[number].ID()
}

// drawSession draws a session, live or ended.
func (c *client) drawSession() (number int, id registry.SessionID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	number = c.random.IntN(len(c.held))
	return number, c.held[number].ID()
}

// sessionNumber returns the number of a session, or -1.
func (s *scene) sessionNumber(id registry.SessionID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, x := range s.held {
		if x.ID() == id {
			return i
		}
	}
	return -1
}
