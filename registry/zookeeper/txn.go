package zookeeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// Txn implements registry.Registry. All owned keys that it creates must belong to one session
// of this handle, because ZooKeeper attaches a znode to the session on whose connection it was
// created.
func (c *Client) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	return c.handle.Txn(ctx, t, c.commitTxn)
}

// maxAttempts bounds the attempts to commit a transaction. Every failure but the last is caused
// by another client's commit between building the request and executing it.
const maxAttempts = 100

// commitTxn builds a multi request for t and sends it. If the request was refused only because
// cached versions were outdated, it builds another one. This does not send t twice: a refused
// request has changed nothing.
func (c *Client) commitTxn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	s, err := c.ownerSession(ctx, t)
	if err != nil {
		return registry.Rev{}, err
	}
	l := c.base
	if s != nil {
		l = s.link
	}
	req := newMultiRequest(c, t, s)
	for range maxAttempts {
		stale, err := req.build(ctx)
		if err != nil {
			return registry.Rev{}, backend.NotApplied(err)
		}
		if stale >= 0 {
			return registry.Rev{}, c.conflictError(ctx, t, stale)
		}
		req.sentAfter = max(c.base.lastZxid(), l.lastZxid())
		done, err := callOnce(ctx, l, func(conn *zk.Conn) ([]zk.MultiResponse, error) { return conn.Multi(req.entries...) })
		if err == nil && len(done) != len(req.entries) {
			return registry.Rev{}, backend.Unknown(fmt.Errorf("%d results for %d requests", len(done), len(req.entries)))
		}
		if err == nil {
			return req.recordCommit(done, l), nil
		}
		failed := failedEntry(done)
		if failed < 0 || failed >= len(req.entries) {
			return registry.Rev{}, c.unansweredError(ctx, s, err)
		}
		if err := req.resolveRefusal(ctx, failed, done[failed].Error, l); err != nil {
			return registry.Rev{}, err
		}
	}
	return registry.Rev{}, fmt.Errorf("%w: its keys changed during each of %d attempts", registry.ErrNotApplied, maxAttempts)
}

// failedEntry returns the index of the entry for which a multi was refused, or -1.
func failedEntry(done []zk.MultiResponse) int {
	for i := range done {
		if done[i].Error != nil {
			return i
		}
	}
	return -1
}

// ownerSession returns the session of the owned keys that t creates, or nil if it creates none.
func (c *Client) ownerSession(ctx context.Context, t registry.Txn) (*session, error) {
	var id registry.SessionID
	for i := range t.Then {
		o := &t.Then[i]
		switch {
		case o.Kind != registry.OpCreateOwned || o.Session == id:
		case id != "":
			return nil, fmt.Errorf("%w: it creates owned keys of two sessions, %s and %s", registry.ErrInvalidTxn, id, o.Session)
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
		return nil, c.unknownSessionError(ctx, id)
	case s.hasEnded():
		return nil, sessionLostError(id)
	}
	return s, nil
}

func sessionLostError(id registry.SessionID) error {
	return fmt.Errorf("%w: session %s has ended", registry.ErrSessionLost, id)
}

// unknownSessionError returns the error for a CreateOwned whose session does not belong to this
// handle.
func (c *Client) unknownSessionError(ctx context.Context, id registry.SessionID) error {
	path, ok := c.layout.sessionPath(id)
	if !ok {
		return sessionLostError(id)
	}
	err := c.commitBarrier(ctx)
	var r rawZnode
	if err == nil {
		r, err = c.readZnode(ctx, c.base, path)
	}
	switch {
	case err != nil:
		return backend.NotApplied(err)
	case r.stat == nil:
		return sessionLostError(id)
	}
	return fmt.Errorf("%w: session %s belongs to another handle; only that handle can create owned keys for it", registry.ErrInvalidTxn, id)
}

// unansweredError returns the error for a multi that was not answered, or was refused as a
// whole. s is the session on whose link it was sent, or nil.
func (c *Client) unansweredError(ctx context.Context, s *session, err error) error {
	if unsent := (notSent{}); errors.As(err, &unsent) {
		if s != nil && s.hasEnded() {
			return sessionLostError(s.ID())
		}
		return backend.NotApplied(unsent.cause)
	}
	if known := translate(err); backend.IsClassified(known) && ctx.Err() == nil {
		return known // refused as a whole
	}
	switch {
	case errors.Is(err, zk.ErrSessionExpired): // refused as a whole
		if s != nil {
			s.Expired()
			return sessionLostError(s.ID())
		}
		return backend.NotApplied(err)
	case errors.Is(err, zk.ErrSessionMoved): // refused as a whole
		return backend.NotApplied(err)
	case s != nil && ctx.Err() == nil && !s.awaitSurvival(ctx):
		return fmt.Errorf("%w: %w: %w", registry.ErrUnknownOutcome, registry.ErrSessionLost, err)
	}
	return backend.Unknown(err)
}

// conflictError returns the conflict of t, given that one item can never hold again. An earlier
// item may not hold either, and the contract requires the lowest index.
func (c *Client) conflictError(ctx context.Context, t registry.Txn, item int) error {
	_, err := c.firstConflict(ctx, t, item, nil)
	return err
}

// firstConflict returns the conflict of t at the given item or, if an earlier item does not
// hold, at the earlier one. evidence is a condition that proves that the given item does not
// hold; it is checked in the same commit as the earlier items. moved reports that the evidence
// no longer holds.
func (c *Client) firstConflict(ctx context.Context, t registry.Txn, item int, evidence []registry.Cond) (moved bool, err error) {
	if item == 0 {
		return false, registry.Conflict(t, 0)
	}
	check := registry.Txn{ID: t.ID, If: append(requirementsBefore(t, item), evidence...)}
	_, err = c.commitTxn(ctx, check)
	var conflict *registry.ConflictError
	switch {
	case err == nil:
		return false, registry.Conflict(t, item)
	case errors.As(err, &conflict) && conflict.Index >= item:
		return true, nil
	case errors.As(err, &conflict):
		return false, registry.Conflict(t, conflict.Index)
	}
	return false, fmt.Errorf("%w: %v", registry.ErrNotApplied, err) // the check changes nothing, so its outcome does not matter
}

// requirementsBefore returns the conditions that the first n items of t imply.
func requirementsBefore(t registry.Txn, n int) []registry.Cond {
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
