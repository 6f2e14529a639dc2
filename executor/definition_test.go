package executor

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/schedule"
)

func TestDefinition_Stored(t *testing.T) {
	t.Run("with its defaults", func(t *testing.T) {
		assert.Equal(t, `{"max_attempts":3,"name":"a","on_crash":"rerun elsewhere","on_misfire":"run once",`+
			`"revision":0,"schedule":"on trigger","shards":1,"strategy":"sticky"}`,
			encode(t, definitionOf(Job{Name: "a"})))
	})
	t.Run("with all fields", func(t *testing.T) {
		assert.Equal(t, `{"description":"<b> & co","max_attempts":5,"name":"settle","on_crash":"count as failed",`+
			`"on_misfire":"run all 7","param":"p","pool":"db","retry":{"factor":2,"initial":"1s","jitter":0.2,"max":2,"max_interval":"1m"},"revision":4,"run_on":{"pool":"gpu","zone":"a"},"schedule":"cron 0 3 * * * in Asia/Shanghai",`+
			`"shard_params":{"0":"Beijing","1":"Shanghai"},"shards":3,"start_paused":true,"strategy":"average","timeout":"1m30s"}`,
			encode(t, definitionOf(Job{
				Name: "settle", Description: "<b> & co", Schedule: schedule.Cron("0 3 * * *").In("Asia/Shanghai"), Shards: 3,
				ShardParams: map[int]string{1: "Shanghai", 0: "Beijing"}, Param: "p", Revision: 4, Strategy: "average",
				Timeout: 90 * time.Second, OnCrash: CountAsFailed, OnMisfire: RunAll(7), MaxAttempts: 5,
				StartPaused: true, Retry: Retry{Max: 2}, RunOn: map[string]string{"zone": "a", "pool": "gpu"}, Pool: "db", Handler: HandlerFunc(noop),
			})))
	})
}

func TestDefinition_SharesNothingWithTheJob(t *testing.T) {
	j := Job{Name: "a", ShardParams: map[int]string{0: "Beijing"}, RunOn: map[string]string{"zone": "a"}}
	d := definitionOf(j)
	j.ShardParams[0], j.RunOn["zone"] = "changed", "b"
	assert.Equal(t, "Beijing", d.ShardParams[0])
	assert.Equal(t, "a", d.RunOn["zone"])
}

// What is stored is read back the same, and written again the same, whatever fields a
// later version has added.
func TestDefinition_RoundTrip(t *testing.T) {
	const seed = 8
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		j := randomJob(r)
		require.NoError(t, checkAll(ErrInvalidJob, []Job{j}, anyStrategy))
		d := definitionOf(j)
		if r.IntN(2) == 0 {
			d.extra = record.Fields{"later": []byte(`{"zone":"<a>","n":12345678901234567890}`), "a": []byte("null")}
		}
		stored := encode(t, d)
		loaded, err := decodeDefinition([]byte(stored))
		require.NoError(t, err, stored)
		require.Equal(t, d, loaded)
		require.True(t, d.equalKnown(loaded))
		require.Equal(t, stored, encode(t, loaded), "canonical")
	}
}

func TestDefinition_IsCanonicalWhateverItWasReadFrom(t *testing.T) {
	d, err := decodeDefinition([]byte(`{
		"strategy": "sticky", "shards": 2, "shard_params": {"1": "b", "0": "a"}, "schedule": "every 60s", "timeout": "90s",
		"z": { "later": [1, 2] }, "revision": 0, "on_misfire": "run once", "on_crash": "rerun elsewhere", "name": "a", "max_attempts": 3}`))
	require.NoError(t, err)
	assert.Equal(t, `{"max_attempts":3,"name":"a","on_crash":"rerun elsewhere","on_misfire":"run once","revision":0,"schedule":"every 1m",`+
		`"shard_params":{"0":"a","1":"b"},"shards":2,"strategy":"sticky","timeout":"1m30s","z":{"later":[1,2]}}`, encode(t, d))
}

// Every field counts: a definition with one changed is another.
func TestDefinition_Equal(t *testing.T) {
	base := definitionOf(Job{Name: "a"})
	changes := map[string]func(*definition){
		"Name":        func(d *definition) { d.Name = "b" },
		"Description": func(d *definition) { d.Description = "b" },
		"Schedule":    func(d *definition) { d.Schedule = schedule.Every(time.Second) },
		"Shards":      func(d *definition) { d.Shards = 2 },
		"ShardParams": func(d *definition) { d.ShardParams = map[int]string{0: "b"} },
		"Param":       func(d *definition) { d.Param = "b" },
		"Revision":    func(d *definition) { d.Revision = 2 },
		"Strategy":    func(d *definition) { d.Strategy = "b" },
		"Timeout":     func(d *definition) { d.Timeout = 2 },
		"OnCrash":     func(d *definition) { d.OnCrash = CountAsFailed },
		"OnMisfire":   func(d *definition) { d.OnMisfire = SkipMissed },
		"MaxAttempts": func(d *definition) { d.MaxAttempts = 2 },
		"StartPaused": func(d *definition) { d.StartPaused = true },
		"RunOn":       func(d *definition) { d.RunOn = map[string]string{"zone": "b"} },
		"Pool":        func(d *definition) { d.Pool = "db" },
		"Tracking":    func(d *definition) { d.Tracking = TrackClaims },
		"OnOverlap":   func(d *definition) { d.OnOverlap = SkipOverlapping },
		"Retry":       func(d *definition) { d.Retry = retryFieldOf(Retry{Max: 1}) },
		"Kind":        func(d *definition) { d.Kind = "mail" },
		"Created":     func(d *definition) { d.Created = "x7" },

		"CatchupWindow": func(d *definition) { d.CatchupWindow = 2 },
		"KindRevision":  func(d *definition) { d.KindRevision = 2 },
	}
	for i := range reflect.TypeFor[definition]().NumField() {
		field := reflect.TypeFor[definition]().Field(i).Name
		if field == "extra" {
			continue
		}
		require.Contains(t, changes, field)
		other := base
		changes[field](&other)
		assert.False(t, base.equalKnown(other), field)
		assert.NotEqual(t, encode(t, base), encode(t, other), field)
	}
	later := base
	later.extra = record.Fields{"later": []byte("1")}
	assert.True(t, base.equalKnown(later), "what is not known here is not compared")
	assert.True(t, base.equalKnown(definitionOf(Job{Name: "a", ShardParams: map[int]string{}, RunOn: map[string]string{}, Shards: 1, MaxAttempts: 3, Strategy: "sticky"})))
}

func TestDecodeDefinition_Refuses(t *testing.T) {
	valid := map[string]any{
		"name": "a", "schedule": "on trigger", "shards": 1, "revision": 0, "strategy": "sticky",
		"on_crash": "rerun elsewhere", "on_misfire": "run once", "max_attempts": 3,
	}
	_, err := decodeDefinition(marshal(t, valid))
	require.NoError(t, err)

	for name := range valid {
		without := maps.Clone(valid)
		delete(without, name)
		_, err := decodeDefinition(marshal(t, without))
		assert.EqualError(t, err, "decode definition: "+name+": is missing")
	}
	for name, wrong := range map[string][]any{
		"name":         {nil, 5, "", "a\nb"},
		"description":  {nil, 5, strings.Repeat("d", 1001)},
		"schedule":     {nil, "", "cron", 5, "every 0s"},
		"shards":       {nil, "3", 1.5, 0, -1, 10_001},
		"shard_params": {nil, []string{"a"}, map[string]string{"x": "a"}, map[string]string{"1": "a"}, map[string]int{"0": 1}},
		"param":        {nil, 5},
		"revision":     {nil, -1, "0"},
		"strategy":     {nil, "", 7},
		"timeout":      {nil, 5, "5", "-5s"},
		"on_crash":     {nil, 0, ""},
		"on_misfire":   {nil, 0, "run all 0"},
		"max_attempts": {nil, -1, true},
		"pool":         {nil, 5, "a/b", "~a", strings.Repeat("p", 65)},
		"run_on":       {nil, "zone=a", []string{"zone"}, map[string]int{"zone": 1}, map[string]string{"": "a"}, map[string]string{"zone": "a\nb"}},
	} {
		for _, value := range wrong {
			changed := maps.Clone(valid)
			changed[name] = value
			_, err := decodeDefinition(marshal(t, changed))
			assert.ErrorContains(t, err, "decode definition: "+name+": ", value)
		}
	}
	for _, text := range []string{"", "null", "[]", "5", "{", `{"name":"a"} {}`} {
		_, err := decodeDefinition([]byte(text))
		assert.ErrorContains(t, err, "decode definition: ", text)
	}
	t.Run("all fields at once", func(t *testing.T) {
		changed := maps.Clone(valid)
		changed["shards"], changed["timeout"], changed["revision"] = "3", "5", nil
		_, err := decodeDefinition(marshal(t, changed))
		for _, name := range []string{"shards", "timeout", "revision"} {
			assert.ErrorContains(t, err, name+": ")
		}
	})
	t.Run("a name in other letters is another name", func(t *testing.T) {
		changed := maps.Clone(valid)
		changed["Shards"] = 7
		d, err := decodeDefinition(marshal(t, changed))
		require.NoError(t, err)
		assert.Equal(t, 1, d.Shards)
		assert.Contains(t, d.extra, "Shards")
	})
	t.Run("words of a later version", func(t *testing.T) {
		for name, word := range map[string]string{"schedule": "whenever", "on_crash": "ask first", "on_misfire": "run hourly"} {
			changed := maps.Clone(valid)
			changed[name] = word
			_, err := decodeDefinition(marshal(t, changed))
			assert.ErrorIs(t, err, ErrNewerFormat, name)
			assert.ErrorContains(t, err, name+": ")
		}
	})
}

func TestDefinition_LargestFitsIntoAValue(t *testing.T) {
	j := Job{
		Name: strings.Repeat("<", 100), Description: strings.Repeat("\x01", 1000), Param: strings.Repeat("\x01", 8192), Shards: maxShards,
		Schedule: schedule.Cron("0 3 * * *"), ShardParams: make(map[int]string), Handler: HandlerFunc(noop),
	}
	j.RunOn = map[string]string{}
	for i := range record.MaxRunOn {
		j.RunOn[string(rune('a'+i))+strings.Repeat("\u2028", 33)] = strings.Repeat("\u2028", 66)
	}
	for shard := 0; checkAll(ErrInvalidJob, []Job{j}, anyStrategy) == nil; shard++ {
		j.ShardParams[shard] = strings.Repeat("\x01", 100)
	}
	delete(j.ShardParams, len(j.ShardParams)-1)
	require.NoError(t, checkAll(ErrInvalidJob, []Job{j}, anyStrategy))
	assert.Less(t, len(encode(t, definitionOf(j))), 100<<10, "of 128 KiB")
}

func encode(t *testing.T, d definition) string {
	t.Helper()
	stored, err := d.MarshalJSON()
	require.NoError(t, err)
	return string(stored)
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return data
}

func randomJob(r *rand.Rand) Job {
	j := Job{
		Name:        pick(r, "a", "日報 / daily", "<&>", "\"quoted\"", "日", "a\\b"),
		Description: pick(r, "", "line\nline", "</script>", "\x00", "\u2028"),
		Schedule:    []schedule.Schedule{schedule.OnTrigger(), randomSchedule(r), randomSchedule(r)}[r.IntN(3)],
		Handler:     HandlerFunc(noop),
		Shards:      r.IntN(50),
		Param:       pick(r, "", "p", `{"json":true}`, "\t"),
		Revision:    r.IntN(100),
		Strategy:    pick(r, "", "sticky", "average"),
		Timeout:     time.Duration(r.Int64N(int64(1000*time.Hour))) * time.Duration(r.IntN(2)),
		OnCrash:     CrashPolicy(r.IntN(2)),
		OnMisfire:   []MisfirePolicy{RunOnce, SkipMissed, RunAll(1 + r.IntN(1000))}[r.IntN(3)],
		StartPaused: r.IntN(2) == 0,
		MaxAttempts: r.IntN(10),
		RunOn:       []map[string]string{nil, {}, {"zone": "a"}, {"<&>": "", "日": "\u2028"}}[r.IntN(4)],
		Pool:        pick(r, "", "db"),
		Tracking:    Tracking(r.IntN(2)),
	}
	if r.IntN(3) > 0 {
		j.ShardParams = make(map[int]string)
		for shard := range max(1, j.Shards) {
			if r.IntN(2) == 0 {
				j.ShardParams[shard] = fmt.Sprint(r.Int())
			}
		}
	}
	return j
}
