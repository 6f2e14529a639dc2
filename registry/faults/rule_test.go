package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

func TestParse_ReadsWhatStringPrints(t *testing.T) {
	in := New(7,
		Rule{Fault: LoseReply, Client: "web-*", Ops: Txn | Get, Key: "jobs/...", Skip: 2, Times: 3, Chance: 0.05},
		Rule{Fault: Cut, Ops: Calls, From: time.Second, Until: time.Minute},
		Rule{Fault: CutReplies, Ops: Txn, Chance: 0.001, For: time.Second, UpTo: 20 * time.Second},
		Rule{Fault: DelayRequest, UpTo: 50 * time.Millisecond},
		Rule{Fault: DelayReply, Ops: Events, For: time.Second},
		Rule{Fault: Hold, For: 2 * time.Second},
		Rule{Fault: LoseRequest, Ops: OpenSession | CloseSession | Watch},
		Rule{Fault: Stale, Key: "config", Chance: 0.5},
		Rule{Fault: Cut, Ops: Renewals, Client: "b"},
	)
	in.Add(Rule{Fault: Hold}).End()
	text := in.String()
	assert.Equal(t, `seed=7
lose-reply client=web-* ops=get,txn key=jobs/... skip=2 times=3 chance=0.05
cut ops=get,list,txn,watch,open-session,close-session from=1s until=1m0s
cut-replies ops=txn chance=0.001 for=1s..20s
delay-request for=0s..50ms
delay-reply ops=events for=1s
hold for=2s
lose-request ops=watch,open-session,close-session
stale key=config chance=0.5
cut client=b ops=renewals
hold
`, text)
	again, err := Parse(text)
	require.NoError(t, err)
	assert.Equal(t, in.rules, again.rules)
	assert.Equal(t, in.seed, again.seed)
	again, err = Parse(strings.ReplaceAll(text, "\n", "; "))
	require.NoError(t, err)
	assert.Equal(t, in.rules, again.rules)
}

func TestParse_NamesTheProblem(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "no seed=N",
		"lose-reply":                          "is not seed=N",
		"seed=x":                              "is not seed=N",
		"seed=1 lose-reply":                   "is not seed=N",
		"seed=1; lose":                        `unknown fault "lose"`,
		"seed=1; stale ops=txn":               "stale affects only get,list",
		"seed=1; stale ops=read":              `unknown operation "read"`,
		"seed=1; stale colour=red":            `unknown field "colour"`,
		"seed=1; stale chance=0.1 chance=0.2": "chance is set twice",
		"seed=1; stale chance=2":              "not between 0 and 1",
		"seed=1; stale chance=NaN":            "not between 0 and 1",
		"seed=1; stale for=1s":                "stale has no length",
		"seed=1; stale skip=-1":               "negative",
		"seed=1; stale client=[":              `client "["`,
		"seed=1; stale key=[":                 `key "["`,
		"seed=1; stale from=2s until=1s":      "an empty time",
		"seed=1; delay-reply":                 "needs a length",
		"seed=1; delay-reply for=2s..1s":      "an empty range",
		"seed=1; delay-reply for=2":           "missing unit",
		"seed=1; cut key=a":                   "a cut without a length has no key",
		"seed=1; cut ops=renewals for=1s":     "no call begins a cut",
		"seed=1; lose-reply ops=txn,events":   "affects only",
	} {
		_, err := Parse(text)
		assert.ErrorContains(t, err, want, text)
	}
	assert.PanicsWithValue(t, "faults: unknown fault 0", func() { New(1, Rule{}) })
}

func TestRule_MatchesKeys(t *testing.T) {
	txn := &registry.Txn{
		If:   []registry.Cond{registry.Alive("s"), registry.Absent("a/b")},
		Then: []registry.Op{registry.Create("c", nil)},
	}
	for pattern, want := range map[string][3]bool{ // Get of a/b, txn, OpenSession
		"":        {true, true, true},
		"a/b":     {true, true, false},
		"a/*":     {true, true, false},
		"a/...":   {true, true, false},
		"a/b/...": {true, true, false},
		"*":       {false, true, false},
		"c":       {false, true, false},
		"a":       {false, false, false},
		"a/b/c":   {false, false, false},
	} {
		r := Rule{Fault: LoseReply, Key: pattern}
		assert.Equal(t, want, [3]bool{
			r.matchesKey(&call{op: Get, key: "a/b", hasKey: true}),
			r.matchesKey(&call{op: Txn, txn: txn}),
			r.matchesKey(&call{op: OpenSession}),
		}, pattern)
	}
}

// affected returns which of the first n calls of a client a lone rule affects.
func affected(in *Injector, client string, n int) string {
	var b strings.Builder
	for range n {
		if in.decide(&call{client: client, op: Txn, txn: &registry.Txn{}}).loseReply {
			b.WriteByte('x')
		} else {
			b.WriteByte('.')
		}
	}
	return b.String()
}

func TestSeed_DecidesEachClientsCallsAlone(t *testing.T) {
	rule := Rule{Fault: LoseReply, Chance: 0.3}
	alone := affected(New(5, rule), "a", 200)
	in := New(5, rule)
	affected(in, "b", 77)
	assert.Equal(t, alone, affected(in, "a", 200), "calls of another client change nothing")
	assert.NotEqual(t, alone, affected(New(6, rule), "a", 200), "another seed")
	assert.NotEqual(t, alone, affected(New(5, rule), "b", 200), "another client")
	assert.InDelta(t, 60, strings.Count(alone, "x"), 20)
}

func TestRule_CountsCallsOfEachClient(t *testing.T) {
	in := New(1, Rule{Fault: LoseReply, Client: "web-?", Skip: 2, Times: 3})
	assert.Equal(t, "..xxx...", affected(in, "web-1", 8))
	assert.Equal(t, "..xxx...", affected(in, "web-2", 8))
	assert.Equal(t, "........", affected(in, "db", 8))
}
