package cli

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/schedule"
)

// ran is a handler that records runs, as "job 15:04" or "job trigger", and the greatest fence.
type ran struct {
	mu    sync.Mutex
	runs  []string
	fence uint64
}

func (r *ran) Handle(_ context.Context, run *executor.Run) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := run.FireTime.UTC().Format("15:04")
	if run.Trigger != 0 {
		at = "trigger"
	}
	r.runs = append(r.runs, run.Job+" "+at)
	r.fence = max(r.fence, run.Fence)
	return nil
}

func (r *ran) highest() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fence
}

// take returns the number of each run since the last call.
func (r *ran) take() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]int{}
	for _, text := range r.runs {
		all[text]++
	}
	r.runs = nil
	return all
}

// TestBackup_RestoredStore has the rows of docs/operating/backup.md: a backup at 00:05:30, a restore at 00:10:30.
func TestBackup_RestoredStore(t *testing.T) {
	var r ran
	var begin chan struct{} // of the bubble
	var long sync.Once
	jobs := func(string) []executor.Job {
		job := func(name string, misfire executor.MisfirePolicy) executor.Job {
			return executor.Job{Name: name, Schedule: schedule.Every(time.Minute), OnMisfire: misfire, Handler: &r}
		}
		return []executor.Job{
			job("once", executor.RunOnce), job("skip", executor.SkipMissed), job("all", executor.RunAll(3)),
			{Name: "before", Schedule: schedule.OnTrigger(), StartPaused: true, Handler: &r},
			{Name: "after", Schedule: schedule.OnTrigger(), StartPaused: true, Handler: &r},
			{Name: "long", Schedule: schedule.At(time.Date(2000, 1, 1, 0, 5, 0, 0, time.UTC)), Handler: executor.HandlerFunc(func(ctx context.Context, run *executor.Run) error {
				if run.Attempt == 1 {
					long.Do(func() { close(begin) })
					<-ctx.Done()
					return nil
				}
				return r.Handle(ctx, run)
			})},
		}
	}
	inNight(t, jobs, func(t *testing.T, n *night) {
		begin = make(chan struct{})
		n.launch("web-1", "web-2")
		<-begin
		time.Sleep(30 * time.Second)
		n.do(t, "trigger before")
		time.Sleep(time.Second)
		backup := n.server.Dump()
		n.do(t, "resume before", "trigger after", "resume after", "pause skip")
		time.Sleep(4*time.Minute + 59*time.Second)
		before := r.take()
		assert.Equal(t, map[string]int{"before trigger": 1, "after trigger": 1}, only(before, "before", "after"))
		assert.Equal(t, 1, before["once 00:10"])
		n.stopAll()

		n.replaceStore(t, backup)
		n.launch("web-1")
		time.Sleep(15 * time.Second)
		again := r.take()
		assert.Equal(t, map[string]int{
			"once 00:10": 1, "all 00:08": 1, "all 00:09": 1, "all 00:10": 1, // claimed after the backup
			"long 00:05": 1, // in progress at the backup, though it has ended since
		}, again)
		n.do(t, "resume before", "resume after")
		time.Sleep(2 * time.Second)
		assert.Equal(t, map[string]int{"before trigger": 1}, only(r.take(), "before", "after"), "pending at the backup; the later one is lost")
		assert.NotContains(t, n.run("jobs").out, "paused", "the pause of skip is lost")

		n.stopAll()
		const above = 4_000_000_000_000_000
		assert.Less(t, r.highest(), uint64(above))
		n.screen(t, "raise-fences", "raise-fences --above 4000000000000000 --yes")
		n.launch("web-1")
		time.Sleep(2 * time.Minute)
		assert.Greater(t, r.highest(), uint64(above))
		assert.Equal(t, exit.Usage, n.run("raise-fences --yes").code, "no number")
		assert.Equal(t, exit.Usage, n.runContext(t.Context(), "raise-fences --above 7", "n\n").code, "not confirmed")
		assert.Equal(t, exit.Usage, n.run("raise-fences --above 9223372036854775808 --yes").code, "no room")
	})
}

func only(all map[string]int, jobs ...string) map[string]int {
	some := map[string]int{}
	for _, j := range jobs {
		if count := all[j+" trigger"]; count > 0 {
			some[j+" trigger"] = count
		}
	}
	return some
}

// TestBackup_DumpAndRestore has the part of the page about a store that is lost without a backup of its own.
func TestBackup_DumpAndRestore(t *testing.T) {
	var r ran
	jobs := func(string) []executor.Job {
		return []executor.Job{
			{Name: "tenants", Schedule: schedule.Every(time.Minute), Shards: 2, Handler: &r},
			{Name: "export", Schedule: schedule.OnTrigger(), Handler: &r},
		}
	}
	inNight(t, jobs, func(t *testing.T, n *night) {
		n.startThree()
		n.do(t, "pause export --reason 'quarter end'", "disable tenants --shards 1")
		time.Sleep(time.Second)
		saved := n.run("dump --params")
		require.Equal(t, exit.OK, saved.code, saved.err)
		file := filepath.Join(t.TempDir(), "rota.json")
		require.NoError(t, os.WriteFile(file, []byte(saved.out), 0o600))
		time.Sleep(5 * time.Minute)
		n.stopAll()
		r.take()

		n.replaceStore(t, nil)
		n.do(t, "restore "+file+" --yes")
		n.launch("web-1")
		time.Sleep(10 * time.Second)
		assert.Empty(t, r.take(), "no fire of the past")
		// Stopping and restoring took a time that varies.
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(2*time.Minute + 25*time.Second)))
		runs := r.take()
		assert.Equal(t, map[string]int{"tenants 00:18": 1, "tenants 00:19": 1}, runs, "of shard 0 alone")
		n.screen(t, "restored-jobs", "jobs")
	})
}
