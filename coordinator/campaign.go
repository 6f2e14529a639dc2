package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/group/member"
	"github.com/rota-dev/rota/lock"
	"github.com/rota-dev/rota/registry"
)

// Campaign takes part in a leader election and calls lead while this process is the leader.
// In the store, at most one of the processes that campaign for a name leads at any time. The
// others queue, and lead in the order of their arrival.
//
// Name is a directory in reg that holds nothing else, such as "billing/leader". Its records
// are those of a [registry.Lock]; the holder of the lock is the leader.
//
// Term is a fencing token: it is greater than the term of every earlier leader. The context
// of lead ends with the term. Its cause wraps [registry.ErrSessionLost] if the session was
// lost, and is the cause of ctx if that has ended. Ending a context does not stop requests
// that lead has sent already. Therefore lead should pass its term to stores that refuse
// smaller numbers, and add [TermGuard] to its transactions on reg.
//
// If the session is lost, another process leads once the store has expired the session,
// even if lead has not returned here. Campaign waits for lead to return, discards its result
// and campaigns again under a new session. Calls of lead never overlap in one Campaign.
//
// Otherwise the term lasts until lead returns, even if ctx ends first. The process then
// resigns with one commit, which names the next leader, and Campaign returns:
//
//   - the result of lead, nil included, if it returned during its term;
//   - the cause of ctx, if ctx ended before or during a term. It is joined with an error of
//     lead that is not merely the end of its context;
//   - an error that names the campaign, if it cannot continue, such as
//     registry.ErrInvalidKey, lock.ErrRecord, registry.ErrPermission or
//     registry.ErrClosed.
//
// While the registry is unreachable, Campaign retries until ctx ends. It then tries for up to
// 3 s to resign and for as long to leave the queue; otherwise its records vanish when the
// session expires.
func Campaign(ctx context.Context, reg registry.Registry, name string, lead func(ctx context.Context, term uint64) error) error {
	if name == "" {
		return fmt.Errorf("campaign: %w: the name is empty", registry.ErrInvalidKey)
	}
	if reg == nil {
		return fmt.Errorf("campaign for %s: %w", name, member.ErrNilRegistry)
	}
	if lead == nil {
		return fmt.Errorf("campaign for %s: lead is nil", name)
	}
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	c := &campaign{reg: reg, lock: lock.New(reg, registry.Key(name)), lead: lead, stop: stop}
	defer c.closeLock(ctx)
	for {
		err := registry.KeepSession(running, reg, registry.SessionOptions{}, c.runTerm)
		switch {
		case c.over && c.ended == nil:
			return c.result
		case ctx.Err() != nil:
			return withResult(context.Cause(ctx), ctx.Err(), c.result)
		case c.over:
			return fmt.Errorf("campaign for %s: %w", name, withResult(c.ended, context.Canceled, c.result))
		case !errors.Is(err, errTermLost):
			return fmt.Errorf("campaign for %s: %w", name, err)
		}
	}
}

// TermGuard returns a condition for transactions on the registry of a [Campaign]: it holds
// while the term lasts in which lead was called with ctx, or with the parent of ctx. For any
// other context, TermGuard returns the zero Cond, which makes a Txn invalid.
func TermGuard(ctx context.Context) registry.Cond {
	guard, _ := ctx.Value(termKey{}).(registry.Cond)
	return guard
}

type termKey struct{}

// campaignTimeout bounds the attempts to resign and to leave the queue. After it, the
// records vanish when the session expires.
const campaignTimeout = 3 * time.Second

var (
	errTermLost = errors.New("term lost") // the store has expired the session
	errOver     = errors.New("campaign over")
)

type campaign struct {
	reg  registry.Registry
	lock *lock.Lock
	lead func(context.Context, uint64) error

	stop   context.CancelCauseFunc // called so that no other session is opened
	over   bool
	ended  error // why the last term had ended when lead returned; nil if it had not
	result error // of lead
}

// runTerm campaigns for one term under the session s.
func (c *campaign) runTerm(ctx context.Context, s registry.Session) error {
	held, err := c.lock.Acquire(ctx, s)
	switch {
	case errors.Is(err, registry.ErrSessionLost):
		return errTermLost
	case err != nil:
		return err
	}
	err = c.lead(context.WithValue(ctx, termKey{}, held.Guard()), held.Fence())
	ended := context.Cause(ctx)
	if c.resign(ctx, s, held, err) {
		return errTermLost
	}
	c.over, c.ended, c.result = true, ended, err
	c.stop(errOver)
	return errOver
}

// resign ends the term after lead has returned err. It reports whether the term had been
// lost before.
func (c *campaign) resign(ctx context.Context, s registry.Session, held *lock.Held, err error) (lost bool) {
	lost = errors.Is(context.Cause(ctx), registry.ErrSessionLost)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), campaignTimeout)
	defer cancel()
	// A failed release needs no retry: the session is closed next, which deletes the key.
	released := held.Release(ctx)
	if lost || errors.Is(released, registry.ErrSessionLost) {
		return true
	}
	if !errors.Is(err, registry.ErrSessionLost) {
		return false
	}
	// A write by lead may observe the end of the session before the session does.
	_, err = registry.Apply(ctx, c.reg, registry.Txn{If: []registry.Cond{registry.Alive(s.ID())}})
	return errors.Is(err, registry.ErrConflict)
}

// closeLock removes this process's entry from the queue.
func (c *campaign) closeLock(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), campaignTimeout)
	defer cancel()
	_ = c.lock.Close(ctx) // after an error, the entry vanishes with the session
}

// withResult returns cause, joined with the result of lead if that is more than the end of
// its context, which is end or cause.
func withResult(cause, end, result error) error {
	if result == nil || errors.Is(result, end) || errors.Is(result, cause) {
		return cause
	}
	return fmt.Errorf("%w (lead: %w)", cause, result)
}
