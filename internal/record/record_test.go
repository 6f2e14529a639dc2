package record

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/jobname"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

func TestSegment(t *testing.T) {
	t.Run("plain names stay as they are", func(t *testing.T) {
		for _, name := range []string{"settle", "settle_daily", "a.b-c", "X9"} {
			assert.Equal(t, name, Segment(name))
		}
	})
	t.Run("names of any text become valid and distinct keys", func(t *testing.T) {
		seen := map[string]string{}
		names := []string{
			".", "..", "-", "--", "~", "~x", "-~7e", "a/b", "a b", "结算", "é", "e\u0301", "a~2fb", "-.",
			strings.Repeat("结", 33), strings.Repeat("结", 32) + "算x", strings.Repeat("/", 100), strings.Repeat("/", 99),
		}
		for _, name := range names {
			require.NoError(t, jobname.Check(name), name)
			s := Segment(name)
			assert.NoError(t, registry.CheckKey(registry.Key(s)), name)
			assert.False(t, registry.Key(s).Owned(), name)
			other, taken := seen[s]
			assert.False(t, taken, "%q and %q are both %q", name, other, s)
			seen[s] = name
		}
	})
}

func TestGroupSegment(t *testing.T) {
	t.Run("is the segment of no job", func(t *testing.T) {
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		names := []string{GroupSegment, "-group", "~group", "\u2010group", "group", "-", "--group", GroupSegment + strings.Repeat("~", 94)}
		for range 10_000 {
			name := []byte(GroupSegment)
			for range rng.IntN(4) {
				name[rng.IntN(len(name))] = byte(' ' + rng.IntN(95))
			}
			names = append(names, string(name))
		}
		for _, name := range names {
			s := Segment(name)
			assert.NotEqual(t, GroupSegment, s, "seed %d: %q", seed, name)
			if s[0] == '-' && len(s) > 1 {
				assert.Contains(t, "-~", s[1:2], "seed %d: %q", seed, name)
			}
		}
	})
}

func TestCheckName(t *testing.T) {
	for name, ok := range map[string]bool{
		"web-1": true, "a.b_c~": true, "": false, "~a": false, "a/b": false, "ä": false, strings.Repeat("x", 65): false, "..": false,
	} {
		assert.Equal(t, ok, CheckName(name) == nil, name)
	}
}

func TestCheckHost(t *testing.T) {
	for host, ok := range map[string]bool{
		"web-1.example": true, "Küche 2": true, "": false, "a\nb": false, "\xff": false,
		strings.Repeat("x", 253): true, strings.Repeat("x", 254): false,
	} {
		assert.Equal(t, ok, CheckHost(host) == nil, "%q", host)
	}
}

func TestKeys(t *testing.T) {
	t.Run("rejects a namespace that leaves no room for the longest key", func(t *testing.T) {
		_, err := NewKeys(strings.Repeat("n", 120)+"/"+strings.Repeat("n", 120), "g")
		assert.ErrorIs(t, err, registry.ErrInvalidKey)
	})
	t.Run("rejects an empty namespace", func(t *testing.T) {
		_, err := NewKeys("", "g")
		assert.ErrorIs(t, err, registry.ErrInvalidKey)
	})
	t.Run("all keys begin with the namespace", func(t *testing.T) {
		k, err := NewKeys("billing", "default")
		require.NoError(t, err)
		for _, key := range []registry.Key{k.Meta(), k.Instance("a"), k.Leader(), k.Seat(), k.Member("a.s"), k.Job("j"), k.Control("j"), k.GroupControl(), k.Plan("j"), k.Claims("a.s", "j"), k.Data("j", 9999)} {
			assert.NoError(t, registry.CheckKey(key))
			assert.True(t, strings.HasPrefix(string(key), "billing/"), key)
		}
	})
}

func TestInstant(t *testing.T) {
	at := InstantOf(time.Date(2026, 3, 8, 2, 30, 0, 5, time.FixedZone("x", 3600)))
	b, err := json.Marshal(at)
	require.NoError(t, err)
	assert.Equal(t, `"2026-03-08T01:30:00.000000005Z"`, string(b))
	var back Instant
	require.NoError(t, json.Unmarshal(b, &back))
	assert.Equal(t, at, back)
	for _, bad := range []string{`"yesterday"`, `5`, `"0001-01-01T00:00:00Z"`, `"9999-01-01T00:00:00Z"`} {
		assert.Error(t, json.Unmarshal([]byte(bad), &back), bad)
	}
}

func TestWatermark(t *testing.T) {
	fire := func(gen int, at Instant, attempt int) Watermark {
		return Watermark{Epoch: gen, Fire: at, Attempt: attempt}
	}
	trigger := func(n uint64, attempt int) Watermark { return Watermark{Trigger: n, TriggerAttempt: attempt} }

	t.Run("coordinates grow independently", func(t *testing.T) {
		got := fire(1, 20, 1).Max(trigger(7, 2)).Max(fire(1, 10, 3)).Max(trigger(6, 9))
		assert.Equal(t, Watermark{Epoch: 1, Fire: 20, Attempt: 1, Trigger: 7, TriggerAttempt: 2}, got)
	})
	t.Run("a later epoch is beyond any fire of an earlier one", func(t *testing.T) {
		assert.Equal(t, fire(2, 5, 1), fire(1, 1000, 1).Max(fire(2, 5, 1)))
	})
	t.Run("a claim covers itself and earlier attempts, not later ones", func(t *testing.T) {
		m := fire(1, 20, 2)
		assert.True(t, m.Covers(Ref{Epoch: 1, Fire: 20, Attempt: 1}))
		assert.True(t, m.Covers(Ref{Epoch: 1, Fire: 20, Attempt: 2}))
		assert.False(t, m.Covers(Ref{Epoch: 1, Fire: 20, Attempt: 3}))
		assert.False(t, m.Covers(Ref{Epoch: 1, Fire: 21, Attempt: 1}))
	})
	t.Run("a trigger is covered by triggers only", func(t *testing.T) {
		r := Ref{Epoch: 1, Fire: 20, Trigger: 3, Attempt: 1}
		assert.False(t, fire(9, 99, 9).Covers(r))
		assert.True(t, trigger(3, 1).Covers(r))
		assert.True(t, trigger(4, 1).Covers(r))
	})
}

// Marks and Runs against maps from shard to value.
func TestWatermarks_LikeAMap(t *testing.T) {
	const shards = 20
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	var ms Watermarks
	var rs Runs
	marks, runs := map[int]Watermark{}, map[int]Ref{}
	for range 2000 {
		lo := rng.IntN(shards)
		set := shardset.Range(lo, lo+rng.IntN(shards-lo)+1)
		switch rng.IntN(5) {
		case 0, 1:
			m := Watermark{Epoch: 1, Fire: Instant(rng.IntN(5)), Attempt: 1}
			ms = ms.Raise(set, m)
			for s := range set.All() {
				marks[s] = marks[s].Max(m)
			}
		case 2:
			ms = ms.Without(set)
			for s := range set.All() {
				delete(marks, s)
			}
		case 3:
			r := Ref{Epoch: 1, Fire: Instant(rng.IntN(3)), Attempt: 1}
			rs = rs.With(set, r)
			for s := range set.All() {
				runs[s] = r
			}
		case 4:
			rs = rs.Without(set)
			for s := range set.All() {
				delete(runs, s)
			}
		}
		for s := range shards {
			require.Equal(t, marks[s], ms.Of(s), "seed %d shard %d", seed, s)
			r, ok := rs.Of(s)
			_, want := runs[s]
			require.Equal(t, want, ok, "seed %d shard %d", seed, s)
			require.Equal(t, runs[s], r, "seed %d shard %d", seed, s)
		}
		split := 0
		for _, part := range ms.Split(set) {
			split += part.Shards.Len()
			for s := range part.Shards.All() {
				require.Equal(t, marks[s], part.Watermark, "seed %d shard %d", seed, s)
			}
		}
		require.Equal(t, set.Len(), split, "seed %d: a split keeps all shards", seed)
	}
}

func TestWatermarks_AreValues(t *testing.T) {
	old := Watermarks{}.Raise(shardset.Range(0, 10), Watermark{Epoch: 1, Fire: 5, Attempt: 1})
	text := fmt.Sprint(old)
	old.Raise(shardset.Range(3, 5), Watermark{Epoch: 1, Fire: 6, Attempt: 1})
	old.Without(shardset.Of(0))
	old.Fold(Watermarks{{shardset.Of(7), Watermark{Epoch: 2, Fire: 1, Attempt: 1}}}, shardset.Of(7))
	assert.Equal(t, text, fmt.Sprint(old))
}

const someDefinition = `{"name":"settle","shards":12,"schedule":"every 1m"}`

func somePlan(t testing.TB) *Plan {
	t.Helper()
	e, err := NewEpoch(1, InstantOf(time.Unix(1000, 0)), json.RawMessage(someDefinition))
	require.NoError(t, err)
	return &Plan{
		Format: Format, Job: "settle", Epochs: []Epoch{e},
		Owners: map[string]shardset.Set{"a.s": shardset.Range(0, 6), "b.t": shardset.Range(6, 12)},
		Frozen: shardset.Of(3), Disabled: shardset.Of(4, 99), Watermarks: Watermarks{}.Raise(shardset.Range(0, 4), Watermark{Epoch: 1, Fire: 5, Attempt: 1}),
		Reruns: Runs{}.With(shardset.Of(2), Ref{Epoch: 1, Fire: 5, Attempt: 2}),
	}
}

func TestPlan(t *testing.T) {
	t.Run("survives a round trip", func(t *testing.T) {
		want := somePlan(t)
		b, err := Encode(want)
		require.NoError(t, err)
		got, err := DecodePlan(b)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	})
	t.Run("keeps fields of a newer version", func(t *testing.T) {
		b, err := Encode(somePlan(t))
		require.NoError(t, err)
		b = append(b[:len(b)-1], `,"novelty":{"x":[1,2]}}`...)
		p, err := DecodePlan(b)
		require.NoError(t, err)
		c := p.Clone()
		c.Paused = true
		b, err = Encode(c)
		require.NoError(t, err)
		assert.Contains(t, string(b), `"novelty":{"x":[1,2]}`)
		assert.Contains(t, string(b), `"paused":true`)
	})
	t.Run("rejects a newer format", func(t *testing.T) {
		p := somePlan(t)
		p.Format = Format + 1
		b, err := Encode(p)
		require.NoError(t, err)
		_, err = DecodePlan(b)
		assert.ErrorIs(t, err, ErrNewerFormat)
	})
	t.Run("of the largest size is deflated and fits a value", func(t *testing.T) {
		p := somePlan(t)
		def := fmt.Sprintf(`{"name":"settle","shards":%d,"schedule":"every 1m"}`, MaxShards)
		e, err := NewEpoch(1, 1, json.RawMessage(def))
		require.NoError(t, err)
		p.Epochs = []Epoch{e}
		p.Owners = map[string]shardset.Set{}
		p.Watermarks = nil
		rng := rand.New(rand.NewPCG(1, 2))
		numbers := map[string][]int{}
		for s := range MaxShards { // no owner has neighbouring shards, and every mark differs
			inc := fmt.Sprintf("instance-%d.%026d", s%200, s%200)
			numbers[inc] = append(numbers[inc], s)
			p.Watermarks = append(p.Watermarks, WatermarkGroup{shardset.Of(s), Watermark{Epoch: 1, Fire: InstantOf(time.Unix(1.7e9+rng.Int64N(1e7), 0)), Attempt: 1}})
		}
		for inc, ns := range numbers {
			p.Owners[inc] = shardset.Of(ns...)
		}
		b, err := Encode(p)
		require.NoError(t, err)
		t.Logf("%d bytes", len(b))
		assert.LessOrEqual(t, len(b), registry.PortableLimits.ValueBytes)
		got, err := DecodePlan(b)
		require.NoError(t, err)
		assert.Equal(t, p.Owners, got.Owners)
	})
}

func TestDecodePlan_NamesTheRule(t *testing.T) {
	good, err := Encode(somePlan(t))
	require.NoError(t, err)
	for name, c := range map[string]struct{ old, new, want string }{
		"not JSON":                  {`{`, `(`, "invalid character"},
		"no epochs":                 {`"epochs":[`, `"epochs":[],"was":[`, "epochs: none"},
		"another job":               {`{"name":"settle"`, `{"name":"other"`, `definition of "other" in the plan of "settle"`},
		"a shard beyond the total":  {`"6-11"`, `"6-12"`, "b.t has shard 12 of 12"},
		"a shard twice":             {`"6-11"`, `"5-11"`, "a shard has two owners"},
		"bad ranges":                {`"6-11"`, `"11-6"`, "11-6"},
		"disabled beyond the bound": {`"4,99"`, `"4,10000"`, "disabled: shard 10000, of at most 10000"},
		"bad definition":            {`"shards":12`, `"shards":0`, "shards is 0"},
		"unknown crash policy":      {`"shards":12`, `"shards":12,"on_crash":"weep"`, `on_crash is "weep"`},
		"unknown tracking":          {`"shards":12`, `"shards":12,"tracking":"nothing"`, `tracking is "nothing", neither "runs" nor "claims"`},
		"wrong labels":              {`"shards":12`, `"shards":12,"run_on":{"":"x"}`, "run_on: an empty key"},
		"truncated deflated data":   {string(good), "deflate\n\xff\xff", "inflate"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := strings.Replace(string(good), c.old, c.new, 1)
			require.NotEqual(t, string(good), bad)
			_, err := DecodePlan([]byte(bad))
			assert.ErrorContains(t, err, c.want)
		})
	}
}

func FuzzDecodePlan(f *testing.F) {
	f.Add([]byte(`{"format":1,"job":"settle","epochs":[{"number":1,"from":null,"definition":` + someDefinition + `}],"owners":{"a.s":"0-3"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := DecodePlan(b)
		if err != nil {
			return
		}
		again, err := Encode(p)
		require.NoError(t, err)
		_, err = DecodePlan(again)
		require.NoError(t, err)
	})
}

func TestPlan_IntentHasTheOverride(t *testing.T) {
	stored, over := json.RawMessage(`{"name":"job","shards":2,"timeout":"1m"}`), json.RawMessage(`{"max_attempts":7,"timeout":null}`)
	merged, err := MergeDefinition(stored, over)
	require.NoError(t, err)
	e, err := NewEpoch(1, 1, merged)
	require.NoError(t, err)
	e.Stored = stored
	p := &Plan{Job: "job", Epochs: []Epoch{e}, Paused: true, GroupPause: &OwnHold{Stopped: true}}
	c := p.Intent()
	assert.JSONEq(t, string(over), string(c.Override))
	assert.False(t, c.Paused, "the group's")
	assert.True(t, c.Stopped)
	assert.Equal(t, "stop schedule; override max_attempts timeout", c.Describe())
}
