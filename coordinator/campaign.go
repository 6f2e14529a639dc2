package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/member"
	"github.com/rota-dev/rota/registry"
)

// Campaign takes part in the election of a leader, and calls lead while this process is
// it. At any commit at most one of those who campaign for a name leads; the others wait in
// line, and lead in the order in which they came.
//
// The name is that of a directory in reg in which there is nothing else, such as
// "billing/leader". Its records are those of a registry.Lock, whose holder leads.
//
// The term is a fencing token: greater than that of every earlier leader. The context of
// lead ends when the term does, with a cause that wraps registry.ErrSessionLost if the
// session was lost, and with the cause of ctx when that ends. That does not stop what lead
// has sent already. So lead gives its term to stores that compare, and puts
// TermGuard(ctx) into what it writes to reg.
//
// When the session is lost, another leads as soon as the store has ended it, whether or not
// lead has returned. Campaign waits for lead to return, and then campaigns again with a new
// session; what lead returned is dropped. So lead is never called twice at a time, and a
// lead that ignores the end of its context keeps nobody else from leading.
//
// Otherwise the term lasts until lead returns, also after the end of ctx. Then the process
// resigns: by one commit that names the next leader. Campaign returns
//
//   - what lead returned while it was in office, nil included;
//   - the cause of ctx when that has ended, before or during a term. An error of lead that
//     is not just the end of its context is wrapped as well;
//   - an error that names the campaign if it cannot go on: registry.ErrInvalidKey,
//     registry.ErrLockRecord, registry.ErrPermission, registry.ErrClosed and the like.
//
// While the registry cannot be reached, it keeps trying until ctx ends; then it takes some
// seconds to resign, and what could not be told to the store ends with the session.
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
	c := &campaign{reg: reg, lock: registry.NewLock(reg, registry.Key(name)), lead: lead, stop: stop}
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

// TermGuard returns the condition that the term has not ended in which Campaign called lead
// with ctx, or a context made of it. With another context it returns the zero Cond, with
// which no Txn is valid.
func TermGuard(ctx context.Context) registry.Cond {
	guard, _ := ctx.Value(termKey{}).(registry.Cond)
	return guard
}

type termKey struct{}

// campaignTimeout bounds the good order in which a campaign ends: resigning, and leaving
// the line. What is not told to the store by then ends with the session.
const campaignTimeout = 3 * time.Second

var (
	errTermLost = errors.New("term lost") // the session has ended, to the store's knowledge
	errOver     = errors.New("campaign over")
)

type campaign struct {
	reg  registry.Registry
	lock *registry.Lock
	lead func(context.Context, uint64) error

	stop   context.CancelCauseFunc // so that no other session follows
	over   bool
	ended  error // why the last term had ended when lead returned: nil if it was in office
	result error // of lead
}

// run campaigns for one term, in a session.
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

// resign gives up the office after lead has returned err. It reports whether it had been
// lost before.
func (c *campaign) resign(ctx context.Context, s registry.Session, held *registry.Held, err error) (lost bool) {
	lost = errors.Is(context.Cause(ctx), registry.ErrSessionLost)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), campaignTimeout)
	defer cancel()
	// It fails for good only if the term is over. Otherwise the end of the session, which
	// comes next, does what could not be done here.
	released := held.Release(ctx)
	if lost || errors.Is(released, registry.ErrSessionLost) {
		return true
	}
	if !errors.Is(err, registry.ErrSessionLost) {
		return false
	}
	// The store may have told lead before it told the session.
	_, err = registry.Apply(ctx, c.reg, registry.Txn{If: []registry.Cond{registry.Alive(s.ID())}})
	return errors.Is(err, registry.ErrConflict)
}

// close waits for what is left in line to be gone.
func (c *campaign) closeLock(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), campaignTimeout)
	defer cancel()
	_ = c.lock.Close(ctx) // what could not be told goes with the session
}

// withResult returns cause, which ended contexts with end, and what lead returned if that
// says more.
func withResult(cause, end, result error) error {
	if result == nil || errors.Is(result, end) || errors.Is(result, cause) {
		return cause
	}
	return fmt.Errorf("%w (lead: %w)", cause, result)
}
