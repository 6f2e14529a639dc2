package conformance

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/rota-dev/rota/registry"
)

// fault is a temporary fault of one machine or of the whole store.
type fault struct {
	name  string
	begin func(machine string) (end func())
}

// faults returns the faults that can be injected while clients work.
func (t *test) faults() []fault {
	var all []fault
	add := func(name string, begin func(string) func()) {
		all = append(all, fault{name, begin})
	}
	s := t.store
	nothing := func() {}
	for _, c := range []Cut{Refuse, Blackhole, ToStore, FromStore} {
		add(c.String(), func(m string) func() { return s.Partition(m, c) })
	}
	loses := func(lose func(string)) func(string) func() {
		return func(m string) func() {
			lose(m)
			return func() { t.useUpLoss(t.handles[m]) } // else unused losses accumulate
		}
	}
	for range 2 { // the fault that most defects need
		add(LoseReply, loses(s.LoseReply))
	}
	add(LoseRequest, loses(s.LoseRequest))
	if s.HoldCommit != nil {
		add(HoldCommit, s.HoldCommit)
	}
	if s.Stall != nil {
		add(Stall, func(string) func() { return s.Stall() })
	}
	if s.Isolate != nil {
		add(Isolate, s.Isolate)
	}
	if t.bubble && s.Restart != nil { // on a server a restart takes too long to be frequent
		add(Restart, func(string) func() { s.Restart(); return nothing })
	}
	return all
}

// useUpLoss sends a transaction to use up a pending loss.
func (t *test) useUpLoss(r registry.Registry) {
	ctx, cancel := context.WithTimeout(t.ctx, 50*time.Millisecond)
	defer cancel()
	_, _ = r.Txn(ctx, registry.Txn{If: []registry.Cond{registry.Absent("none")}})
}

// majorFault returns a fault that one history on a real server suffers once, or nil.
func (t *test) majorFault() func() (end func()) {
	switch {
	case t.bubble:
		return nil
	case t.store.KillLeader != nil:
		return t.store.KillLeader
	case t.store.Restart != nil:
		return func() func() { t.store.Restart(); return func() {} }
	}
	return nil
}

// injectRandomFaults injects faults into machines, drawn by seed, until stop, which
// returns the number of each.
func (t *test) injectRandomFaults(machines []string, seed uint64) (stop func() map[string]int) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 0))
	for _, m := range machines {
		t.handle(m)                           // faults must not create one
		if t.bubble && t.store.Delay != nil { // else calls take no time and never overlap
			t.Cleanup(t.store.Delay(m, time.Duration(random.IntN(4))*time.Millisecond))
		}
	}
	all := t.faults()
	upheaval := t.majorFault()
	if seed != t.backend.seed() { // only the first history gets it
		upheaval = nil
	}
	suffered := map[string]int{}
	stopped := t.spawn(func(ctx context.Context) error {
		var going []func() // ends of at most two active faults
		defer func() {
			for _, end := range going {
				end()
			}
		}()
		for round := 0; sleepUnlessDone(ctx, t.faultInterval(random)); round++ {
			if len(going) > random.IntN(2) {
				going[0]()
				going = going[1:]
			}
			switch x := all[random.IntN(len(all))]; {
			case upheaval != nil && round == 3:
				going = append(going, upheaval())
				suffered["major fault"]++
			case random.IntN(3) > 0:
				going = append(going, x.begin(machines[random.IntN(len(machines))]))
				suffered[x.name]++
			}
		}
		return nil
	})
	return func() map[string]int {
		stopped()
		return suffered
	}
}

// faultInterval draws the time until the next fault.
func (t *test) faultInterval(r *rand.Rand) time.Duration {
	return time.Duration(t.repeats(1, 20)+r.IntN(t.repeats(10, 150))) * time.Millisecond
}

// sleepUnlessDone waits for d and reports false if ctx ended first.
func sleepUnlessDone(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
