package storelog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"
)

// ZooKeeperMember is a server of an ensemble.
type ZooKeeperMember struct {
	Addr string
	Dir  string // below which it keeps its log
}

// zkEnsemble reads the transaction logs of all members. What a member logs has been
// proposed, not yet committed, and may be taken back when the leader dies; hence each is
// read only up to the transaction that it says it has executed. What a member has missed,
// as it was down and got a snapshot instead, is in the log of another.
type zkEnsemble struct {
	*zkHistory
	addrs   []string
	readers []*zkReader
	waiting map[uint64]*zkTxn // for one before it
	epochs  map[uint64]uint64 // by the last transaction of an epoch: the first of the next
	ends    map[uint64]uint64 // by epoch: its last transaction, as far as logs of the next have shown it
}

func newZKEnsemble(root string) *zkEnsemble {
	return &zkEnsemble{zkHistory: newZKHistory(root), waiting: map[uint64]*zkTxn{}, epochs: map[uint64]uint64{}, ends: map[uint64]uint64{}}
}

// ZooKeeperEnsemble reads the log of an ensemble on this machine, which was empty. root is
// the namespace that the registry was opened with. Nothing is taken in but by Sync. Members
// may be down, one at a time.
func ZooKeeperEnsemble(ctx context.Context, members []ZooKeeperMember, root string) (Log, error) {
	l := newZKEnsemble(root)
	for _, m := range members {
		l.addrs = append(l.addrs, m.Addr)
		l.readers = append(l.readers, &zkReader{dir: m.Dir})
	}
	if err := l.Sync(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("read ZooKeeper's log: %w", err), l.Close())
	}
	return l, nil
}

// Sync asks the members for the last transaction that each has executed. Whoever has been
// told of a commit was told by a member that had executed it.
func (l *zkEnsemble) Sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, syncWithin)
	defer cancel()
	for {
		newest, err := l.readAll(ctx)
		if err == nil && l.has(newest) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("read up to transaction %x, with %d after %x: %w (%w)", newest, len(l.waiting), l.written, context.Cause(ctx), err)
		case <-time.After(pollEvery):
		}
	}
}

// has reports whether all up to a transaction has been taken in. A leader begins its epoch
// at a number that no transaction has.
func (l *zkEnsemble) has(newest uint64) bool {
	return l.written >= newest || uint32(newest) == 0 && len(l.waiting) == 0
}

// readAll reads the logs of the members that answer, and returns the newest transaction
// that one of them has executed.
func (l *zkEnsemble) readAll(ctx context.Context) (newest uint64, err error) {
	var errs []error
	for i, r := range l.readers {
		zxid, err := lastZxid(ctx, l.addrs[i])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		newest = max(newest, zxid)
		if err := r.read(zxid, l.offer); err != nil {
			return 0, err
		}
	}
	l.order(newest)
	if len(errs) == len(l.readers) {
		return 0, errors.Join(errs...)
	}
	return newest, nil
}

// offer takes a transaction from a log, in which it comes after the one of number before.
func (l *zkEnsemble) offer(before uint64, t *zkTxn) {
	if t.zxid <= l.written {
		return
	}
	l.waiting[t.zxid] = t
	if uint32(t.zxid) == 1 {
		l.epochs[before] = t.zxid
		l.ends[epoch(before)] = max(l.ends[epoch(before)], before)
	}
}

func epoch(zxid uint64) uint64 { return zxid >> 32 }

// order takes in what has its turn; newest is the last transaction that a member has executed.
// Within an epoch the numbers have no gaps.
func (l *zkEnsemble) order(newest uint64) {
	for {
		t := l.waiting[l.written+1]
		if t != nil && !l.committed(t.zxid, newest) {
			t = nil
		}
		if t == nil {
			t = l.waiting[l.epochs[l.written]]
		}
		if t == nil {
			break
		}
		l.take(t)
	}
	maps.DeleteFunc(l.waiting, func(zxid uint64, _ *zkTxn) bool { return zxid <= l.written })
}

// committed reports whether a transaction in a log is known to have been committed. A leader that is
// killed has logged proposals that its successor does not know. If it is brought up to date by a
// snapshot, they stay in its log, before transactions of the next epoch.
func (l *zkEnsemble) committed(zxid, newest uint64) bool {
	return epoch(zxid) == epoch(newest) || uint32(newest) == 0 || zxid <= l.ends[epoch(zxid)]
}

// Close ends the reading.
func (l *zkEnsemble) Close() error {
	for _, r := range l.readers {
		r.close()
	}
	return nil
}
