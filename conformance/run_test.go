package conformance

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
)

func TestDeclarations(t *testing.T) {
	all := (&Store{}).faultControls()
	for control := range all {
		all[control] = true
	}
	but := func(control string) map[string]bool {
		has := map[string]bool{}
		for name := range all {
			has[name] = name != control
		}
		return has
	}
	withoutMembers := map[string]bool{}
	for control := range all {
		withoutMembers[control] = !slices.Contains(memberControls, control)
	}
	for name, c := range map[string]struct {
		has     map[string]bool
		members int
		lacks   Lacks
		want    string // in every problem; no problem if empty
	}{
		"every control is provided":             {has: all},
		"a lack is declared":                    {has: but(Compact), lacks: Lacks{Compact: "has no history"}},
		"a single server declares":              {has: withoutMembers, lacks: SingleServer("is one server")},
		"a case is declared":                    {has: all, lacks: Lacks{"W16": "is far away"}},
		"a control is missing":                  {has: but(Compact), want: "does not provide Compact, and Lacks does not declare it"},
		"a declaration is outdated":             {has: all, lacks: Lacks{Compact: "has no history"}, want: "the Store provides it"},
		"a declaration gives no reason":         {has: but(Compact), lacks: Lacks{Compact: ""}, want: "no reason for Compact"},
		"a declaration names no case":           {has: all, lacks: Lacks{"Y01": "?"}, want: "neither a fault control nor a case"},
		"a safety case is declared":             {has: all, lacks: Lacks{"K02": "?"}, want: "K02 creating an existing key conflicts and keeps its value is a safety case"},
		"a safety case needs a lacking control": {has: but(LoseReply), lacks: Lacks{LoseReply: "?"}, want: "is a safety case"},
	} {
		t.Run(name, func(t *testing.T) {
			problems := declarationProblems(c.has, c.members, c.lacks)
			if c.want == "" {
				require.Empty(t, problems)
				return
			}
			require.NotEmpty(t, problems)
			for _, p := range problems {
				require.Contains(t, p, c.want)
			}
		})
	}
}

func TestRecord(t *testing.T) {
	for name, c := range map[string]struct {
		run  func(testing.TB)
		want []string
	}{
		"a case that passes":             {run: func(t testing.TB) { t.Log("fine") }},
		"an error does not end the case": {run: func(t testing.TB) { t.Error("one"); t.Errorf("t%s", "wo") }, want: []string{"one", "two"}},
		"a fatal error ends the case":    {run: func(t testing.TB) { t.Fatalf("o%s", "ne"); t.Error("two") }, want: []string{"one"}},
		"a failed require ends the case": {run: func(t testing.TB) { require.NoError(t, errors.New("one")); t.Error("two") }, want: []string{"one"}},
		"a panic is recorded":            {run: func(testing.TB) { panic("one") }, want: []string{"panic: one"}},
		"FailNow without a message":      {run: func(t testing.TB) { t.FailNow() }, want: []string{"without a message"}},
		"cleanups may fail": {run: func(t testing.TB) {
			t.Cleanup(func() { t.Error("last") })
			t.Cleanup(func() { t.Fatal("first") })
		}, want: []string{"first", "last"}},
		"the context ends before cleanups": {run: func(t testing.TB) {
			ctx := t.Context()
			t.Cleanup(func() { t.Error(ctx.Err()) })
			require.NoError(t, ctx.Err())
		}, want: []string{"context canceled"}},
	} {
		t.Run(name, func(t *testing.T) {
			complaints := runRecorded(t, c.run)
			require.Len(t, complaints, len(c.want))
			for i, want := range c.want {
				require.Contains(t, complaints[i], want)
			}
		})
	}
}

func TestUnlessSlow(t *testing.T) {
	for name, c := range map[string]struct {
		tolerable time.Duration
		err       error
		attempts  int
		want      string
	}{
		"a success counts at once":               {0, nil, 1, ""},
		"a failure on a fast machine counts":     {time.Hour, errors.New("lost"), 1, "lost; the machine delayed the test by"},
		"a failure on a slow machine is retried": {-1, errors.New("lost"), 3, "so nothing is proved"},
	} {
		t.Run(name, func(t *testing.T) {
			attempts := 0
			complaints := runRecorded(t, func(tb testing.TB) {
				(&test{TB: tb, ctx: t.Context()}).unlessSlow(c.tolerable, func() error {
					attempts++
					return c.err
				})
			})
			require.Equal(t, c.attempts, attempts)
			if c.want == "" {
				require.Empty(t, complaints)
				return
			}
			require.Len(t, complaints, 1)
			require.Contains(t, complaints[0], c.want)
		})
	}
}

func TestSummary(t *testing.T) {
	s := Summary{Results: []Result{
		{Case: Case{Group: "Keys", Code: "K01", Name: "one"}, Outcome: Passed},
		{Case: Case{Group: "Keys", Code: "K02", Name: "two"}, Outcome: Failed},
		{Case: Case{Group: "Reads", Code: "R01", Name: "three"}, Outcome: Lacking, Reason: "has none"},
		{Case: Case{Group: "Locks", Code: "L01", Name: "four"}},
	}}
	require.Equal(t, 1, s.Count("Keys", Passed))
	require.Equal(t, 1, s.Count("", Lacking))
	require.Equal(t, `
group           passed  failed lacking
Keys                 1       1       0
Reads                0       0       1
all                  1       1       1
failed   K02 two
lacking  R01 three: has none
`, s.String())
}

func TestLongKey(t *testing.T) {
	for n := 1; n <= maxKeyBytes; n++ {
		key := longKey(n)
		require.Len(t, string(key), n)
		require.NoError(t, registry.CheckKey(key))
	}
	require.ErrorIs(t, registry.CheckKey(longKey(maxKeyBytes+1)), registry.ErrInvalidKey)
	require.NoError(t, registry.CheckKey(registry.Key(strings.Repeat("s", maxSegmentBytes))))
	require.Error(t, registry.CheckKey(registry.Key(strings.Repeat("s", maxSegmentBytes+1))))
}

func TestHoldProcess(t *testing.T) {
	one, other := holdProcess(false), holdProcess(false)
	one()
	assert.False(t, process.TryLock(), "a case that is alone waits for all others")
	other()
	alone := holdProcess(true)
	assert.False(t, process.TryRLock(), "no case runs beside it")
	alone()
}
