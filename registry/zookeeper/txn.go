package zookeeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/internal/remote"
	"github.com/rota-dev/rota/registry"
)

// Txn is described in registry.Registry. All owned keys that it makes have to be of one
// session of this handle: the server knows no other way to own a znode than to have made
// it on the session's connection.
func (c *Client) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	if err := registry.CheckTxn(t, c.Limits()); err != nil {
		return registry.Rev{}, err
	}
	ctx, end, err := c.calls.Begin(ctx)
	if err != nil {
		return registry.Rev{}, fmt.Errorf("commit: %w", remote.NotApplied(err))
	}
	defer end()
	t.ID = t.ID.OrNew()
	rev, err := c.commit(ctx, t)
	var conflict *registry.ConflictError
	switch {
	case errors.As(err, &conflict):
		return registry.Rev{}, err
	case err != nil:
		return registry.Rev{}, fmt.Errorf("commit: %w", err)
	}
	return rev, nil
}

// attempts is how often a transaction is planned. Each failure but the last is due to
// another client's commit that came between the plan and its execution.
const attempts = 100

// commit plans t as entries of a multi, has that executed, and if it was refused because
// the plan was made on outdated knowledge, plans again. That is not sending twice: what
// was refused has changed nothing and never will.
func (c *Client) commit(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	s, err := c.owner(ctx, t)
	if err != nil {
		return registry.Rev{}, err
	}
	l := c.base
	if s != nil {
		l = s.link
	}
	p := newPlan(c, t, s)
	for range attempts {
		stale, err := p.prepare(ctx)
		if err != nil {
			return registry.Rev{}, remote.NotApplied(err)
		}
		if stale >= 0 {
			return registry.Rev{}, c.conflict(ctx, t, stale)
		}
		p.sent = max(c.base.zxid(), l.zxid())
		done, err := call(ctx, l, func(conn *zk.Conn) ([]zk.MultiResponse, error) { return conn.Multi(p.entries...) })
		if err == nil {
			return p.committed(done, l), nil
		}
		failed := failedEntry(done)
		if failed < 0 {
			return registry.Rev{}, c.unanswered(ctx, s, err)
		}
		if err := p.refused(ctx, failed, done[failed].Error, l); err != nil {
			return registry.Rev{}, err
		}
	}
	return registry.Rev{}, fmt.Errorf("%w: what it is about changed %d times", registry.ErrNotApplied, attempts)
}

// failedEntry returns the entry for which a multi was refused, or -1.
func failedEntry(done []zk.MultiResponse) int {
	for i := range done {
		if done[i].Error != nil {
			return i
		}
	}
	return -1
}

// owner returns the session whose owned keys t makes, or nil.
func (c *Client) owner(ctx context.Context, t registry.Txn) (*session, error) {
	var id registry.SessionID
	for i := range t.Then {
		o := &t.Then[i]
		switch {
		case o.Kind != registry.OpCreateOwned || o.Session == id:
		case id != "":
			return nil, fmt.Errorf("%w: it makes owned keys of two sessions, %s and %s", registry.ErrInvalidTxn, id, o.Session)
		default:
			id = o.Session
		}
	}
	if id == "" {
		return nil, nil
	}
	c.mu.Lock()
	s := c.sessions[id]
	c.mu.Unlock()
	switch {
	case s == nil:
		return nil, c.stranger(ctx, id)
	case s.over():
		return nil, lostSession(id)
	}
	return s, nil
}

func lostSession(id registry.SessionID) error {
	return fmt.Errorf("%w: %s owns nothing any more", registry.ErrSessionLost, id)
}

// stranger is the error for a session that is to own a key and is not of this handle.
func (c *Client) stranger(ctx context.Context, id registry.SessionID) error {
	path, ok := c.layout.session(id)
	if !ok {
		return lostSession(id)
	}
	err := c.barrier(ctx)
	var r raw
	if err == nil {
		r, err = c.readRaw(ctx, c.base, path)
	}
	switch {
	case err != nil:
		return remote.NotApplied(err)
	case r.stat == nil:
		return lostSession(id)
	}
	return fmt.Errorf("%w: session %s is of another handle, which alone can make owned keys for it", registry.ErrInvalidTxn, id)
}

// unanswered is the error of a multi that was not answered, or refused as a whole. s is
// the session that it was sent on, or nil.
func (c *Client) unanswered(ctx context.Context, s *session, err error) error {
	if unsent := (notSent{}); errors.As(err, &unsent) {
		if s != nil && s.over() {
			return lostSession(s.ID())
		}
		return remote.NotApplied(unsent.cause)
	}
	if known := translate(err); remote.Said(known) && ctx.Err() == nil {
		return known // refused
	}
	switch {
	case errors.Is(err, zk.ErrSessionExpired): // refused
		if s != nil {
			s.Expired()
			return lostSession(s.ID())
		}
		return remote.NotApplied(err)
	case errors.Is(err, zk.ErrSessionMoved): // refused
		return remote.NotApplied(err)
	case s != nil && ctx.Err() == nil && !s.verdict(ctx):
		return fmt.Errorf("%w: %w: %w", registry.ErrUnknownOutcome, registry.ErrSessionLost, err)
	}
	return remote.Unknown(err)
}

// conflict is the error of t whose given item can never hold again. One before it may not
// hold either, and would have to be named.
func (c *Client) conflict(ctx context.Context, t registry.Txn, item int) error {
	_, err := c.firstOf(ctx, t, item, nil)
	return err
}

// firstOf returns the conflict of t at the given item, unless one before it does not hold:
// then at that. With evidence, a condition which tells that the item does not hold, it all
// has to be true at once; moved reports that the evidence is none any more.
func (c *Client) firstOf(ctx context.Context, t registry.Txn, item int, evidence []registry.Cond) (moved bool, err error) {
	if item == 0 {
		return false, registry.Conflict(t, 0)
	}
	check := registry.Txn{ID: t.ID, If: append(impliedBefore(t, item), evidence...)}
	_, err = c.commit(ctx, check)
	var conflict *registry.ConflictError
	switch {
	case err == nil:
		return false, registry.Conflict(t, item)
	case errors.As(err, &conflict) && conflict.Index >= item:
		return true, nil
	case errors.As(err, &conflict):
		return false, registry.Conflict(t, conflict.Index)
	}
	return false, fmt.Errorf("%w: %v", registry.ErrNotApplied, err) // its outcome may be unknown, but it changes nothing
}

// impliedBefore returns what the first n items of t require.
func impliedBefore(t registry.Txn, n int) []registry.Cond {
	var all []registry.Cond
	for i := range n {
		if i < len(t.If) {
			all = append(all, t.If[i])
			continue
		}
		switch o := t.Then[i-len(t.If)]; o.Kind {
		case registry.OpSet, registry.OpDelete:
			all = append(all, registry.At(o.Key, o.Rev))
		default:
			all = append(all, registry.Absent(o.Key))
		}
	}
	return all
}
