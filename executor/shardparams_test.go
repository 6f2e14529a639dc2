package executor

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseShardParams(t *testing.T) {
	for line, want := range map[string]map[int]string{
		"":                                {},
		"  ":                              {},
		"0=Beijing":                       {0: "Beijing"},
		"0=Beijing,1=Shanghai":            {0: "Beijing", 1: "Shanghai"},
		" 2 = Guangzhou , 0=Beijing ":     {0: "Beijing", 2: "Guangzhou"},
		"0=":                              {0: ""},
		"0=a=b":                           {0: "a=b"},
		"0=São Paulo,9999=東京":             {0: "São Paulo", 9999: "東京"},
		"00=a":                            {0: "a"},
		"0=postgres://db/x?sslmode=off&a": {0: "postgres://db/x?sslmode=off&a"},
	} {
		got, err := ParseShardParams(line)
		require.NoError(t, err, line)
		assert.Equal(t, want, got, line)
	}
}

func TestParseShardParams_Refuses(t *testing.T) {
	for line, item := range map[string]string{
		"Beijing":      `"Beijing"`,
		"0=a,":         `""`,
		"0=a,,1=b":     `""`,
		"0=a,b":        `"b"`,
		"x=a":          `"x=a"`,
		"=a":           `"=a"`,
		"-1=a":         `"-1=a"`,
		"10000=a":      `"10000=a"`,
		"1.5=a":        `"1.5=a"`,
		"0=a,1=b, 0=c": `shard 0 is given twice`,
	} {
		_, err := ParseShardParams(line)
		assert.ErrorContains(t, err, item, line)
		assert.ErrorContains(t, err, "parse shard params", line)
	}
}

func TestParseShardParams_ReadsAnyValues(t *testing.T) {
	const seed = 7
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		params := make(map[int]string)
		for range r.IntN(20) {
			params[r.IntN(maxShards)] = pick(r, "", "a", "=", "x y", "北京", fmt.Sprint(r.Int()))
		}
		var items []string
		for shard, value := range params {
			items = append(items, fmt.Sprintf("%d=%s", shard, value))
		}
		got, err := ParseShardParams(strings.Join(items, ","))
		require.NoError(t, err)
		require.Equal(t, params, got)
	}
}
