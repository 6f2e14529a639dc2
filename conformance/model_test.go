package conformance

import (
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

// pastCall is a call with its start and end, for handwritten histories.
type pastCall struct {
	call, ret int64
	in, out   any
}

func (h *history) addCalls(calls ...pastCall) *history {
	for i, c := range calls {
		h.ops = append(h.ops, porcupine.Operation{ClientId: i, Call: c.call, Return: c.ret, Input: c.in, Output: c.out})
	}
	return h
}

var (
	txn1, txn2 = registry.TxnID{1}, registry.TxnID{2}
	noAnswer   = answer{conflict: -1, unknown: true}
)

func at(seq uint64) registry.Rev { return registry.Rev{Seq: seq, Aux: seq} }

func reads(cells ...cell) (action, answer) {
	a := action{kind: readKeys}
	for i := range cells {
		a.keys = append(a.keys, i)
	}
	return a, answer{conflict: -1, cells: cells}
}

func txnOf(id registry.TxnID, ops ...modelItem) action {
	return action{kind: runTxn, txn: modelTxn{id: id, ops: ops}}
}

func TestStoreModel(t *testing.T) {
	made := func(seq uint64) answer { return answer{conflict: -1, rev: at(seq)} }
	refusedAt := func(i int) answer { return answer{conflict: i} }
	is := func(id registry.TxnID, created, modified uint64) cell {
		return cell{there: true, txn: id, created: at(created), modified: at(modified)}
	}
	owned := is(txn1, 5, 5)
	owned.owner = 1
	read := func(call, ret int64, cells ...cell) pastCall {
		a, o := reads(cells...)
		return pastCall{call, ret, a, o}
	}
	create := txnOf(txn1, modelItem{op: registry.OpCreate})
	createTwo := txnOf(txn1, modelItem{op: registry.OpCreate}, modelItem{op: registry.OpCreate, key: 1})
	own := txnOf(txn1, modelItem{op: registry.OpCreateOwned})
	ownAnother := txnOf(txn2, modelItem{op: registry.OpCreateOwned, key: 1}, modelItem{op: registry.OpCreate})
	set := func(seq uint64) action { return txnOf(txn2, modelItem{op: registry.OpSet, rev: at(seq)}) }
	end := action{kind: endSession}
	ended := answer{conflict: -1}
	for name, c := range map[string]struct {
		calls []pastCall
		want  verdict
	}{
		"a read after a write":             {[]pastCall{{1, 2, create, made(5)}, read(3, 4, is(txn1, 5, 5))}, linearizable},
		"an empty read after a write":      {[]pastCall{{1, 2, create, made(5)}, read(3, 4, cell{})}, illegal},
		"an empty read during a write":     {[]pastCall{{1, 4, create, made(5)}, read(2, 3, cell{})}, linearizable},
		"a read of another Rev":            {[]pastCall{{1, 2, create, made(5)}, read(3, 4, is(txn1, 5, 6))}, illegal},
		"two creations":                    {[]pastCall{{1, 2, create, made(5)}, {3, 4, txnOf(txn2, modelItem{op: registry.OpCreate}), made(6)}}, illegal},
		"a set at its Rev":                 {[]pastCall{{1, 2, create, made(5)}, {3, 4, set(5), made(6)}, read(5, 6, is(txn2, 5, 6))}, linearizable},
		"a set at another Rev":             {[]pastCall{{1, 2, create, made(5)}, {3, 4, set(4), made(6)}}, illegal},
		"Seq that goes back":               {[]pastCall{{1, 2, create, made(5)}, {3, 4, set(5), made(4)}}, illegal},
		"a true conflict":                  {[]pastCall{{1, 2, create, made(5)}, {3, 4, set(4), refusedAt(0)}}, linearizable},
		"a conflict at another item":       {[]pastCall{{1, 2, create, made(5)}, {3, 4, createTwo, refusedAt(1)}}, illegal},
		"a false conflict":                 {[]pastCall{{1, 2, create, refusedAt(0)}}, illegal},
		"unknown, and applied":             {[]pastCall{{1, neverReturned, create, noAnswer}, read(3, 4, is(txn1, 5, 5))}, linearizable},
		"unknown, and not applied":         {[]pastCall{{1, neverReturned, create, noAnswer}, read(3, 4, cell{})}, linearizable},
		"unknown, and applied late":        {[]pastCall{{1, neverReturned, create, noAnswer}, read(3, 4, cell{}), read(5, 6, is(txn1, 5, 5))}, linearizable},
		"unknown, and applied for a while": {[]pastCall{{1, neverReturned, create, noAnswer}, read(3, 4, is(txn1, 5, 5)), read(5, 6, cell{})}, illegal},
		"unknown, and at two Revs":         {[]pastCall{{1, neverReturned, create, noAnswer}, read(3, 4, is(txn1, 5, 5)), read(5, 6, is(txn1, 5, 6))}, illegal},
		"unknown, and half applied":        {[]pastCall{{1, neverReturned, createTwo, noAnswer}, read(3, 4, is(txn1, 5, 5), cell{})}, illegal},
		"unknown, at one Rev for each":     {[]pastCall{{1, neverReturned, createTwo, noAnswer}, read(3, 4, is(txn1, 5, 5), is(txn1, 6, 6))}, illegal},
		"unknown, and then set":            {[]pastCall{{1, neverReturned, create, noAnswer}, read(3, 4, is(txn1, 5, 5)), {5, 6, set(5), made(7)}, read(7, 8, is(txn2, 5, 7))}, linearizable},
		"a read of an unwritten key":       {[]pastCall{read(3, 4, is(txn1, 5, 5))}, illegal},
		"an owned key":                     {[]pastCall{{1, 2, own, made(5)}, read(3, 4, owned)}, linearizable},
		"an owned key without its owner":   {[]pastCall{{1, 2, own, made(5)}, read(3, 4, is(txn1, 5, 5))}, illegal},
		"an owned key after the end":       {[]pastCall{{1, 2, own, made(5)}, {3, 4, end, ended}, read(5, 6, owned)}, illegal},
		"an owned key during the end":      {[]pastCall{{1, 2, own, made(5)}, {3, 6, end, ended}, read(4, 5, owned), read(7, 8, cell{})}, linearizable},
		"an unobserved end":                {[]pastCall{{1, 2, own, made(5)}, {3, neverReturned, end, ended}, read(4, 5, owned), read(7, 8, cell{})}, linearizable},
		"an owned key of an ended session": {[]pastCall{{1, 2, end, ended}, {3, 4, own, made(5)}}, illegal},
		"a session that is not lost":       {[]pastCall{{1, 2, own, answer{conflict: -1, dead: true}}}, illegal},
		"an ended session, the key exists": {[]pastCall{{1, 2, end, ended}, {3, 4, create, made(5)}, {5, 6, own, refusedAt(0)}}, linearizable},
		"an ended session, a later item":   {[]pastCall{{1, 2, end, ended}, {3, 4, create, made(5)}, {5, 6, ownAnother, refusedAt(1)}}, linearizable},
		"an ended session, the wrong item": {[]pastCall{{1, 2, end, ended}, {3, 4, create, made(5)}, {5, 6, ownAnother, refusedAt(0)}}, illegal},
		"a session that is lost":           {[]pastCall{{1, 2, end, ended}, {3, 4, own, answer{conflict: -1, dead: true}}}, linearizable},
	} {
		t.Run(name, func(t *testing.T) {
			v, picture := (&history{}).addCalls(c.calls...).search(&test{TB: keeper{t}}, storeModel(), stepBudget)
			require.Equal(t, c.want, v)
			if v == illegal {
				require.FileExists(t, picture)
			}
		})
	}
}

func TestLockModel(t *testing.T) {
	got := func(session int, fence uint64) (lockCall, lockAnswer) {
		return lockCall{kind: acquireLock, session: session}, lockAnswer{fence: fence}
	}
	acquire := func(call, ret int64, session int, fence uint64) pastCall {
		in, out := got(session, fence)
		return pastCall{call, ret, in, out}
	}
	release := func(call, ret int64, fence uint64, refused bool) pastCall {
		return pastCall{call, ret, lockCall{kind: releaseLock, fence: fence}, lockAnswer{refused: refused}}
	}
	check := func(call, ret int64, fence uint64, refused bool) pastCall {
		return pastCall{call, ret, lockCall{kind: checkGuard, fence: fence}, lockAnswer{refused: refused}}
	}
	end := func(call, ret int64, session int) pastCall {
		return pastCall{call, ret, lockCall{kind: endHolder, session: session}, lockAnswer{}}
	}
	for name, c := range map[string]struct {
		calls []pastCall
		want  verdict
	}{
		"one after the other":           {[]pastCall{acquire(1, 2, 0, 5), release(3, 4, 5, false), acquire(5, 6, 1, 6)}, linearizable},
		"two at once":                   {[]pastCall{acquire(1, 2, 0, 5), acquire(3, 4, 1, 6), release(5, 6, 5, false)}, illegal},
		"a fence that goes back":        {[]pastCall{acquire(1, 2, 0, 5), release(3, 4, 5, false), acquire(5, 6, 1, 4)}, illegal},
		"acquired from an ended holder": {[]pastCall{acquire(1, 2, 0, 5), end(3, 4, 0), acquire(5, 6, 1, 6)}, linearizable},
		"acquired by an ended session":  {[]pastCall{end(1, 2, 0), acquire(3, 4, 0, 5)}, illegal},
		"a guard that holds":            {[]pastCall{acquire(1, 2, 0, 5), check(3, 4, 5, false)}, linearizable},
		"a guard that holds too long":   {[]pastCall{acquire(1, 2, 0, 5), end(3, 4, 0), acquire(5, 6, 1, 6), check(7, 8, 5, false)}, illegal},
		"a guard that does not hold":    {[]pastCall{acquire(1, 2, 0, 5), check(3, 4, 5, true)}, illegal},
		"a release of another tenure":   {[]pastCall{acquire(1, 2, 0, 5), end(3, 4, 0), acquire(5, 6, 1, 6), release(7, 8, 5, false)}, illegal},
		"an unanswered release":         {[]pastCall{acquire(1, 2, 0, 5), release(3, neverReturned, 5, true), acquire(5, 6, 1, 6)}, linearizable},
	} {
		t.Run(name, func(t *testing.T) {
			v, _ := (&history{}).addCalls(c.calls...).search(&test{TB: keeper{t}}, lockModel(), stepBudget)
			require.Equal(t, c.want, v)
		})
	}
}

// keeper keeps the artifacts of a failure in a temporary directory.
type keeper struct{ *testing.T }

func (k keeper) artifactDir() string { return k.TempDir() }

// TestUndecided exhausts the step budget: concurrent calls have many possible orders,
// none of which explains the last call.
func TestUndecided(t *testing.T) {
	m := porcupine.Model{
		Init: func() any { return uint64(0) },
		Step: func(state, input, output any) (bool, any) {
			if input.(int) < 0 {
				return false, state
			}
			return true, state.(uint64) | 1<<input.(int)
		},
		DescribeOperation: func(input, _ any) string { return fmt.Sprint(input) },
		DescribeState:     func(state any) string { return fmt.Sprint(state) },
	}
	hard := func(n int) *history {
		h := &history{}
		for i := range n {
			h.addCalls(pastCall{1, 2, i, nil})
		}
		return h.addCalls(pastCall{3, 4, -1, nil})
	}
	recorded := 0
	complaints := runRecorded(t, func(tb testing.TB) {
		(&test{TB: tb}).requireLinearizable(1, m, 1000, func(uint64) *history {
			recorded++
			return hard(20)
		})
	})
	require.Equal(t, 4, recorded, "an undecided history is followed by another, up to four")
	require.Len(t, complaints, 1)
	require.Contains(t, complaints[0], "are undecided")

	complaints = runRecorded(t, func(tb testing.TB) {
		(&test{TB: tb}).requireLinearizable(77, m, 1000, func(uint64) *history { return hard(bits.Len(15)) })
	})
	require.Len(t, complaints, 1)
	require.Contains(t, complaints[0], "the history with seed 77 is not linearizable")
	picture := complaints[0][strings.LastIndex(complaints[0], " ")+1:]
	require.Equal(t, ".html", filepath.Ext(picture))
	html, err := os.ReadFile(picture)
	require.NoError(t, err)
	require.NotEmpty(t, html)
}
