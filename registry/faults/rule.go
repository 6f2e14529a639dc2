package faults

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/rota-dev/rota/registry"
)

// Fault is a kind of fault.
type Fault int

const (
	// DelayRequest delays a call on its way to the store by Rule.For. A Txn arrives even if
	// its caller gives up meanwhile.
	DelayRequest Fault = iota + 1
	// DelayReply delays the reply to a call, or a batch of a watcher, by Rule.For.
	DelayReply
	// LoseRequest loses a call before it reaches the store. Its caller gets the error at once.
	LoseRequest
	// LoseReply makes the store execute a call and loses the reply. The caller gets the error at
	// once.
	LoseReply
	// Hold holds a Txn on its way to the store until Control.End, or for Rule.For if that is not
	// zero. The caller gets ErrUnknownOutcome at once. The Txn is then applied if its conditions
	// hold by then.
	Hold
	// Cut cuts a client off the store. Calls wait until the cut ends, and at most CallTimeout; a
	// Txn is not applied, unless it had reached the store before. If Rule.For is zero, the cut
	// lasts while the rule is active. Otherwise a call among Rule.Ops begins a cut of that length.
	//
	// Rule.Ops limits a cut to some operations: with Renewals, sessions are not renewed while
	// calls succeed; with Events, watchers pause.
	Cut
	// CutReplies is a Cut of one direction: the store still executes calls, but no reply and no
	// event reaches the client. Sessions are lost as in a Cut.
	CutReplies
	// Stale returns an old answer to a read that is not Fresh, as the package comment describes. A
	// loop that waits for another client's write by such reads, or reads again after a conflict, does
	// not end while each read is stale: give the rule a Chance to test it.
	Stale
)

// Ops is a set of operations. Its values can be combined with |.
type Ops uint

const (
	Get          Ops = 1 << iota // Registry.Get and Clock.WrittenAt
	List                         // Registry.List
	Txn                          // Registry.Txn
	Watch                        // Registry.Watch, not the batches of its watcher
	OpenSession                  // Registry.OpenSession
	CloseSession                 // Session.Close
	Events                       // batches of watchers
	Renewals                     // renewals of sessions
)

// Calls are the operations of which each is a request with a reply.
const Calls = Get | List | Txn | Watch | OpenSession | CloseSession

var opNames = []struct {
	op   Ops
	name string
}{
	{Get, "get"},
	{List, "list"},
	{Txn, "txn"},
	{Watch, "watch"},
	{OpenSession, "open-session"},
	{CloseSession, "close-session"},
	{Events, "events"},
	{Renewals, "renewals"},
}

// String returns the names of the operations, separated by commas, as Parse reads them.
func (o Ops) String() string {
	var names []string
	for _, n := range opNames {
		if o&n.op != 0 {
			names = append(names, n.name)
			o &^= n.op
		}
	}
	if o != 0 {
		names = append(names, fmt.Sprintf("unknown-%#x", uint(o)))
	}
	return strings.Join(names, ",")
}

// kinds are the faults in the order in which they apply to a call.
var kinds = []struct {
	fault Fault
	name  string
	ops   Ops // that it can affect
}{
	{Cut, "cut", Calls | Events | Renewals},
	{CutReplies, "cut-replies", Calls | Events | Renewals},
	{DelayRequest, "delay-request", Calls},
	{DelayReply, "delay-reply", Calls | Events},
	{Hold, "hold", Txn},
	{LoseRequest, "lose-request", Calls},
	{LoseReply, "lose-reply", Calls},
	{Stale, "stale", Get | List},
}

// String returns the name of the fault, as Parse reads it.
func (f Fault) String() string {
	for _, k := range kinds {
		if k.fault == f {
			return k.name
		}
	}
	return "unknown"
}

// ops returns the operations that f can affect.
func (f Fault) ops() Ops {
	for _, k := range kinds {
		if k.fault == f {
			return k.ops
		}
	}
	return 0
}

// Rule is a fault and the calls that it affects. The zero value of each field but Fault
// selects all calls.
type Rule struct {
	Fault Fault

	// Client is a pattern of path.Match for the names of clients.
	Client string
	// Ops are the affected operations. Zero means all that the fault can affect.
	Ops Ops
	// Key is a pattern of path.Match for keys, or a directory followed by "/...", which matches
	// the directory and all keys below it. A Txn matches if one of its keys does. The key of List,
	// Watch and Events is the directory. Calls without a key do not match, and neither does a
	// Cut whose For is zero.
	Key string

	// Skip is how many matching calls of a client are not affected at first, Times is how many
	// are affected after that. A Times of zero means no limit.
	Skip, Times int
	// Chance is the probability, up to 1, that a matching call is affected. Zero means 1.
	Chance float64
	// From and Until bound the time in which the rule is active, since Add or New. An Until of zero
	// means no end.
	From, Until time.Duration

	// For is the length of the delay, hold or cut. If UpTo is greater, the length is drawn
	// evenly between them.
	For, UpTo time.Duration
}

// check returns all problems of r.
func (r *Rule) check() error {
	var errs []error
	report := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	possible := r.Fault.ops()
	if possible == 0 {
		return fmt.Errorf("unknown fault %d", int(r.Fault))
	}
	_, clientErr := path.Match(r.Client, "")
	_, keyErr := path.Match(r.Key, "")
	report(clientErr != nil, "client %q: %w", r.Client, clientErr)
	report(keyErr != nil, "key %q: %w", r.Key, keyErr)
	report(strings.ContainsAny(r.Client+r.Key, " \t\r\n;="), "client %q, key %q: a pattern contains neither spaces nor ';' nor '='", r.Client, r.Key)
	report(r.Ops&^possible != 0, "ops %s: %s affects only %s", r.Ops, r.Fault, possible)
	report(r.Skip < 0 || r.Times < 0, "skip %d, times %d: negative", r.Skip, r.Times)
	report(!(r.Chance >= 0 && r.Chance <= 1), "chance %v: not between 0 and 1", r.Chance)
	report(r.From < 0 || r.Until < 0 || r.Until != 0 && r.Until <= r.From, "from %v until %v: an empty time", r.From, r.Until)
	report(r.For < 0 || r.UpTo != 0 && r.UpTo < r.For, "for %v..%v: an empty range", r.For, r.UpTo)
	switch r.Fault {
	case DelayRequest, DelayReply:
		report(r.For == 0 && r.UpTo == 0, "for: %s needs a length", r.Fault)
	case Cut, CutReplies:
		lasting := r.For == 0 && r.UpTo == 0
		report(lasting && (r.Key != "" || r.Chance != 0 || r.Skip != 0 || r.Times != 0),
			"for: a cut without a length has no key, skip, times or chance")
		report(!lasting && r.Ops != 0 && r.Ops&Calls == 0, "ops %s: no call begins a cut", r.Ops)
	case Hold:
	default:
		report(r.For != 0 || r.UpTo != 0, "for: %s has no length", r.Fault)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: %w", r.Fault, err)
	}
	return nil
}

// ops returns the operations that r selects.
func (r *Rule) ops() Ops {
	if r.Ops == 0 {
		return r.Fault.ops()
	}
	return r.Ops
}

// lasts reports whether r is a cut that lasts while r is active.
func (r *Rule) lasts() bool {
	return (r.Fault == Cut || r.Fault == CutReplies) && r.For == 0 && r.UpTo == 0
}

func (r *Rule) matchesClient(name string) bool {
	if r.Client == "" {
		return true
	}
	ok, _ := path.Match(r.Client, name) // check has refused bad patterns
	return ok
}

func (r *Rule) matchesKey(c *call) bool {
	if r.Key == "" {
		return true
	}
	if c.txn == nil {
		return c.hasKey && r.matchesOneKey(c.key)
	}
	for i := range c.txn.If {
		if k := c.txn.If[i].Key; k != "" && r.matchesOneKey(k) {
			return true
		}
	}
	for i := range c.txn.Then {
		if r.matchesOneKey(c.txn.Then[i].Key) {
			return true
		}
	}
	return false
}

func (r *Rule) matchesOneKey(key registry.Key) bool {
	if dir, below := strings.CutSuffix(r.Key, "/..."); below {
		return string(key) == dir || strings.HasPrefix(string(key), dir+"/")
	}
	ok, _ := path.Match(r.Key, string(key))
	return ok
}
