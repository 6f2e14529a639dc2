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
	Dir  string // of its log
}

// zkEnsemble reads the transaction logs of all members. A logged transaction is proposed, not yet committed, and may
// be dropped when the leader fails; hence each log is read only up to the last transaction that its member
// reports as executed. Transactions that a member missed while it was down, because it received a snapshot, are
// in the log of another.
type zkEnsemble struct {
	*zkHistory
	addrs   []string
	readers []*zkReader
	waiting map[uint64]*zkTxn // for an earlier one
	epochs  map[uint64]uint64 // by the last transaction of an epoch: the first of the next
	ends    map[uint64]uint64 // by epoch: its last transaction, as logs show it at the begin of the next
}

func newZKEnsemble(root string) *zkEnsemble {
	return &zkEnsemble{zkHistory: newZKHistory(root), waiting: map[uint64]*zkTxn{}, epochs: map[uint64]uint64{}, ends: map[uint64]uint64{}}
}

// ZooKeeperEnsemble reads the logs of an ensemble that runs on this machine and started empty. root is the namespace
// root of the registry. Only Sync reads. One member may be down at a time.
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

// Sync asks each member for its last executed transaction, and reads up to it. A client learns of a commit from a
// member that has executed it, so no known commit is missed.
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

// has reports whether all transactions up to newest have been read. A leader begins its epoch with a number that no
// transaction has.
func (l *zkEnsemble) has(newest uint64) bool {
	return l.written >= newest || uint32(newest) == 0 && len(l.waiting) == 0
}

// readAll reads the logs of the members that answer, and returns the newest transaction that one of them executed.
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

// offer adds a transaction of a log, in which it follows the one with the number before.
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

// order commits the waiting transactions that are next; newest is the last transaction that a member executed.
// Numbers within an epoch have no gaps.
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

// committed reports whether a logged transaction is known to be committed. A killed leader may have logged proposals
// that its successor does not know. If a snapshot updates it later, they stay in its log, before transactions
// of the next epoch.
func (l *zkEnsemble) committed(zxid, newest uint64) bool {
	return epoch(zxid) == epoch(newest) || uint32(newest) == 0 || zxid <= l.ends[epoch(zxid)]
}

// Close stops reading.
func (l *zkEnsemble) Close() error {
	for _, r := range l.readers {
		r.close()
	}
	return nil
}
