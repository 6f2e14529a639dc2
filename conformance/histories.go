package conformance

import (
	"math/rand/v2"

	"github.com/anishathalye/porcupine"
)

// The cases of this group record what clients were told while everything went wrong at
// once, and search an order of their calls in which all of it is so.
var historyCases = []Case{
	{
		Code: "C01", Name: "histories of single keys are linearizable, whatever happens",
		Proves: []Promise{ChangeNeedsTheRev, FreshReadsSeeAll, TxnIsSentOnce, OutcomesAreTrue, SeqGrows},
		Needs:  []string{Partition, LoseReply, LoseRequest}, run: registerHistory, Safety: true,
	},
	{
		Code: "C02", Name: "histories of transactions over several keys are linearizable, whatever happens",
		Proves: []Promise{TxnIsAtomic, ConditionsAreChecked, ConflictNamesTheItem},
		Needs:  []string{Partition, LoseReply, LoseRequest}, run: txnHistory, Safety: true,
	},
	{
		Code: "C03", Name: "histories of a lock and its fences are linearizable, whatever happens",
		Proves: []Promise{LockExcludes, FencesGrow, GuardEndsWithTheTenure},
		Needs:  []string{Partition, LoseReply, LoseRequest, Expire}, run: lockHistory, Safety: true,
	},
	{
		Code: "C04", Name: "histories of owned keys and of the ends of sessions are linearizable, whatever happens",
		Proves: []Promise{CloseRemovesOwnedKeys, SessionEndsAtOneCommit, CreateOwnedNeedsLiveSession, AliveUntilTheEnd, DeadOnceEnded},
		Needs:  []string{Partition, LoseReply, LoseRequest, Expire}, run: ownedHistory, Safety: true,
	},
	{
		Code: "C05", Name: "what watchers tell is what was committed, in order, and in the end all of it",
		Proves: []Promise{NeverOlderAfterNewer, LastStateArrives, WatchIsOneLevel, DeltasHoldChanges, WatchTellsEntriesWhole},
		Needs:  []string{Partition, LoseReply, LoseRequest}, run: watchHistory, Safety: true,
	},
	{
		Code: "C06", Name: "histories of all kinds are linearizable, seed after seed",
		Proves: []Promise{OutcomesAreTrue, TxnIsAtomic, CloseRemovesOwnedKeys},
		Needs:  []string{Partition, LoseReply, LoseRequest, Expire}, run: manyHistories, Safety: true,
	},
}

// requireLinearizable records a history and fails the case unless it is linearizable. One that
// cannot be decided about is followed by another.
func (t *test) requireLinearizable(seed uint64, m porcupine.Model, budget int64, record func(seed uint64) *history) {
	t.Helper()
	for range 2 {
		switch v, picture := record(seed).search(t, m, budget); v {
		case linearizable:
			return
		case illegal:
			t.Fatalf("the history with seed %d is not linearizable: see %s", seed, picture)
		}
		t.Logf("the history with seed %d cannot be decided about", seed)
		seed += 1 << 32 // far from what others draw
	}
	t.Fatalf("two histories could not be decided about in %d steps", budget)
}

func (t *test) requireStoreHistory(p profile) {
	t.Helper()
	t.requireLinearizable(p.seed, storeModel(), stepBudget, func(seed uint64) *history {
		p.seed = seed
		return t.recordHistory(p)
	})
}

func registerHistory(t *test) {
	t.requireStoreHistory(profile{seed: t.backend.seed(), clients: 8, ops: 40, groups: 2, keys: 1})
}

func txnHistory(t *test) {
	t.requireStoreHistory(profile{seed: t.backend.seed(), clients: 8, ops: 40, groups: 3, keys: 3, conds: true})
}

func ownedHistory(t *test) {
	t.requireStoreHistory(profile{seed: t.backend.seed(), clients: 8, ops: 40, groups: 1, keys: 4, conds: true, sessions: true})
}

// manyHistories draws what clients do as well.
func manyHistories(t *test) {
	for i := range t.backend.seeds() {
		seed := t.backend.seed() + 1 + uint64(i)
		random := rand.New(rand.NewPCG(seed, 1))
		p := profile{
			seed:     seed,
			clients:  2 + random.IntN(7),
			ops:      10 + random.IntN(20),
			groups:   1 + random.IntN(3),
			keys:     1 + random.IntN(maxKeys),
			conds:    random.IntN(2) == 0,
			sessions: random.IntN(2) == 0,
		}
		t.requireStoreHistory(p)
	}
}
