package history

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestTexts_AreValidAndBounded(t *testing.T) {
	for _, text := range []string{
		"", "short", strings.Repeat("x", 99), strings.Repeat("é", 99), strings.Repeat("𝄞", 99), "\x00\x00", strings.Repeat("\xff", 99),
		"a\xf0\x9d\x84", strings.Repeat("a", 19) + "𝄞", strings.Repeat("\x00", 99), "it's \"quoted\" \\ `so`; DROP TABLE x --", "space ",
	} {
		for n := 17; n < 30; n++ {
			for _, got := range []string{cleanHead(text, n), cleanTail(text, n), cleanKey(text, n)} {
				require.LessOrEqual(t, len(got), n, "%q", text)
				require.True(t, utf8.ValidString(got), "%q of %q", got, text)
				require.NotContains(t, got, "\x00")
			}
		}
		if utf8.ValidString(text) && !strings.Contains(text, "\x00") {
			require.Equal(t, text, cleanHead(text, 1000))
			require.Equal(t, text, cleanTail(text, 1000))
		}
	}
	require.Equal(t, "abc", cleanHead("abcdef", 3))
	require.Equal(t, "def", cleanTail("abcdef", 3))
	require.Equal(t, "ab", cleanHead("abé", 3), "no part of a character")
	require.Equal(t, "b", cleanTail("éb", 2))
}

func FuzzTexts_AreValidAndBounded(f *testing.F) {
	f.Add("a\xf0\x9d\x84", 3)
	f.Fuzz(func(t *testing.T, text string, n int) {
		n = 17 + (n&0xff+0xff)&0xff
		for _, got := range []string{cleanHead(text, n), cleanTail(text, n), cleanKey(text, n)} {
			if len(got) > n || !utf8.ValidString(got) || strings.Contains(got, "\x00") {
				t.Errorf("%q of %q", got, text)
			}
		}
	})
}

func TestKeys_RemainDifferent(t *testing.T) {
	seen := map[string]string{}
	long := strings.Repeat("x", 50)
	for _, text := range []string{"", " ", "  ", "a", "a ", "A", "a\x00", "a\x00\x00", "a\xff", "a\xfe", "a\uFFFD", long, long + "1", long + "2"} {
		key := cleanKey(text, 40)
		require.NotContains(t, seen, key, "%q and %q", text, seen[key])
		require.False(t, strings.HasSuffix(key, " "))
		seen[key] = text
	}
	require.Equal(t, "settle/3", cleanKey("settle/3", 40))
}

func TestNormalize_FitsDatabases(t *testing.T) {
	r := Run{Fire: time.Unix(1, 1999), Started: time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC), Ended: time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC), Fence: 1 << 63, Shard: 1 << 40}.normalize()
	require.Equal(t, time.Unix(1, 1000).UTC(), r.Fire)
	require.Equal(t, firstTime, r.Started)
	require.Equal(t, lastTime, r.Ended)
	require.EqualValues(t, 1<<63-1, r.Fence)
	require.Equal(t, 1<<31-1, r.Shard)
	require.Zero(t, Run{}.normalize().Started)
}
