package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

// attempt is a write with its result.
type attempt struct {
	op  registry.Op
	rev registry.Rev
	err error
}

// watchWriter writes keys of watched directories.
type watchWriter struct {
	client
	attempts map[registry.TxnID]attempt
}

// watchReader is a follower that keeps every delivered entry.
type watchReader struct {
	*follower
	delivered []registry.Entry
	stop      func()
}

// watchedDirs are the watched directories. Keys below them and beside them must not be
// delivered.
var watchedDirs = []registry.Key{"watched/x", "watched/y"}

func watchHistory(t *test) {
	const writers = 4
	seed := t.backend.seed()
	machines := machineNames(writers)
	var readers []*watchReader
	for i := range 2 * len(machines) {
		readers = append(readers, t.followWithNaps(machines[i/2], watchedDirs[i%2], rand.New(rand.NewPCG(seed, uint64(i+100)))))
	}
	s := &scene{profile: profile{seed: seed, clients: writers}, t: t}
	all := make([]*watchWriter, writers)
	for i := range all {
		all[i] = &watchWriter{attempts: map[registry.TxnID]attempt{}, client: client{
			scene: s, id: i, reg: t.handle(machines[i]), random: rand.New(rand.NewPCG(seed, uint64(i+1))),
		}}
	}
	calm := t.injectRandomFaults(machines, seed)
	t.runConcurrently(writers, func(i int) error { return all[i].writeRandomKeys(t.ctx, t.repeats(100, 40)) })
	suffered := calm()
	for _, machine := range machines {
		t.awaitUsable(t.handle(machine))
	}
	for _, r := range readers {
		r.stop()
	}
	for _, dir := range watchedDirs { // the last write
		t.create(t.handle("last"), dir.Join("last"), "last")
	}
	delivered := 0
	for _, r := range readers {
		r.converge(t.handle("last"))
		delivered += len(r.delivered)
	}
	t.Logf("seed %d: %d changes delivered to %d readers; %v", seed, delivered, len(readers), suffered)
	attempts := map[registry.TxnID]attempt{}
	for _, w := range all {
		for id, x := range w.attempts {
			attempts[id] = x
		}
	}
	created := map[registry.Rev]registry.Rev{} // by Modified: each write has one key
	for _, r := range readers {
		for _, e := range r.delivered {
			require.NoError(t, wasCommitted(e, attempts), "seed %d: %s at %d", seed, e.Key, e.Modified.Seq)
			if first, seen := created[e.Modified]; seen {
				require.Equal(t, first, e.Created, "seed %d: two readers received different entries of %s at %d", seed, e.Key, e.Modified.Seq)
			}
			created[e.Modified] = e.Created
		}
	}
}

// wasCommitted returns an error unless one of the attempts wrote the entry.
func wasCommitted(e registry.Entry, attempts map[registry.TxnID]attempt) error {
	x, tried := attempts[e.Txn]
	switch {
	case !tried:
		return errors.New("no transaction wrote it")
	case x.op.Key != e.Key || string(x.op.Value) != string(e.Value):
		return fmt.Errorf("the transaction wrote %s: %q", x.op.Key, x.op.Value)
	case x.err == nil && x.rev != e.Modified:
		return fmt.Errorf("the transaction committed at %d", x.rev.Seq)
	case x.err != nil && !errors.Is(x.err, registry.ErrUnknownOutcome):
		return fmt.Errorf("the transaction failed: %w", x.err)
	}
	return nil
}

// followWithNaps follows dir until stop and pauses now and then.
func (t *test) followWithNaps(machine string, dir registry.Key, random *rand.Rand) *watchReader {
	t.Helper()
	r := &watchReader{follower: t.follow(t.handle(machine), dir)}
	r.delivered = append(r.delivered, r.last.Puts...)
	r.stop = t.spawn(func(ctx context.Context) error {
		for {
			b, err := r.receive(ctx)
			if err != nil {
				return err
			}
			r.delivered = append(r.delivered, b.Puts...)
			if random.IntN(4) == 0 {
				sleepUnlessDone(ctx, time.Duration(random.IntN(20))*time.Millisecond)
			}
		}
	})
	return r
}

func (w *watchWriter) writeRandomKeys(ctx context.Context, rounds int) error {
	for i := range rounds {
		dir := watchedDirs[w.random.IntN(len(watchedDirs))]
		if w.random.IntN(5) == 0 {
			dir = dir.Join("below")
		}
		key := dir.Join("k" + strconv.Itoa(w.random.IntN(5)))
		if err := w.write(ctx, key, fmt.Appendf(nil, "%d of %d", i, w.id)); err != nil {
			return fmt.Errorf("client %d: %w", w.id, err)
		}
		w.pauseRandomly()
	}
	return nil
}

// write creates, sets or deletes key, as its state allows.
func (w *watchWriter) write(ctx context.Context, key registry.Key, value []byte) error {
	within, cancel := context.WithTimeout(ctx, w.callTimeout())
	defer cancel()
	e, err := w.reg.Get(within, key, fresh)
	op := registry.Create(key, value)
	switch {
	case errors.Is(err, registry.ErrNotFound):
	case err != nil:
		return w.awaitHandle(ctx, checkUnavailable(err))
	case w.random.IntN(4) == 0:
		op = registry.Delete(key, e.Modified)
	default:
		op = registry.Set(key, e.Modified, value)
	}
	id := registry.NewTxnID()
	rev, err := w.reg.Txn(within, registry.Txn{ID: id, Then: []registry.Op{op}})
	w.attempts[id] = attempt{op, rev, err}
	if err == nil || errors.Is(err, registry.ErrConflict) {
		return nil
	}
	return w.awaitHandle(ctx, checkUnanswered(err))
}
