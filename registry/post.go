package registry

import (
	"context"
	"errors"
)

// Poster is implemented by a Registry whose store is also a database of its users: a transaction of theirs can have a record created.
// See operator.Operator.TriggerIn.
type Poster interface {
	// Post makes the commit of tx create a record in dir, usually within half a second, and exactly once. The names of these records
	// ascend in the order of the commits. The type of tx is one of the backend. No call of the registry waits for tx. If Post
	// fails, tx cannot be committed, or is as before.
	Post(ctx context.Context, tx any, dir Key, value []byte) error
}

// ErrNoPoster means that the registry is no Poster.
var ErrNoPoster = errors.New("the registry cannot create records by a transaction of its user")

// Post calls reg.Post, or returns ErrNoPoster if reg is no Poster.
func Post(ctx context.Context, reg Registry, tx any, dir Key, value []byte) error {
	if p, ok := reg.(Poster); ok {
		return p.Post(ctx, tx, dir, value)
	}
	return ErrNoPoster
}

// CanPost reports whether a handle, with those below it, is a Poster.
func CanPost(reg Registry) bool {
	if p, ok := reg.(*prefixed); ok {
		return CanPost(p.reg)
	}
	_, ok := reg.(Poster)
	return ok
}

var _ Poster = (*prefixed)(nil)

// Post is described in Poster. It returns ErrNoPoster if the registry below is none.
func (p *prefixed) Post(ctx context.Context, tx any, dir Key, value []byte) error {
	if err := CheckDir(dir); err != nil {
		return err
	}
	_, err := callThrough(ctx, p, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, Post(ctx, p.reg, tx, p.addPrefix(dir), value)
	})
	return err
}
