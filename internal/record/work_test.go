package record_test

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/record"
)

func TestRunNames(t *testing.T) {
	const fire = record.Instant(1_777_950_000_250_000_000) // 2026-05-05T03:00:00.25Z
	for name, c := range map[string]struct {
		trigger *record.Trigger
		attempt int
		id, key string
	}{
		"of a scheduled fire has its instant": {nil, 3, "ns/default/tick/2/2026-05-05T03:00:00.25Z/3", "ns/default/tick/2/2026-05-05T03:00:00.25Z"},
		"of a trigger has its name":           {&record.Trigger{Number: 7, Token: "x"}, 1, "ns/default/tick/2/#7-x/1", "ns/default/tick/2/#7-x"},
		"of a trigger that has no token":      {&record.Trigger{Number: 7}, 1, "ns/default/tick/2/#7/1", "ns/default/tick/2/#7"},
		"of a retry or backfill is of the fire": {
			&record.Trigger{Number: 7, Token: "x", Fire: fire}, 2, "ns/default/tick/2/2026-05-05T03:00:00.25Z/#7-x/2", "ns/default/tick/2/2026-05-05T03:00:00.25Z",
		},
		"of a retried trigger is of the trigger": {
			&record.Trigger{Number: 7, Token: "x", Fire: fire, Work: "#3-y"}, 1, "ns/default/tick/2/#3-y/#7-x/1", "ns/default/tick/2/#3-y",
		},
		"of a fire that is done once more is new": {
			&record.Trigger{Number: 7, Token: "x", Fire: fire, Again: true}, 1, "ns/default/tick/2/2026-05-05T03:00:00.25Z#7-x/1", "ns/default/tick/2/2026-05-05T03:00:00.25Z#7-x",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, r := &record.Plan{}, record.Ref{Fire: fire, Attempt: c.attempt}
			if c.trigger != nil {
				p.Triggers, r.Trigger = []record.Trigger{*c.trigger}, c.trigger.Number
			}
			names := record.NewRunNames(record.JobID{Namespace: "ns", Group: "default", Job: "tick"}, fire.Time().In(time.FixedZone("", 3600)), p.RunOf(r), c.attempt)
			id, key := names.Of(2)
			assert.Equal(t, c.id, id)
			assert.Equal(t, c.key, key)
		})
	}
}

var nasty = []string{
	"a", "b", "c", "a/b", "b/c", "/", "//", "a/", "/a", "%", "%2f", "~2f", "a~2fb", "a%2fb", "~", "-", "--", "-~2f", ".", "..", "0", "1", "a/0", "0/a", "#1",
	" ", "a ", "A", "ä", "a\u0308", "日本", "🙂", "é", "\u202e", strings.Repeat("n", 60), strings.Repeat("n", 61), strings.Repeat("n", 100),
	strings.Repeat("n", 99) + "m", strings.Repeat("/", 100), strings.Repeat("/", 99), strings.Repeat("日", 33),
}

// No two works have one key.
func TestRunNames_IsInjective(t *testing.T) {
	plain := regexp.MustCompile(`^[-A-Za-z0-9._~]*(/[-A-Za-z0-9._~]*){2}(@[a-z0-9]+)?/[0-9]+/[-0-9TZ:.]+$`)
	seen := map[string]string{}
	for _, namespace := range nasty {
		for _, group := range nasty {
			for _, job := range nasty {
				for _, created := range []string{"", "0", "abc"} {
					const shard = 10
					names := record.NewRunNames(record.JobID{namespace, group, job, created}, time.Unix(1, 0), record.RunOf{}, 1)
					_, key := names.Of(shard)
					of := fmt.Sprintf("%q %q %q %q", namespace, group, job, created)
					if other, ok := seen[key]; ok {
						require.Failf(t, "one key", "%s: %s and %s", key, of, other)
					}
					seen[key] = of
					if !plain.MatchString(key) {
						require.Failf(t, "not plain", "%s: %s", key, of)
					}
				}
			}
		}
	}
}

func TestRunNames_KeyIsBounded(t *testing.T) {
	longest := record.Instant(math.MaxInt64)
	most := 0
	for _, name := range nasty {
		for _, tr := range []record.Trigger{
			{}, {Fire: longest}, {Fire: longest, Again: true}, {Fire: longest, Work: (&record.Trigger{Number: math.MaxUint64, Token: record.NewToken()}).Name()},
		} {
			tr.Number, tr.Token = math.MaxUint64, record.NewToken()
			name := strings.Repeat(name, 100)
			of := record.RunOf{Trigger: tr.Name(), Work: tr.WorkName()}
			for _, created := range []string{"", record.NewToken(), strings.Repeat("z", 16)} {
				id := record.JobID{name, name, name, created}
				names := record.NewRunNames(id, longest.Time(), of, math.MaxInt)
				_, key := names.Of(record.MaxShards - 1)
				most = max(most, len(key))
				assert.LessOrEqual(t, len(id.AppendShardKey(nil, record.MaxShards-1)), 190)
			}
		}
	}
	assert.LessOrEqual(t, most, record.MaxRunKeyBytes)
	assert.Greater(t, most, record.MaxRunKeyBytes-10)
}

func TestCheckCreated(t *testing.T) {
	for _, good := range []string{"0", "z", record.NewToken(), strings.Repeat("a", 16)} {
		assert.NoError(t, record.CheckCreated(good))
	}
	for _, bad := range []string{"", strings.Repeat("a", 17), "A", "a/b", "a@b", "ä", " "} {
		assert.Error(t, record.CheckCreated(bad), bad)
	}
}

func TestNewToken(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		token := record.NewToken()
		assert.Regexp(t, `^[a-z2-7]{13}$`, token)
		assert.False(t, seen[token])
		seen[token] = true
	}
}
