package faults

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rota-dev/rota/registry"
)

// Injector injects faults into the handles that it wraps. Its methods may be called from many
// goroutines. It is made by New or Parse.
type Injector struct {
	seed   uint64
	active atomic.Int32 // how many rules have not ended

	mu       sync.Mutex
	rules    []Rule        // all, in the order of Add
	controls []*Control    // of the rules that have not ended, in the same order
	changed  chan struct{} // closed, and replaced, when a cut may have begun or ended
	views    uint64        // raised when a Stale rule is added or ends
}

// New returns an Injector with rules whose chances are drawn from seed. It panics if a rule is
// invalid, like Add.
func New(seed uint64, rules ...Rule) *Injector {
	in := &Injector{seed: seed, changed: make(chan struct{})}
	for _, r := range rules {
		in.Add(r)
	}
	return in
}

// Add adds a rule, which is in force when Add returns. It panics if the rule is invalid.
func (in *Injector) Add(r Rule) *Control {
	if err := r.check(); err != nil {
		panic(fmt.Sprintf("faults: %v", err))
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	c := &Control{
		in: in, rule: r, index: len(in.rules), began: time.Now(), ended: make(chan struct{}),
		clients: make(map[string]*clientCounts),
	}
	in.rules = append(in.rules, r)
	in.controls = append(in.controls, c)
	in.active.Add(1)
	if r.lasts() {
		for _, at := range []time.Duration{r.From, r.Until} {
			if at > 0 {
				c.timers = append(c.timers, time.AfterFunc(at, in.notify))
			}
		}
	}
	in.update(c)
	return c
}

// Control is a rule of an Injector.
type Control struct {
	in    *Injector
	rule  Rule
	index int
	began time.Time
	ended chan struct{}  // closed by End
	held  sync.WaitGroup // transactions that a Hold delays

	// Guarded by in.mu.
	isEnded  bool
	timers   []*time.Timer // of a lasting cut with bounds
	clients  map[string]*clientCounts
	injected int
}

// clientCounts are the counts of a rule for a client.
type clientCounts struct {
	matched  uint64
	injected int
	cutUntil time.Time // of a cut that a call began
}

// Injected returns how many calls and batches the rule has affected so far. A test that
// injects a fault should check that the fault occurred.
func (c *Control) Injected() int {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	return c.injected
}

// String returns the rule as Rule.String does.
func (c *Control) String() string { return c.rule.String() }

// End ends the rule: cuts end, calls that wait for the end of a cut continue, and held transactions
// are applied or refused before End returns. Calling End twice is legal.
func (c *Control) End() {
	c.in.mu.Lock()
	if !c.isEnded {
		c.isEnded = true
		close(c.ended)
		for _, t := range c.timers {
			t.Stop()
		}
		c.in.active.Add(-1)
		c.in.controls = slices.DeleteFunc(c.in.controls, func(x *Control) bool { return x == c })
		c.in.update(c)
	}
	c.in.mu.Unlock()
	c.held.Wait()
}

// update makes the start or the end of c take effect. in.mu is held.
func (in *Injector) update(c *Control) {
	if c.rule.Fault == Stale {
		in.views++
	}
	in.broadcast()
}

func (in *Injector) notify() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.broadcast()
}

// broadcast makes sessions and waiting calls look at the cuts again. in.mu is held.
func (in *Injector) broadcast() {
	close(in.changed)
	in.changed = make(chan struct{})
}

// isActive reports whether there are rules that have not ended.
func (in *Injector) isActive() bool { return in.active.Load() > 0 }

// call is a call, or a batch of a watcher, to be matched with rules.
type call struct {
	client string
	op     Ops
	key    registry.Key
	hasKey bool
	txn    *registry.Txn
}

// verdict is the effect of the rules on a call.
type verdict struct {
	request, reply         time.Duration // delays
	hold                   *Control
	holdFor                time.Duration // zero: until the end of hold
	loseRequest, loseReply bool
	stale                  *Control // counted once an old answer was found
}

// decide applies the rules to c, and counts.
func (in *Injector) decide(c *call) verdict {
	var v verdict
	if !in.isActive() {
		return v
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	now := time.Now()
	for _, k := range kinds {
		if k.ops&c.op == 0 {
			continue
		}
		for _, rule := range in.controls {
			if rule.rule.Fault != k.fault || rule.rule.lasts() || !rule.selects(c, now) {
				continue
			}
			length, ok := rule.draw(c.client)
			if !ok {
				continue
			}
			if k.fault != Stale {
				rule.count(c.client)
			}
			switch k.fault {
			case Cut, CutReplies:
				rule.clients[c.client].cutUntil = now.Add(length)
				time.AfterFunc(length, in.notify)
				in.broadcast()
			case DelayRequest:
				v.request += length
			case DelayReply:
				v.reply += length
			case Hold: // this and the following ones decide alone
				v.hold, v.holdFor = rule, length
				rule.held.Add(1)
				return v
			case LoseRequest:
				v.loseRequest = true
				return v
			case LoseReply:
				v.loseReply = true
				return v
			case Stale:
				v.stale = rule
				return v
			}
		}
	}
	return v
}

// selects reports whether the rule of c is in force for a call. in.mu is held.
func (c *Control) selects(k *call, now time.Time) bool {
	return c.inForce(now) && c.rule.ops()&k.op != 0 && c.rule.matchesClient(k.client) && c.rule.matchesKey(k)
}

func (c *Control) inForce(now time.Time) bool {
	age := now.Sub(c.began)
	return age >= c.rule.From && (c.rule.Until == 0 || age < c.rule.Until)
}

// draw counts a matching call of a client. It reports whether the rule affects the call, and
// draws the length of the fault. in.mu is held.
func (c *Control) draw(client string) (length time.Duration, affected bool) {
	n := c.clients[client]
	if n == nil {
		n = &clientCounts{}
		c.clients[client] = n
	}
	number := n.matched
	n.matched++
	if number < uint64(c.rule.Skip) || c.rule.Times > 0 && n.injected >= c.rule.Times {
		return 0, false
	}
	random := c.randomOf(client, number)
	if c.rule.Chance != 0 && random.Float64() >= c.rule.Chance {
		return 0, false
	}
	length = c.rule.For
	if c.rule.UpTo > length {
		length += time.Duration(random.Int64N(int64(c.rule.UpTo-length) + 1))
	}
	return length, true
}

// randomOf returns the source of randomness for the call of that number. It depends on nothing
// else than the seed, the rule, the client and the number, see the package comment.
func (c *Control) randomOf(client string, number uint64) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %d %d %s", c.in.seed, c.index, number, client)
	return rand.New(rand.NewPCG(h.Sum64(), c.in.seed))
}

// count counts an affected call of a client. in.mu is held.
func (c *Control) count(client string) {
	c.injected++
	c.clients[client].injected++
}

// countStale counts a read of a client that was answered by an old answer.
func (c *Control) countStale(client string) {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.count(client)
}

// link is the state of the connection of a client for some operation.
type link struct {
	cut     bool // requests are lost
	replies bool // replies and events are lost
	changed <-chan struct{}
	by      []*Control // the cuts that last while their rules are active
}

// linkOf returns the state of a client's connection for an operation.
func (in *Injector) linkOf(client string, op Ops) link {
	in.mu.Lock()
	defer in.mu.Unlock()
	l := link{changed: in.changed}
	now := time.Now()
	for _, c := range in.controls {
		if f := c.rule.Fault; f != Cut && f != CutReplies || c.rule.ops()&op == 0 {
			continue
		}
		if c.rule.lasts() {
			if !c.inForce(now) || !c.rule.matchesClient(client) {
				continue
			}
			l.by = append(l.by, c)
		} else if n := c.clients[client]; n == nil || !now.Before(n.cutUntil) {
			continue
		}
		l.replies = true
		l.cut = l.cut || c.rule.Fault == Cut
	}
	return l
}

// countCut counts a call that waits for the end of a cut.
func (in *Injector) countCut(l link) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, c := range l.by {
		c.injected++
	}
}

// viewRules returns a number that changes with the Stale rules, and whether one is active for
// a client.
func (in *Injector) viewRules(client string) (number uint64, stale bool) {
	if !in.isActive() {
		return 0, false
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.views, slices.ContainsFunc(in.controls, func(c *Control) bool {
		return c.rule.Fault == Stale && c.rule.matchesClient(client)
	})
}
