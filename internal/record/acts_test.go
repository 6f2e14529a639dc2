package record

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/shardset"
)

func TestActs(t *testing.T) {
	t.Run("keep the last ones, oldest first", func(t *testing.T) {
		var acts Acts
		for i := range MaxActs + 3 {
			acts = acts.With(Act{What: fmt.Sprint(i)})
		}
		require.Len(t, acts, MaxActs)
		assert.Equal(t, "3", acts[0].What)
		assert.Equal(t, fmt.Sprint(MaxActs+2), acts[MaxActs-1].What)
	})
	t.Run("do not change the ones that they were made of", func(t *testing.T) {
		acts := append(make(Acts, 0, 4), Act{What: "a"})
		one, other := acts.With(Act{What: "b"}), acts.With(Act{What: "c"})
		assert.Equal(t, "b", one[1].What)
		assert.Equal(t, "c", other[1].What)
	})
	t.Run("leave room in the record, whatever their texts", func(t *testing.T) {
		long := strings.Repeat("日\x00", 1000)
		c := &Control{Job: "settle"}
		for range MaxActs {
			c.Acts = c.Acts.With(Act{At: 1, By: long, Reason: long, What: long})
		}
		b, err := marshal(c)
		require.NoError(t, err)
		assert.Less(t, len(b), 32<<10)
	})
	t.Run("and a retirement survive a round trip", func(t *testing.T) {
		text := `{"job":"settle","retiring":{"at":"1970-01-01T00:16:40Z","by":"kim","reason":"left","what":"retire"},"novelty":1}`
		c, err := DecodeControl([]byte(text))
		require.NoError(t, err)
		b, err := Encode(c)
		require.NoError(t, err)
		assert.Equal(t, text, string(b))
	})
	t.Run("and a pause with an end survive a round trip", func(t *testing.T) {
		text := `{"job":"settle","paused":true,"paused_until":"1970-01-01T00:16:40Z","held_by":{"at":"1970-01-01T00:16:40Z","by":"kim","reason":"move","what":"pause"},` +
			`"acts":[{"at":"1970-01-01T00:16:40Z","what":"reset"}],"novelty":1}`
		c, err := DecodeControl([]byte(text))
		require.NoError(t, err)
		b, err := Encode(c)
		require.NoError(t, err)
		assert.Equal(t, text, string(b))
	})
}

func TestControl_WithoutPause(t *testing.T) {
	c := &Control{Job: "settle", Paused: true, Hold: Hold{Until: 5, HeldBy: &Act{What: "pause"}}, LastTrigger: 3}
	after := c.WithoutPause(7)
	assert.True(t, c.Paused, "the receiver is unchanged")
	assert.False(t, after.Paused)
	assert.Equal(t, Hold{}, after.Hold)
	assert.EqualValues(t, 3, after.LastTrigger)
	require.Len(t, after.Acts, 1)
	assert.Equal(t, ByLeader, after.Acts[0].By)
}

func TestActs_Supersede(t *testing.T) {
	at := func(second int, by string) Act { return Act{At: Instant(second * 1e9), By: by, What: "pause"} }
	memory := Act{At: 9e9, By: byRota, Reason: FromMemory, What: "pause"}
	ended := endPause(9e9, 10e9)
	for name, c := range map[string]struct {
		remembered, stored Acts
		want               bool
	}{
		"those of an earlier state":                                 {Acts{at(1, "kim"), at(2, "lee")}, Acts{at(1, "kim")}, true},
		"those that an instance has restored":                       {Acts{at(1, "kim")}, Acts{memory}, true},
		"those that were restored from an earlier memory":           {Acts{at(1, "kim"), at(2, "lee")}, Acts{at(1, "kim"), memory}, true},
		"an earlier state with acts that have been dropped since":   {Acts{at(5, "kim"), at(6, "lee")}, Acts{at(1, "zoe"), at(5, "kim")}, true},
		"those of an earlier state, whose pause a leader has ended": {Acts{at(1, "kim"), at(2, "lee")}, Acts{at(1, "kim"), ended}, true},
		"not what a leader has ended by itself":                     {Acts{at(1, "kim"), ended}, Acts{at(1, "kim")}, false},
		"not an act that the process has not seen":                  {Acts{at(1, "kim"), at(2, "lee")}, Acts{at(1, "kim"), at(3, "zoe")}, false},
		"not an act after a restore":                                {Acts{at(1, "kim")}, Acts{memory, at(10, "zoe")}, false},
		"not the same acts":                                         {Acts{at(1, "kim")}, Acts{at(1, "kim")}, false},
		"not the same acts after a restore":                         {Acts{at(1, "kim")}, Acts{at(1, "kim"), memory}, false},
		"not those of a process that knew as little":                {Acts{memory}, Acts{memory}, false},
		"not a record of an older version, which has none":          {Acts{at(1, "kim")}, nil, false},
		"not if the process remembers none":                         {nil, Acts{memory}, false},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, c.remembered.Supersede(c.stored)) })
	}
}

func TestActs_NameWhatTheyDisabled(t *testing.T) {
	c := Control{Disabled: shardset.Of(0, 1, 2, 9), Exclusion: Exclusion{Instances: []string{"c", "d"}, Hosts: []string{"h-3"}}}
	acts := Acts{
		{At: 1, What: "disable shards 3 7, instances a b, hosts h-1 h-2"},
		{At: 2, What: "drain instance e"},
		{At: 3, What: "pause; " + c.Describe()}, // as instances restore it
		{At: 4, What: "enable shards 3"},
		{At: 5, What: "disable shards 7 8"},
		{At: 6, What: "undrain instance e"},
		{At: 7, What: "override shards=3"},
	}
	at := func(a *Act) Instant {
		if a == nil {
			return 0
		}
		return a.At
	}
	for shard, want := range map[int]Instant{0: 3, 2: 3, 3: 1, 4: 0, 7: 5, 8: 5, 9: 3} {
		assert.Equal(t, want, at(acts.DisabledShard(shard)), shard)
	}
	for name, want := range map[string]Instant{"a": 1, "b": 1, "c": 3, "d": 3, "e": 2, "h-1": 0, "instances": 0} {
		assert.Equal(t, want, at(acts.DisabledInstance(name)), name)
	}
	for name, want := range map[string]Instant{"h-1": 1, "h-2": 1, "h-3": 3, "a": 0} {
		assert.Equal(t, want, at(acts.DisabledHost(name)), name)
	}
}
