package conformance

import (
	"math/rand/v2"

	"github.com/anishathalye/porcupine"
)

// The cases of this group record calls and their results under random faults and search
// for a sequential order that explains them.
var historyCases = []Case{
	{
		Code: "C01", Name: "histories of single keys are linearizable under random faults",
		Proves: []Promise{ChangeNeedsTheRev, FreshReadsSeeAll, TxnIsSentOnce, OutcomesAreTrue, SeqGrows},
		Needs:  []string{Partition, LoseReply, LoseRequest}, run: registerHistory, Safety: true,
	},
	{
		Code: "C02", Name: "histories of transactions over several keys are linearizable under random faults",
		Proves: []Promise{TxnIsAtomic, ConditionsAreChecked, ConflictNamesTheItem, ListedEntriesWereCommitted},
		Needs:  []string{Partition, LoseReply, LoseRequest}, run: txnHistory, Safety: true,
	},
	{
		Code: "C03", Name: "histories of a lock and its fences are linearizable under random faults",
		Proves: []Promise{LockExcludes, FencesGrow, GuardEndsWithTheTenure},
		Needs:  []string{Partition, LoseReply, LoseRequest, Expire}, run: lockHistory, Safety: true,
	},
	{
		Code: "C04", Name: "histories of owned keys and session ends are linearizable under random faults",
		Proves: []Promise{CloseRemovesOwnedKeys, SessionEndsAtOneCommit, CreateOwnedNeedsLiveSession, AliveUntilTheEnd, DeadOnceEnded, AtomicListingIsOneCommit},
		Needs:  []string{Partition, LoseReply, LoseRequest, Expire}, run: ownedHistory, Safety: true,
	},
	{
		Code: "C05", Name: "watchers deliver only committed states, in order, and the last state of each key",
		Proves: []Promise{NeverOlderAfterNewer, LastStateArrives, WatchIsOneLevel, DeltasHoldChanges, WatchedEntriesAreComplete, EntryNamesItsTxn},
		Needs:  []string{Partition, LoseReply, LoseRequest}, run: watchHistory, Safety: true,
	},
	{
		Code: "C06", Name: "random histories are linearizable for several seeds",
		Proves: []Promise{OutcomesAreTrue, TxnIsAtomic, CloseRemovesOwnedKeys},
		Needs:  []string{Partition, LoseReply, LoseRequest, Expire}, run: manyHistories, Safety: true,
	},
}

// requireLinearizable records a history and fails the case unless it is linearizable. If
// the search is undecided, it tries another history, up to four.
func (t *test) requireLinearizable(seed uint64, m porcupine.Model, budget int64, record func(seed uint64) *history) {
	t.Helper()
	const attempts = 4
	for range attempts {
		switch v, picture := record(seed).search(t, m, budget); v {
		case linearizable:
			return
		case illegal:
			t.Fatalf("the history with seed %d is not linearizable: see %s", seed, picture)
		}
		t.Logf("the history with seed %d is undecided", seed)
		seed += 1 << 32 // a range that no other case uses
	}
	t.Fatalf("%d histories are undecided after %d steps", attempts, budget)
}

func (t *test) requireStoreHistory(p profile) {
	t.Helper()
	t.requireLinearizable(p.seed, storeModel(), stepBudget, func(seed uint64) *history {
		p.seed = seed
		return t.recordHistory(p)
	})
}

// historyOps is the number of calls of each client in a history without sessions, which has to
// show a defect alone. With sessions, whose ends may stay unknown, a longer one is hard to search.
func (t *test) historyOps() int { return t.repeats(80, 40) }

func registerHistory(t *test) {
	t.requireStoreHistory(profile{seed: t.backend.seed(), clients: 8, ops: t.historyOps(), groups: 2, keys: 1})
}

func txnHistory(t *test) {
	t.requireStoreHistory(profile{seed: t.backend.seed(), clients: 8, ops: t.historyOps(), groups: 3, keys: 3, conds: true})
}

func ownedHistory(t *test) {
	t.requireStoreHistory(profile{seed: t.backend.seed(), clients: 8, ops: 40, groups: 1, keys: 4, conds: true, sessions: true})
}

// manyHistories draws the profile of each history. If there are few, as on a server, the first
// two are a large one without sessions and one with them: those alone find each kind of defect.
func manyHistories(t *test) {
	const few = 10
	large := []profile{
		{clients: 8, ops: t.historyOps(), groups: 2, keys: 2},
		{clients: 8, ops: 40, groups: 1, keys: 4, conds: true, sessions: true},
	}
	for i := range t.backend.seeds() {
		seed := t.backend.seed() + 1 + uint64(i)
		p := drawProfile(rand.New(rand.NewPCG(seed, 1)))
		if t.backend.seeds() <= few && i < len(large) {
			p = large[i]
		}
		p.seed = seed
		t.requireStoreHistory(p)
	}
}

func drawProfile(random *rand.Rand) profile {
	return profile{
		clients:  2 + random.IntN(7),
		ops:      10 + random.IntN(20),
		groups:   1 + random.IntN(3),
		keys:     1 + random.IntN(maxKeys),
		conds:    random.IntN(2) == 0,
		sessions: random.IntN(2) == 0,
	}
}
