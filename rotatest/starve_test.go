package rotatest_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/schedule"
)

// lineLog is a log that a test reads.
type lineLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lineLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lineLog) with(text string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestStarvation has a job of eight runs of ten minutes beside a job of each ten seconds.
func TestStarvation(t *testing.T) {
	long := executor.Job{Name: "settle", Schedule: schedule.Every(2 * time.Hour), Shards: 8, Handler: takes(10 * time.Minute)}
	often := executor.Job{Name: "poll", Schedule: schedule.Every(10 * time.Second), Handler: takes(time.Second)}
	// gap returns the longest time without a beginning of a run of poll after the fire of settle.
	gap := func(f *rotatest.Fleet, from time.Time) (longest time.Duration) {
		last := from
		for _, r := range f.Runs("poll") {
			if r.Start.After(from) {
				longest, last = max(longest, r.Start.Sub(last)), r.Start
			}
		}
		return longest
	}
	promise(t, "without Workers loses no fire to another job", func(t *testing.T, f *rotatest.Fleet) {
		f.Start("a", long, often)
		fire := f.NextFire("settle")
		f.Sleep(90 * time.Minute)
		assert.LessOrEqual(t, gap(f, fire), 10*time.Second)
		for _, r := range f.Runs("poll") {
			assert.Equal(t, executor.Scheduled, r.Reason, r.ID)
		}
	})
	promise(t, "with Workers loses no fire to another job whose MaxRunning leaves a worker free", func(t *testing.T, f *rotatest.Fleet) {
		f.Options.Workers = 2
		polite := long
		polite.MaxRunning = 1
		f.Start("a", polite, often)
		fire := f.NextFire("settle")
		f.Sleep(90 * time.Minute)
		assert.LessOrEqual(t, gap(f, fire), 10*time.Second)
	})
	promise(t, "with Workers waits for one long run at most, visibly and with the reason", func(t *testing.T, f *rotatest.Fleet) {
		var log lineLog
		f.Options.Workers, f.Options.Logger = 2, slog.New(slog.NewTextHandler(&log, nil))
		ex := f.Start("a", long, often)
		fire := f.NextFire("settle")
		f.Sleep(5 * time.Minute)

		local := ex.Waiting()
		assert.Equal(t, "Workers 2, busy with settle (2)", local["poll"].Behind)
		o, err := operator.New(f.Server().Client("console"), rotatest.Namespace, "")
		require.NoError(t, err)
		st, err := o.Status(t.Context(), "poll")
		require.NoError(t, err)
		require.Len(t, st.Members, 1)
		assert.Equal(t, local["poll"], st.Members[0].Waiting)
		require.Len(t, st.Members[0].Running, 1)
		assert.Equal(t, []int{0}, st.Members[0].Running[0].Shards)
		assert.WithinDuration(t, fire, st.Members[0].Waiting.Since, 10*time.Second)

		f.Sleep(85 * time.Minute)
		assert.LessOrEqual(t, gap(f, fire), 10*time.Minute+10*time.Second)
		reasons := map[executor.Reason]int{}
		for _, r := range f.Runs("poll") {
			if r.Start.Sub(r.FireTime) > time.Minute {
				reasons[r.Reason]++
			}
		}
		assert.Positive(t, reasons[executor.Queued])
		assert.Zero(t, reasons[executor.Scheduled], "the others were claimed late as well")
		var warned []string
		for _, line := range log.with("runs wait for a worker") {
			if strings.Contains(line, "job=poll") {
				assert.Contains(t, line, "level=WARN")
				warned = append(warned, line)
			}
		}
		assert.NotEmpty(t, warned)
		assert.LessOrEqual(t, len(warned), 4, "once for each time that it waits")
		st, err = o.Status(t.Context(), "poll")
		require.NoError(t, err)
		assert.Zero(t, st.Members[0].Waiting)
	})
}
