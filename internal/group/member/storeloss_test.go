package member_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
)

const lossLine = "the store has lost records"

// startPaused starts members a, b, ... that offer the jobs held and free, a leading, and pauses the
// first. It also disables a shard of the other, and an instance for it.
func startPaused(t *testing.T, g *membertest.Group, n int) *operator.Operator {
	t.Helper()
	defs := []string{coordtest.Def("free", 0, 4, ""), coordtest.Def("held", 0, 2, "")}
	for i := range n {
		g.Start(string(rune('a'+i)), defs...)
	}
	op, _ := g.NewOperator()
	require.NoError(t, op.As("kim", "quarter end").Pause(t.Context(), "held"))
	require.NoError(t, op.Disable(t.Context(), operator.Scope{Job: "free", Shards: []int{3}}))
	require.NoError(t, op.Disable(t.Context(), operator.Scope{Job: "free", Instances: []string{"zoe"}}))
	membertest.SleepToMinute(2)
	return op
}

// takeRuns returns the runs of all members by job, and the lowest and highest fence of each shard's runs.
func takeRuns(g *membertest.Group) (runs map[string]int, lowest, highest map[string]uint64) {
	runs, lowest, highest = map[string]int{}, map[string]uint64{}, map[string]uint64{}
	for _, w := range g.Members {
		for _, r := range w.TakeRuns() {
			shard := fmt.Sprintf("%s/%d", r.Job, r.Shard)
			runs[r.Job]++
			if low, has := lowest[shard]; !has || r.Fence < low {
				lowest[shard] = r.Fence
			}
			highest[shard] = max(highest[shard], r.Fence)
		}
	}
	return runs, lowest, highest
}

func checkFencesAbove(t *testing.T, lowest, before map[string]uint64) {
	t.Helper()
	for shard, low := range lowest {
		assert.Greater(t, low, before[shard], shard)
	}
}

func readMeta(g *membertest.Group) record.Meta {
	e, ok := g.GetRecord(g.Keys.Meta())
	require.True(g.T, ok)
	meta, err := record.DecodeMeta(e.Value)
	require.NoError(g.T, err)
	return meta
}

func TestStoreLoss_Wiped(t *testing.T) {
	membertest.RunBubble(t, "is reported once by each process; paused jobs stay paused and fences grow", func(t *testing.T, g *membertest.Group) {
		op := startPaused(t, g, 3)
		_, _, before := takeRuns(g)
		before0 := readMeta(g).ID
		g.Server.Wipe()
		time.Sleep(10 * time.Minute)
		runs, lowest, _ := takeRuns(g)
		assert.Zero(t, runs["held"], "paused before the wipe")
		assert.GreaterOrEqual(t, runs["free"], 27)
		assert.NotContains(t, lowest, "free/3", "disabled before the wipe")
		checkFencesAbove(t, lowest, before)
		for _, w := range g.Members {
			assert.Equal(t, 1, w.Log.Count(lossLine), w.Instance())
		}
		loss, err := op.StoreLoss(t.Context())
		require.NoError(t, err)
		require.NotNil(t, loss)
		assert.Equal(t, operator.StoreReplaced, loss.Kind)
		assert.Equal(t, 2, loss.Restored)
		assert.True(t, loss.Complete)
		assert.NotEqual(t, before0, readMeta(g).ID)
		acts, err := op.Acts(t.Context(), "held")
		require.NoError(t, err)
		require.NotEmpty(t, acts)
		last := acts[len(acts)-1]
		assert.Equal(t, [3]string{"rota", "restored from memory", "pause"}, [3]string{last.By, last.Reason, last.What})
		d, err := op.Diagnose(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, d.Findings)
		assert.Equal(t, operator.FindingLost, d.Findings[0].Kind)
		assert.Equal(t, operator.SeverityError, d.Findings[0].Severity)

		require.NoError(t, op.AcknowledgeLoss(t.Context()))
		loss, err = op.StoreLoss(t.Context())
		require.NoError(t, err)
		assert.Nil(t, loss)
		g.Server.Expire("a")
		time.Sleep(time.Minute)
		assert.Nil(t, readMeta(g).Incident, "an acknowledged loss is not reported again")
		require.NoError(t, op.Resume(t.Context(), "held"))
		time.Sleep(3 * time.Minute)
		runs, _, _ = takeRuns(g)
		assert.NotZero(t, runs["held"])
	})
	membertest.RunBubble(t, "leaves what a leader knew of operators: who paused, and which instances are disabled", func(t *testing.T, g *membertest.Group) {
		op := startPaused(t, g, 1)
		require.NoError(t, op.As("lee", "").Retire(t.Context(), "free"))
		time.Sleep(time.Second)
		g.Server.Wipe()
		time.Sleep(time.Minute)
		st, err := op.Intent(t.Context(), "held")
		require.NoError(t, err)
		assert.Equal(t, "kim", st.HeldBy.By)
		st, err = op.Intent(t.Context(), "free")
		require.NoError(t, err)
		assert.Equal(t, []string{"zoe"}, st.Disabled.Instances)
		assert.Equal(t, []int{3}, st.Disabled.Shards)
		assert.Equal(t, "lee", st.RetiredBy.By)
	})
	membertest.RunBubble(t, "has what a leader knew also if a follower has restored the bare pause before", func(t *testing.T, g *membertest.Group) {
		op := startPaused(t, g, 3)
		until := time.Now().Add(3 * time.Hour)
		require.NoError(t, op.As("kim", "quarter end").PauseUntil(t.Context(), "held", until))
		require.NoError(t, op.As("lee", "").PauseGroup(t.Context()))
		time.Sleep(time.Minute)
		heal := g.Server.Partition("a")
		g.Server.Wipe()
		time.Sleep(5 * time.Minute)
		st, err := op.Intent(t.Context(), "held")
		require.NoError(t, err)
		require.Equal(t, record.FromMemory, st.HeldBy.Reason, "restored by a follower")
		heal()
		time.Sleep(5 * time.Minute)
		st, err = op.Intent(t.Context(), "held")
		require.NoError(t, err)
		assert.Equal(t, "kim", st.HeldBy.By)
		assert.WithinDuration(t, until, st.Until, 0)
		group, err := op.Acts(t.Context(), "")
		require.NoError(t, err)
		assert.Equal(t, "lee", group[0].By)
		loss, err := op.StoreLoss(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 3, loss.Restored, "each record once")
		assert.True(t, loss.Complete)
		require.NoError(t, op.ResumeGroup(t.Context()))
		time.Sleep(3 * time.Hour)
		runs, _, _ := takeRuns(g)
		assert.NotZero(t, runs["held"], "the pause has ended")
	})
	membertest.RunBubble(t, "of which only a follower knows is restored from its plans, and the rest is named", func(t *testing.T, g *membertest.Group) {
		op := startPaused(t, g, 2)
		require.NoError(t, g.Members[0].Override(t.Context(), "free", operator.Override{Policies: map[string]any{"max_attempts": 7}}))
		time.Sleep(time.Minute)
		require.NoError(t, op.PauseGroup(t.Context()))
		time.Sleep(time.Minute)
		require.Equal(t, "a", g.ReadLeaderName())
		takeRuns(g)
		g.Server.Partition("a")
		g.Server.Wipe()
		time.Sleep(3 * time.Minute)
		runs, _, _ := takeRuns(g)
		assert.Empty(t, runs)
		st, err := op.Intent(t.Context(), "free")
		require.NoError(t, err)
		assert.Equal(t, []int{3}, st.Disabled.Shards)
		assert.Empty(t, st.Disabled.Instances, "no plan has it")
		assert.Equal(t, 7, g.ReadPlan("free").Last().Job().MaxAttempts)
		group, err := op.Group(t.Context())
		require.NoError(t, err)
		assert.True(t, group.Paused)
		loss, err := op.StoreLoss(t.Context())
		require.NoError(t, err)
		require.NotNil(t, loss)
		assert.False(t, loss.Complete)
		assert.Equal(t, 1, g.Members[1].Log.Count("disabled instances and hosts"))
		require.NoError(t, op.ResumeGroup(t.Context()))
		membertest.SleepToMinute(10)
		runs, _, _ = takeRuns(g)
		assert.Zero(t, runs["held"], "its own pause")
		assert.NotZero(t, runs["free"])
	})
	membertest.RunBubble(t, "record by record is reported as well, and fences grow", func(t *testing.T, g *membertest.Group) {
		op := startPaused(t, g, 2)
		_, _, before := takeRuns(g)
		for _, e := range g.Server.Dump() {
			if _, exists := g.GetRecord(e.Key); exists {
				g.RemoveRecord(e.Key)
			}
		}
		time.Sleep(10 * time.Minute)
		loss, err := op.StoreLoss(t.Context())
		require.NoError(t, err)
		require.NotNil(t, loss)
		runs, lowest, _ := takeRuns(g)
		assert.NotZero(t, runs["free"])
		checkFencesAbove(t, lowest, before)
	})
	membertest.RunBubble(t, "of which nobody knows is a new store", func(t *testing.T, g *membertest.Group) {
		op := startPaused(t, g, 1)
		g.Members[0].Shutdown()
		g.Server.Wipe()
		b := g.Start("b", coordtest.Def("held", 0, 2, ""))
		loss, err := op.StoreLoss(t.Context())
		require.NoError(t, err)
		assert.Nil(t, loss)
		assert.Zero(t, b.Log.Count(lossLine))
		assert.Zero(t, readMeta(g).FenceBase)
	})
	membertest.RunBubble(t, "keeps what was stored in the new store on purpose", func(t *testing.T, g *membertest.Group) {
		op := startPaused(t, g, 1)
		heal := g.Server.Partition("a")
		g.Server.Wipe()
		g.Start("b", coordtest.Def("held", 0, 2, ""))
		require.NoError(t, op.As("lee", "").Disable(t.Context(), operator.Scope{Job: "held", Shards: []int{1}}))
		heal()
		time.Sleep(3 * time.Minute)
		st, err := op.Intent(t.Context(), "held")
		require.NoError(t, err)
		assert.False(t, st.Paused)
		assert.Equal(t, []int{1}, st.Disabled.Shards)
	})
}

// startForgetful wipes the store while a, which remembers, is away, and starts b, which does not.
func startForgetful(t *testing.T, g *membertest.Group) (b *membertest.Worker, before map[string]uint64, heal func()) {
	t.Helper()
	startPaused(t, g, 1)
	_, _, before = takeRuns(g)
	heal = g.Server.Partition("a")
	g.Server.Wipe()
	b = g.Start("b", coordtest.Def("free", 0, 4, ""))
	membertest.SleepToMinute(10)
	_, lowest, _ := takeRuns(g)
	require.NotEmpty(t, lowest)
	return b, before, heal
}

// awaitBase waits until the fence base has been raised, and drops the runs before.
func awaitBase(g *membertest.Group) {
	for readMeta(g).FenceBase == 0 {
		time.Sleep(time.Millisecond)
	}
	takeRuns(g)
}

func TestStoreLoss_FencesOfAProcessThatRemembersNothing(t *testing.T) {
	membertest.RunBubble(t, "are above all earlier ones as soon as one that remembers has arrived", func(t *testing.T, g *membertest.Group) {
		b, before, heal := startForgetful(t, g)
		incarnation := b.Incarnation()
		heal()
		awaitBase(g)
		g.Server.Partition("a") // so that b keeps the shards
		membertest.SleepToMinute(15)
		require.Equal(t, incarnation, b.Incarnation(), "it has not joined again")
		_, lowest, _ := takeRuns(g)
		require.NotEmpty(t, lowest)
		checkFencesAbove(t, lowest, before)
	})
	membertest.RunBubble(t, "are above all earlier ones also if the record of the namespace was missing", func(t *testing.T, g *membertest.Group) {
		b, before, heal := startForgetful(t, g)
		incarnation := b.Incarnation()
		g.RemoveRecord(g.Keys.Meta())
		membertest.SleepToMinute(12)
		runs, _, _ := takeRuns(g)
		require.NotZero(t, runs["free"], "it claims on")
		require.Equal(t, incarnation, b.Incarnation())
		op, _ := g.NewOperator()
		require.NoError(t, op.RaiseFences(t.Context(), 1<<45))
		takeRuns(g)
		membertest.SleepToMinute(15)
		_, lowest, _ := takeRuns(g)
		require.NotEmpty(t, lowest)
		for _, low := range lowest {
			assert.Greater(t, low, uint64(1<<45))
		}
		heal()
		awaitBase(g)
		membertest.SleepToMinute(20)
		_, lowest, _ = takeRuns(g)
		checkFencesAbove(t, lowest, before)
	})
	membertest.RunBubble(t, "grow as before if nobody remembers", func(t *testing.T, g *membertest.Group) {
		startPaused(t, g, 1)
		g.Members[0].Shutdown()
		g.Server.Wipe()
		g.Start("b", coordtest.Def("free", 0, 4, ""))
		g.Start("c", coordtest.Def("free", 0, 4, ""))
		takeRuns(g)
		var before map[string]uint64
		for range 5 {
			time.Sleep(time.Minute)
			_, lowest, highest := takeRuns(g)
			require.NotEmpty(t, lowest)
			checkFencesAbove(t, lowest, before)
			before = highest
		}
		assert.Zero(t, readMeta(g).FenceBase)
	})
}

func TestStoreLoss_AnUnreadableMetaStopsNoClaims(t *testing.T) {
	membertest.RunBubble(t, "nor the raised base that replaces it", func(t *testing.T, g *membertest.Group) {
		startPaused(t, g, 1)
		id := readMeta(g).ID
		incarnation := g.Members[0].Incarnation()
		g.SpoilRecord(g.Keys.Meta())
		takeRuns(g)
		time.Sleep(3 * time.Minute)
		runs, _, _ := takeRuns(g)
		assert.GreaterOrEqual(t, runs["free"], 9)
		assert.Equal(t, 1, g.Members[0].Log.Count("cannot join again: the record of the namespace cannot be read"))
		g.WriteRecord(g.Keys.Meta(), fmt.Sprintf(`{"format":1,"fence_base":%d,"id":%q}`, 1<<45, id))
		takeRuns(g)
		time.Sleep(3 * time.Minute)
		_, lowest, _ := takeRuns(g)
		require.NotEmpty(t, lowest)
		for _, low := range lowest {
			assert.Greater(t, low, uint64(1<<45))
		}
		assert.Equal(t, incarnation, g.Members[0].Incarnation())
	})
}

// TestStoreLoss_Upgrade has a namespace of a version that writes no ID.
func TestStoreLoss_Upgrade(t *testing.T) {
	membertest.RunBubble(t, "gives the namespace an ID, without a report", func(t *testing.T, g *membertest.Group) {
		const base = 1 << 30
		g.PutRecord(g.Keys.Meta(), fmt.Sprintf(`{"format":1,"fence_base":%d}`, base))
		startPaused(t, g, 3)
		meta := readMeta(g)
		assert.NotEmpty(t, meta.ID)
		assert.Empty(t, meta.Former)
		assert.Nil(t, meta.Incident)
		assert.EqualValues(t, base, meta.FenceBase)
		for _, name := range []string{"a", "b", "c"} {
			g.Server.Expire(name)
		}
		time.Sleep(time.Minute)
		assert.Equal(t, meta.ID, readMeta(g).ID)
		assert.Nil(t, readMeta(g).Incident)
		for _, w := range g.Members {
			assert.Zero(t, w.Log.Count(lossLine), w.Instance())
		}
	})
}

func TestStoreLoss_Rewound(t *testing.T) {
	membertest.RunBubble(t, "is noticed, fences grow, and a pause since the backup is restored", func(t *testing.T, g *membertest.Group) {
		defs := []string{coordtest.Def("free", 0, 4, ""), coordtest.Def("held", 0, 2, "")}
		g.Start("a", defs...)
		g.Start("b", defs...)
		membertest.SleepToMinute(2)
		rewind := g.Server.Save()
		op, _ := g.NewOperator()
		require.NoError(t, op.Pause(t.Context(), "held"))
		membertest.SleepToMinute(6)
		_, _, before := takeRuns(g)
		rewind()
		time.Sleep(10 * time.Minute)
		runs, lowest, _ := takeRuns(g)
		assert.Zero(t, runs["held"])
		assert.NotZero(t, runs["free"])
		checkFencesAbove(t, lowest, before)
		loss, err := op.StoreLoss(t.Context())
		require.NoError(t, err)
		require.NotNil(t, loss)
		assert.Equal(t, operator.StoreRewound, loss.Kind)
		for _, w := range g.Members {
			assert.Equal(t, 1, w.Log.Count(lossLine), w.Instance())
		}
	})
}

func TestStoreLoss_RewoundIntents(t *testing.T) {
	// begin saves a store in which a job has been paused and resumed, and changes its intent afterwards.
	begin := func(t *testing.T, g *membertest.Group) (op *operator.Operator, rewind func()) {
		defs := []string{coordtest.Def("free", 0, 4, ""), coordtest.Def("held", 0, 2, "")}
		g.Start("a", defs...)
		g.Start("b", defs...)
		op, _ = g.NewOperator()
		require.NoError(t, op.As("kim", "").Pause(t.Context(), "held"))
		require.NoError(t, op.As("kim", "").Resume(t.Context(), "held"))
		membertest.SleepToMinute(2)
		rewind = g.Server.Save()
		require.NoError(t, op.As("kim", "quarter end").Pause(t.Context(), "held"))
		require.NoError(t, op.As("kim", "").Disable(t.Context(), operator.Scope{Job: "held", Shards: []int{1}}))
		membertest.SleepToMinute(6)
		return op, rewind
	}
	membertest.RunBubble(t, "are restored by a leader over those of the earlier state", func(t *testing.T, g *membertest.Group) {
		op, rewind := begin(t, g)
		takeRuns(g)
		rewind()
		time.Sleep(10 * time.Minute)
		st, err := op.Intent(t.Context(), "held")
		require.NoError(t, err)
		assert.True(t, st.Paused)
		assert.Equal(t, "quarter end", st.HeldBy.Reason)
		assert.Equal(t, []int{1}, st.Disabled.Shards)
		runs, _, _ := takeRuns(g)
		assert.Zero(t, runs["held"])
		loss, err := op.StoreLoss(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, loss.Restored)
	})
	membertest.RunBubble(t, "stay as an operator has changed them since", func(t *testing.T, g *membertest.Group) {
		op, rewind := begin(t, g)
		heal := [2]func(){g.Server.Partition("a"), g.Server.Partition("b")}
		rewind()
		require.NoError(t, op.As("lee", "").Disable(t.Context(), operator.Scope{Job: "held", Shards: []int{0}}))
		heal[0]()
		heal[1]()
		time.Sleep(10 * time.Minute)
		st, err := op.Intent(t.Context(), "held")
		require.NoError(t, err)
		assert.False(t, st.Paused)
		assert.Equal(t, []int{0}, st.Disabled.Shards)
	})
	membertest.RunBubble(t, "that no instance remembers are named as lost", func(t *testing.T, g *membertest.Group) {
		op, rewind := begin(t, g)
		g.Server.Partition("a") // the leader, for good
		rewind()
		time.Sleep(10 * time.Minute)
		d, err := op.Diagnose(t.Context())
		require.NoError(t, err)
		assert.Contains(t, d.Findings[0].What, "not all that operators have changed since that state is restored")
	})
	membertest.RunBubble(t, "are restored if another leader has ended a pause at its time first", func(t *testing.T, g *membertest.Group) {
		defs := []string{coordtest.Def("free", 0, 4, ""), coordtest.Def("held", 0, 2, "")}
		g.Start("a", defs...)
		g.Start("b", defs...)
		op, _ := g.NewOperator()
		require.NoError(t, op.As("kim", "").PauseUntil(t.Context(), "held", time.Now().Add(10*time.Minute)))
		membertest.SleepToMinute(2)
		rewind := g.Server.Save()
		membertest.SleepToMinute(12)
		require.NoError(t, op.As("kim", "quarter end").Pause(t.Context(), "held"))
		membertest.SleepToMinute(14)
		heal := g.Server.Partition("a") // the leader
		rewind()
		time.Sleep(5 * time.Minute) // b leads, and ends the pause
		st, err := op.Intent(t.Context(), "held")
		require.NoError(t, err)
		require.False(t, st.Paused)
		heal()
		time.Sleep(2 * time.Minute)
		takeRuns(g)
		time.Sleep(10 * time.Minute)
		st, err = op.Intent(t.Context(), "held")
		require.NoError(t, err)
		assert.True(t, st.Paused)
		runs, _, _ := takeRuns(g)
		assert.Zero(t, runs["held"])
	})
	membertest.RunBubble(t, "end as they had ended since that state", func(t *testing.T, g *membertest.Group) {
		defs := []string{coordtest.Def("free", 0, 4, ""), coordtest.Def("held", 0, 2, "")}
		a := g.Start("a", defs...)
		g.Start("b", defs...)
		op, _ := g.NewOperator()
		op = op.WithCompiler(a.Compile)
		require.NoError(t, op.Pause(t.Context(), "held"))
		require.NoError(t, op.Disable(t.Context(), operator.Scope{Job: "free", Shards: []int{3}}))
		overrideAttempts := func(n int) {
			require.NoError(t, op.Override(t.Context(), "held", operator.Override{Policies: map[string]any{"max_attempts": n}}))
		}
		overrideAttempts(7)
		require.NoError(t, op.PauseGroup(t.Context()))
		membertest.SleepToMinute(2)
		rewind := g.Server.Save()
		require.NoError(t, op.Resume(t.Context(), "held"))
		require.NoError(t, op.Enable(t.Context(), operator.Scope{Job: "free", Shards: []int{3}}))
		require.NoError(t, op.ResumeGroup(t.Context()))
		overrideAttempts(9)
		membertest.SleepToMinute(6)
		takeRuns(g)
		rewind()
		time.Sleep(10 * time.Minute)
		runs, _, _ := takeRuns(g)
		assert.NotZero(t, runs["held"])
		assert.NotZero(t, runs["free"])
		st, err := op.Intent(t.Context(), "free")
		require.NoError(t, err)
		assert.Empty(t, st.Disabled.Shards)
		st, err = op.Intent(t.Context(), "held")
		require.NoError(t, err)
		assert.Contains(t, fmt.Sprint(st.Override.Policies), "9")
		loss, err := op.StoreLoss(t.Context())
		require.NoError(t, err)
		assert.True(t, loss.Complete)
		assert.Equal(t, 3, loss.Restored)
	})
}

func TestStoreLoss_FencesNeverFall(t *testing.T) {
	for seed := range uint64(12) {
		membertest.RunBubble(t, fmt.Sprintf("seed %d", seed), func(t *testing.T, g *membertest.Group) {
			random := rand.New(rand.NewPCG(seed, 0))
			startPaused(t, g, 3)
			_, _, before := takeRuns(g)
			rewind := g.Server.Save()
			for range 8 {
				who := string(rune('a' + random.IntN(3)))
				heal := func() {}
				if random.IntN(2) == 0 { // this member notices later, and has seen less
					heal = g.Server.Partition(who)
					time.Sleep(time.Duration(random.IntN(120)) * time.Second)
				}
				switch random.IntN(4) {
				case 0:
					g.Server.Wipe()
				case 1:
					rewind()
				case 2:
					rewind = g.Server.Save()
				default:
					g.Server.Expire(who)
				}
				time.Sleep(time.Duration(random.IntN(60)) * time.Second)
				heal()
				time.Sleep(3 * time.Minute)
				runs, lowest, highest := takeRuns(g)
				require.NotZero(t, runs["free"])
				assert.Zero(t, runs["held"])
				for shard, low := range lowest {
					require.GreaterOrEqual(t, low, before[shard], shard)
				}
				maps.Copy(before, highest)
			}
		})
	}
}

func TestStoreLoss_NoFalseAlarm(t *testing.T) {
	for name, disturb := range map[string]func(*membertest.Group){
		"a lost session":            func(g *membertest.Group) { g.Server.Expire("b") },
		"the loss of all sessions":  func(g *membertest.Group) { g.Server.Expire("a"); g.Server.Expire("b"); g.Server.Expire("c") },
		"a leader that is replaced": func(g *membertest.Group) { g.Server.Expire("a") },
		"a restart of the store":    func(g *membertest.Group) { g.Server.Restart() },
		"a pause of the store":      func(g *membertest.Group) { resume := g.Server.Pause(); time.Sleep(3 * membertest.TTL); resume() },
		"a partition":               func(g *membertest.Group) { heal := g.Server.Partition("b"); time.Sleep(3 * membertest.TTL); heal() },
		"a lost reply of a join":    func(g *membertest.Group) { g.Server.LoseReply("b", 3); g.Server.Expire("b") },
		"raised fences": func(g *membertest.Group) {
			op, _ := g.NewOperator()
			require.NoError(g.T, op.RaiseFences(g.T.Context(), 1<<50))
			g.Server.Expire("b")
		},
		"a meta of an older version": func(g *membertest.Group) {
			g.WriteRecord(g.Keys.Meta(), `{"format":1,"fence_base":0}`)
			g.Server.Expire("b")
		},
		"a member of the store behind": func(g *membertest.Group) {
			catchUp := g.Server.Lag("b")
			g.Server.Expire("b")
			time.Sleep(time.Minute)
			catchUp()
		},
	} {
		membertest.RunBubble(t, name, func(t *testing.T, g *membertest.Group) {
			startPaused(t, g, 3)
			id := readMeta(g).ID
			require.NotEmpty(t, id)
			for range 3 {
				disturb(g)
				time.Sleep(2 * time.Minute)
			}
			meta := readMeta(g)
			assert.Equal(t, id, meta.ID)
			assert.Nil(t, meta.Incident)
			for _, w := range g.Members {
				assert.Zero(t, w.Log.Count(lossLine))
				assert.Zero(t, w.Log.Count("acknowledged"))
			}
		})
	}
}

func TestStoreLoss_Guards(t *testing.T) {
	membertest.RunBubble(t, "a base that another instance raises at the same time stays", func(t *testing.T, g *membertest.Group) {
		startPaused(t, g, 1)
		g.Server.Wipe()
		const base = 1 << 60
		g.PutRecord(g.Keys.Meta(), `{"format":1,"fence_base":0,"id":"other"}`)
		g.Members[0].Reg.BeforeTxn(membertest.OnFirstWrite(membertest.IsKey(g.Keys.Meta()), func() {
			g.WriteRecord(g.Keys.Meta(), fmt.Sprintf(`{"format":1,"fence_base":%d,"id":"other","new_field":1}`, base))
		}))
		time.Sleep(time.Minute)
		meta := readMeta(g)
		assert.EqualValues(t, base, meta.FenceBase)
		require.NotNil(t, meta.Incident)
		assert.Contains(t, g.GetText(g.Keys.Meta()), "new_field", "of a later version")
	})
}
