package judge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// One commit ends an epoch, and a second one may move the end to after the last claimed fire. In between no
// owner can know that such a fire belongs to the epoch.
func TestJudgeLateClaim_ExcusesFiresThatAnEpochHoldsOnlySinceItsEndMoved(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	judged := func(ends ...instant) int {
		o := New("ns", "default", Options{Promptly: time.Second})
		o.sessions["S"] = &sessionState{client: "a"}
		j := &jobState{plan: &planRecord{}, shards: []*shardState{{owner: "a.S", epoch: 1, watermark: instantOf(at(600))}}}
		for i, end := range ends {
			o.now = at(500 + 111*int64(i))
			o.judgeEpochs(j, &planRecord{Epochs: []epoch{{Number: 1, Until: end, Def: definition{Shards: 1, Schedule: "every 10s"}}}})
		}
		o.now = at(630)
		o.judgeLateClaim(j, 0, "a.S", 1)
		return o.report.Broken[7]
	}
	before, after := instantOf(at(605)), instantOf(at(615)) // the fire at 610
	assert.Equal(t, 1, judged(after), "the epoch held it when it became due")
	assert.Equal(t, 1, judged(after, after))
	assert.Equal(t, 0, judged(before, after), "the epoch holds it since 611")
	assert.Equal(t, 0, judged(before))
}
