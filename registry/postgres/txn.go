package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// The bounds of a batch of transactions, whose lock others wait for.
const (
	batchItems = 64 // transactions
	batchBytes = 1 << 20
)

// Txn implements registry.Registry.
func (c *Client) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	return c.handle.Txn(ctx, t, c.commitTxn)
}

// encodedTxn is a transaction whose values belong to this package: the caller may change its own when Txn has returned, and the batch
// may be sent after that.
type encodedTxn struct {
	id    registry.TxnID
	items []item
}

// item is a condition or an operation as the function commit of the schema reads it.
type item struct {
	kind    int
	key     registry.Key
	seq     uint64
	session registry.SessionID
	value   []byte
}

// txnAnswer is a row of the function commit.
type txnAnswer struct {
	failed int // 0: applied; else the place of the item that does not hold, from 1, or one of the two below
	rev    registry.Rev
}

const (
	failedSession = -1 // a session that shall own a key has ended
	failedQuota   = -2
)

var kindOfCond = map[registry.CondKind]int{registry.CondAbsent: 1, registry.CondAt: 2, registry.CondAlive: 3, registry.CondDead: 4}

var kindOfOp = map[registry.OpKind]int{registry.OpCreate: 5, registry.OpCreateOwned: 6, registry.OpSet: 7, registry.OpDelete: 8}

func encodeTxn(t registry.Txn) encodedTxn {
	e := encodedTxn{id: t.ID, items: make([]item, 0, len(t.If)+len(t.Then))}
	for i := range t.If {
		q := &t.If[i]
		e.items = append(e.items, item{kind: kindOfCond[q.Kind], key: q.Key, seq: seqOf(q.Rev), session: q.Session})
	}
	for i := range t.Then {
		o := &t.Then[i]
		e.items = append(e.items, item{kind: kindOfOp[o.Kind], key: o.Key, seq: seqOf(o.Rev), session: o.Session, value: slices.Clone(o.Value)})
	}
	return e
}

// seqOf returns the number of the commit that rev names, or 0, which no commit has, if it names none of this store.
func seqOf(rev registry.Rev) uint64 {
	if rev.Aux != 0 || rev.Seq >= 1<<63 {
		return 0
	}
	return rev.Seq
}

func (c *Client) commitTxn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	a, err := c.commits.ask(ctx, encodeTxn(t), t.Size())
	switch {
	case errors.Is(err, errNotSent):
		return registry.Rev{}, backend.NotApplied(backend.CallError(ctx, translate(err)))
	case refused(err):
		return registry.Rev{}, backend.NotApplied(translate(err))
	case err != nil:
		return registry.Rev{}, backend.Unknown(backend.CallError(ctx, translate(err)))
	case a.failed == failedSession:
		return registry.Rev{}, fmt.Errorf("%w: the session of a CreateOwned has ended", registry.ErrSessionLost)
	case a.failed == failedQuota:
		return registry.Rev{}, fmt.Errorf("%w: the quota in the table state is reached", registry.ErrQuota)
	case a.failed > 0:
		return registry.Rev{}, registry.Conflict(t, a.failed-1)
	}
	return a.rev, nil
}

// sendTxns sends a batch at most once: it repeats only an attempt that has not left the process.
func (c *Client) sendTxns(txns []encodedTxn) ([]txnAnswer, error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.options.CallTimeout)
	defer cancel()
	s := c.commitStatement(txns)
	for pause := backend.NextPause(0); ; pause = backend.NextPause(pause) {
		l, err := c.writes.get(ctx)
		if err != nil {
			return nil, err
		}
		rows, err := l.do(ctx, s)
		switch {
		case err == nil:
			return toTxnAnswers(rows, len(txns))
		case !errors.Is(err, errNotSent):
			l.endIfStandby(err)
			return nil, err
		case !backend.Sleep(ctx, pause):
			return nil, err
		}
	}
}

func toTxnAnswers(rows []row, n int) ([]txnAnswer, error) {
	if len(rows) != n {
		return nil, errors.New("an incomplete answer")
	}
	answers := make([]txnAnswer, n)
	for i, r := range rows {
		answers[i] = txnAnswer{failed: r.int4(0), rev: revOf(r.int8(1))}
	}
	return answers, nil
}

// commitStatement returns the statement that commits transactions one after the other.
func (c *Client) commitStatement(txns []encodedTxn) statement {
	ids := list{oid: oidUUIDList, element: oidUUID}
	places, kinds := list{oid: oidInt4List, element: oidInt4}, list{oid: oidInt4List, element: oidInt4}
	dirs, names, sessions := textList(), textList(), textList()
	seqs, values := list{oid: oidInt8List, element: oidInt8}, list{oid: oidByteaList, element: oidBytea}
	for i := range txns {
		ids.add(txns[i].id[:])
		for _, it := range txns[i].items {
			dir, name := splitKey(it.key)
			places.addInt4(i + 1)
			kinds.addInt4(it.kind)
			dirs.add([]byte(dir))
			names.add([]byte(name))
			seqs.addInt8(it.seq)
			sessions.add([]byte(it.session))
			values.add(it.value)
		}
	}
	return statement{"SELECT failed, seq FROM " + c.options.Schema + ".commit($1, $2, $3, $4, $5, $6, $7, $8, $9)", []param{
		boolean(!c.options.PollOnly), ids.param(), places.param(), kinds.param(), dirs.param(), names.param(), seqs.param(), sessions.param(), values.param(),
	}}
}
