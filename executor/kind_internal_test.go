package executor

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor/internal/pool"
	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/member"
	"github.com/rota-dev/rota/schedule"
)

func TestRegisterKind_Problems(t *testing.T) {
	h := HandlerFunc(noop)
	for want, kind := range map[string]Kind{
		`invalid kind "": Name: `:                                 {Handler: h},
		`invalid kind "a/b": Name: `:                              {Name: "a/b", Handler: h},
		`invalid kind "mail": Handler: is nil`:                    {Name: "mail"},
		`invalid kind "mail": Description: has 1001 bytes`:        {Name: "mail", Handler: h, Description: strings.Repeat("d", 1001)},
		`invalid kind "mail": Middleware: nil entries: [0]`:       {Name: "mail", Handler: h, Middleware: []Middleware{nil}},
		`invalid kind "mail": MaxRunning: -1 is negative`:         {Name: "mail", Handler: h, MaxRunning: -1},
		`invalid kind "mail": Revision: -1 is negative`:           {Name: "mail", Handler: h, Revision: -1},
		`invalid kind "mail": MaxJobs: -1 is negative`:            {Name: "mail", Handler: h, MaxJobs: -1},
		`invalid kind "mail": Defaults.Timeout: -1s is negative`:  {Name: "mail", Handler: h, Defaults: Job{Timeout: -time.Second}},
		`invalid kind "mail": Defaults.Shards: 10001 is not from`: {Name: "mail", Handler: h, Defaults: Job{Shards: 10_001}},
		`invalid kind "mail": Defaults.Strategy: "mine" is neit`:  {Name: "mail", Handler: h, Defaults: Job{Strategy: "mine"}},
		`invalid kind "mail": Defaults.Retry: needs TrackRuns`:    {Name: "mail", Handler: h, Defaults: Job{Retry: Retry{Max: 1}, Tracking: TrackClaims}},
	} {
		err := newExecutor(t, Options{}).RegisterKind(kind)
		require.ErrorIs(t, err, ErrInvalidKind)
		assert.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "\n", "one problem")
	}
	for field, defaults := range map[string]Job{
		"Name": {Name: "a"}, "Description": {Description: "a"}, "Schedule": {Schedule: schedule.Every(time.Minute)}, "Handler": {Handler: h},
		"Middleware": {Middleware: []Middleware{nil}}, "Revision": {Revision: 1}, "StartPaused": {StartPaused: true},
		"MaxRunning": {MaxRunning: 1}, "Local": {Local: "a"},
	} {
		err := newExecutor(t, Options{}).RegisterKind(Kind{Name: "mail", Handler: h, Defaults: defaults})
		assert.ErrorContains(t, err, `invalid kind "mail": Defaults.`+field+": must not be set: ")
	}
	t.Run("of all kinds are returned together, and none is registered", func(t *testing.T) {
		e := newExecutor(t, Options{})
		err := e.RegisterKind(Kind{Name: "good", Handler: h}, Kind{Name: "bad"}, Kind{Name: "worse", MaxJobs: -1}, Kind{Name: "good", Handler: h})
		for _, want := range []string{`"bad": Handler`, `"worse": Handler`, `"worse": MaxJobs`, `"good": Name: given twice in one call`} {
			assert.ErrorContains(t, err, want)
		}
		_, err = e.findHandler("job", "good")
		assert.ErrorIs(t, err, ErrUnknownKind)
	})
	t.Run("of middleware that returns no handler", func(t *testing.T) {
		none := func(Handler) Handler { return nil }
		err := newExecutor(t, Options{Middleware: []Middleware{none}}).RegisterKind(Kind{Name: "mail", Handler: h})
		assert.EqualError(t, err, `invalid kind "mail": Options.Middleware: entry 0 returned a nil handler`)
	})
}

func TestKind_DefaultsAreThoseThatDifferFromAZeroJob(t *testing.T) {
	for want, defaults := range map[string]Job{
		"": {Shards: 1, Strategy: "sticky", MaxAttempts: 3, RunOn: map[string]string{}},
		`{"max_attempts":5,"on_crash":"count as failed","on_misfire":"run all 2","param":"p","run_on":{"zone":"a"},"shard_params":{"1":"x"},"shards":2,"strategy":"average"}`: {
			MaxAttempts: 5, OnCrash: CountAsFailed, OnMisfire: RunAll(2), Param: "p", RunOn: map[string]string{"zone": "a"}, ShardParams: map[int]string{1: "x"}, Shards: 2, Strategy: "average",
		},
		`{"catchup_window":"1h","on_overlap":"skip","retry":{"factor":2,"initial":"1s","jitter":0.2,"max":2,"max_interval":"1m"},"timeout":"5s"}`: {
			CatchupWindow: time.Hour, OnOverlap: SkipOverlapping, Retry: Retry{Max: 2}, Timeout: 5 * time.Second,
		},
	} {
		stored, err := Kind{Defaults: defaults}.storedDefaults()
		require.NoError(t, err)
		assert.Equal(t, want, string(stored))
	}
}

func TestDecodeDefinition_OfADefinedJob(t *testing.T) {
	decode := func(kind string, revision int, created string) error {
		def, err := DefinitionOfKind(Job{Name: "a"}, kind, revision, created)
		require.NoError(t, err)
		_, err = Compile(def)
		return err
	}
	assert.NoError(t, decode("mail", 0, "x7"))
	assert.NoError(t, decode("mail", 3, "x7"))
	assert.ErrorContains(t, decode("", 0, "x7"), "created: is set, and kind is missing")
	assert.ErrorContains(t, decode("", 1, ""), "kind_revision: is set, and kind is missing")
	assert.ErrorContains(t, decode("mail", 0, ""), "created: has 0 bytes")
	assert.ErrorContains(t, decode("mail", 0, "a/b"), "created: ")
	assert.ErrorContains(t, decode("mail", -1, "x7"), "kind_revision: -1 is negative")
	assert.ErrorContains(t, decode("a/b", 0, "x7"), "kind: ")
}

// A leader and an operator compile definitions of kinds that they lack; an owner of shards must have the kind.
func TestWork_CheckRunnable(t *testing.T) {
	e := newExecutor(t, Options{})
	require.NoError(t, e.RegisterKind(Kind{Name: "mail", Revision: 2, Handler: HandlerFunc(noop)}))
	check := func(kind string, revision int) error {
		created := ""
		if kind != "" {
			created = "x7"
		}
		def, err := DefinitionOfKind(Job{Name: "a"}, kind, revision, created)
		require.NoError(t, err)
		p, err := work{e}.Compile(def)
		require.NoError(t, err)
		return work{e}.CheckRunnable(p)
	}
	assert.NoError(t, check("", 0))
	assert.NoError(t, check("mail", 0))
	assert.NoError(t, check("mail", 2))
	assert.EqualError(t, check("mail", 3), `kind "mail" has revision 2 here, and the job needs 3`)
	assert.EqualError(t, check("post", 0), `unknown kind: "post" is not registered here`)
	assert.ErrorIs(t, check("post", 0), ErrUnknownKind)
}

func TestClaimedRuns_ForgetDefinedJobsWithoutRuns(t *testing.T) {
	var all claimedRuns
	runs := func(job, kind string) (*claim, []*claimedRun) {
		c := &claim{Run: claimer.Run{Job: job, Shards: 2}, e: &Executor{member: &member.Member{}}, program: &program{definition: definition{Kind: kind}}}
		return c, []*claimedRun{{claim: c, task: pool.Task{Job: job}}, {claim: c, task: pool.Task{Job: job, Shard: 1}}}
	}
	c, kept := runs("registered", "")
	all.add(c, kept)
	for i := range 1000 {
		c, of := runs(fmt.Sprint("job-", i), "mail")
		all.add(c, of)
		all.remove(of[0])
		assert.Same(t, of[1], all.find(shardOf{c.Job, 1}))
		all.remove(of[1])
		all.ask(shardOf{c.Job, 1}, errors.New("late"))
	}
	assert.Len(t, all.of, 1)
	assert.Equal(t, 2, all.count)
	assert.Equal(t, 2, all.size)
}

// The executor keeps the program of the definition for a defined job of which it owns shards, and nothing else.
func TestProgram_OfADefinedJobIsSmall(t *testing.T) {
	const jobs = 2000
	programs := make([]due.Program, 0, jobs)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	compile := func(n int) {
		for i := range n {
			def, err := DefinitionOfKind(Job{
				Name: fmt.Sprint("digest of tenant ", i), Description: "A digest.", Schedule: schedule.Cron("30 7 * * 1-5").In("Asia/Shanghai"), Param: fmt.Sprint("tenant ", i),
				Retry: Retry{Max: 3}, Timeout: time.Minute, Revision: 1,
			}, "mail", 0, "abcdefghijklm")
			require.NoError(t, err)
			p, err := Compile(def)
			require.NoError(t, err)
			programs = append(programs, p)
		}
	}
	compile(1) // loads the zone
	before := heap()
	compile(jobs - 1)
	each := (heap() - before) / (jobs - 1)
	runtime.KeepAlive(programs)
	t.Logf("%d bytes each", each)
	assert.Less(t, each, uint64(4<<10))
}
