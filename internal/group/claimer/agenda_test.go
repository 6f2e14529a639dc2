package claimer

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/record"
)

func TestAgenda_OrdersJobsByTheirLatestInstants(t *testing.T) {
	var g agenda
	a, b, c := &JobState{Segment: "a"}, &JobState{Segment: "b"}, &JobState{Segment: "c"}
	for _, step := range []struct {
		job   *JobState
		wake  record.Instant
		first *JobState
		why   string
	}{
		{a, 60, a, "it is the only one"},
		{b, 50, b, "it is earlier"},
		{c, 55, b, "it is later"},
		{a, 5, a, "its instant has become earlier: a retry goes before the next fire"},
		{a, 70, b, "its instant has become later"},
		{b, 0, c, "it waits for no instant"},
		{b, 54, b, "it waits again"},
	} {
		g.schedule(step.job, step.wake)
		assert.Same(t, step.first, g.jobs.First(), "%s at %d: %s", step.job.Segment, step.wake, step.why)
	}
}
