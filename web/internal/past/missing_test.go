package past

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/operator"
)

func TestFindMissing(t *testing.T) {
	minute := func(n int) time.Time { return start.Add(time.Duration(n) * time.Minute) }
	fires := func(minutes ...int) (fires []Fire) {
		for _, n := range minutes {
			fires = append(fires, Fire{Fire: minute(n)})
		}
		return fires
	}
	live := func(schedule string) *Live {
		v := LiveOf(&operator.Status{Schedule: schedule})
		return &v
	}

	outage := fires(0, 1, 2, 3, 8, 9)
	assert.Nil(t, live("every 1m").findMissing(outage, time.Time{}))
	require.NotNil(t, outage[4].Missing, "an outage is missing")
	assert.Equal(t, Missing{From: minute(4), To: minute(7), Text: "4 fires of the schedule not on record: the fleet was away, the job was paused, or had another schedule"}, *outage[4].Missing)
	for _, i := range []int{0, 1, 2, 3, 5} {
		assert.Nil(t, outage[i].Missing, "fire %d follows the one before", i)
	}

	after := live("every 1m").findMissing(fires(0, 1, 2), minute(10))
	require.NotNil(t, after, "an outage that lasts is missing after the last fire")
	assert.Equal(t, []time.Time{minute(3), minute(8)}, []time.Time{after.From, after.To}, "but for the fires of the last minute, which may come")
	assert.Nil(t, live("every 1m").findMissing(fires(0, 1, 2), minute(4)))

	skipped := fires(0, 1, 2, 6)
	skipped[3].Recorded = history.Fire{Job: "settle", SkippedFrom: minute(3)}
	live("every 1m").findMissing(skipped, time.Time{})
	require.NotNil(t, skipped[3].Missing, "fires that were skipped at once are marked")
	assert.Equal(t, Missing{From: minute(3), To: minute(5), Text: "3 fires skipped", Skipped: true}, *skipped[3].Missing)

	many := fires(0, 1, 2, 2000)
	live("every 1m").findMissing(many, time.Time{})
	assert.Contains(t, many[3].Missing.Text, "1000 fires or more", "the count is bounded")

	for name, schedule := range map[string]string{
		"a schedule that was made denser lacks nothing": "every 10s", "a job that runs by triggers lacks nothing": "on trigger",
		"fires that count from ends are at no fixed instants": "fixed delay 5s", "a job that follows others lacks nothing": "after settle",
	} {
		all := fires(0, 1, 2, 3, 4, 5, 6, 7, 20)
		assert.Nil(t, live(schedule).findMissing(all, minute(60)), name)
		for _, f := range all {
			assert.Nil(t, f.Missing, name)
		}
	}
}
