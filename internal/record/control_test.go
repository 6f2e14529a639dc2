package record

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestControl(t *testing.T) {
	t.Run("survives a round trip with fields of a newer version", func(t *testing.T) {
		text := `{"job":"settle","paused":true,"disabled_shards":"3,5-7","disabled_instances":["a","b"],"disabled_hosts":["h"],"last_trigger":7,"novelty":{"x":1}}`
		c, err := DecodeControl([]byte(text))
		require.NoError(t, err)
		b, err := Encode(c)
		require.NoError(t, err)
		assert.Equal(t, text, string(b))
	})
	t.Run("rewrites a known field in other case under its own name", func(t *testing.T) {
		for _, novelty := range []string{"", `,"novelty":1`} {
			c, err := DecodeControl([]byte(`{"JOB":"settle","Paused":true` + novelty + `}`))
			require.NoError(t, err)
			assert.True(t, c.Paused)
			c.Paused = false
			b, err := Encode(c)
			require.NoError(t, err)
			assert.Equal(t, `{"job":"settle"`+novelty+`}`, string(b))
		}
	})
	t.Run("without disabled shards omits the fields", func(t *testing.T) {
		b, err := Encode(&Control{Job: "settle"})
		require.NoError(t, err)
		assert.Equal(t, `{"job":"settle"}`, string(b))
	})
	t.Run("of a group survives a round trip with fields of a newer version", func(t *testing.T) {
		for _, text := range []string{
			`{}`, `{"novelty":1}`, `{"disabled_instances":["a"]}`, `{"disabled_hosts":["h"],"novelty":1}`,
		} {
			c, err := DecodeGroupControl([]byte(text))
			require.NoError(t, err)
			b, err := Encode(c)
			require.NoError(t, err)
			assert.Equal(t, text, string(b))
		}
	})
	t.Run("is sorted when it is decoded", func(t *testing.T) {
		c, err := DecodeGroupControl([]byte(`{"disabled_instances":["b","a"],"disabled_hosts":["y","x"]}`))
		require.NoError(t, err)
		assert.Equal(t, Exclusion{[]string{"a", "b"}, []string{"x", "y"}}, c.Exclusion)
	})
}

func TestDecodeControl_NamesTheRule(t *testing.T) {
	many := func(n int) string {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprint("n", i)
		}
		b, _ := json.Marshal(names)
		return string(b)
	}
	for text, want := range map[string]string{
		`(`:                              "invalid character",
		`{"disabled_shards":"10000"}`:    "disabled_shards: shard 10000, of at most 10000",
		`{"disabled_shards":"7-3"}`:      "7-3",
		`{"disabled_instances":["a/b"]}`: `disabled_instances: invalid key: name "a/b" has a slash`,
		`{"disabled_instances":` + many(257) + `}`:                           "disabled_instances: 257 names, at most 256",
		`{"disabled_hosts":[""]}`:                                            "disabled_hosts: is empty",
		`{"disabled_hosts":` + many(257) + `}`:                               "disabled_hosts: 257 names, at most 256",
		`{"disabled_hosts":"h"}`:                                             "disabled_hosts",
		`{"triggers":[{"number":0}],"disabled_shards":"0","last_trigger":1}`: "triggers: number 0 after 0",
		`{"triggers":[{"number":2}],"disabled_shards":"0","last_trigger":1}`: "triggers: number 2 after 0, with last_trigger 1",
		"deflate\n\xff\xff" + strings.Repeat("x", 10):                        "inflate",
	} {
		_, err := DecodeControl([]byte(text))
		assert.ErrorContains(t, err, want, "%.60s", text)
		if !strings.Contains(text, "disabled_shards") {
			_, err = DecodeGroupControl([]byte(text))
			assert.ErrorContains(t, err, want, "%.60s", text)
		}
	}
	_, err := DecodeControl([]byte(`{"disabled_instances":` + many(256) + `}`))
	assert.NoError(t, err)
}

func TestExclusion_Excludes(t *testing.T) {
	x := Exclusion{Instances: []string{"a", "c"}, Hosts: []string{"h"}}
	for name, c := range map[string]struct {
		member Member
		want   bool
	}{
		"instances by their names":                        {Member{Name: "c"}, true},
		"all instances of a host":                         {Member{Name: "b", Host: "h"}, true},
		"no other instance":                               {Member{Name: "b", Host: "g"}, false},
		"no instance whose name has only the same prefix": {Member{Name: "a2", Host: "h2"}, false},
		"no instance whose host differs in case":          {Member{Name: "b", Host: "H"}, false},
		"no instance whose record has no host":            {Member{Name: "b"}, false},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, x.Excludes(&c.member)) })
	}
	t.Run("no instance if it is empty", func(t *testing.T) {
		none := Exclusion{}
		assert.True(t, none.IsZero())
		assert.False(t, none.Excludes(&Member{Name: "a"}))
	})
}

func FuzzDecodeControl(f *testing.F) {
	f.Add([]byte(`{"job":"settle","disabled_shards":"3","disabled_instances":["a"],"disabled_hosts":["h"],"novelty":{}}`))
	f.Add([]byte(`{"job":"settle","retiring":{"at":"1970-01-01T00:16:40Z","by":"kim","reason":"left","what":"retire"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeControl(b)
		if err != nil {
			return
		}
		again, err := Encode(c)
		require.NoError(t, err)
		back, err := DecodeControl(again)
		require.NoError(t, err)
		assert.Equal(t, c.Exclusion.IsZero(), back.Exclusion.IsZero())
		assert.True(t, c.Disabled.Equal(back.Disabled))
	})
}
