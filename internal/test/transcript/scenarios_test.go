package transcript_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/schedule"
)

// TestScenarios runs each scenario and compares its transcript with the file of its name in
// testdata. A reviewer reads how the files change.
func TestScenarios(t *testing.T) {
	t.Run("instances start", func(t *testing.T) {
		compareScenario(t, func(s *stage) {
			s.start("a", newJob(4, 2*time.Second))
			s.start("b", newJob(4, 2*time.Second))
			s.advance(15 * time.Second)
		})
	})
	t.Run("instance joins while shards run", func(t *testing.T) {
		compareScenario(t, func(s *stage) {
			job := newJob(6, 4*time.Second)
			s.start("a", job)
			s.start("b", job)
			s.advance(12 * time.Second)
			s.start("c", job)
			s.advance(25 * time.Second)
		})
	})
	t.Run("idle instance leaves", func(t *testing.T) {
		compareScenario(t, func(s *stage) {
			job := newJob(4, 2*time.Second)
			s.start("a", job)
			s.start("b", job)
			s.advance(15 * time.Second)
			s.shutdown("b")
			s.advance(25 * time.Second)
		})
	})
	t.Run("leader leaves", func(t *testing.T) {
		compareScenario(t, func(s *stage) {
			job := newJob(4, 4*time.Second)
			s.start("a", job)
			s.start("b", job)
			s.advance(11 * time.Second)
			s.shutdown("a")
			s.advance(25 * time.Second)
		})
	})
	t.Run("total changes", func(t *testing.T) {
		compareScenario(t, func(s *stage) {
			job := newJob(4, 2*time.Second)
			s.start("a", job)
			s.start("b", job)
			s.advance(11 * time.Second)
			for i, total := range []int{6, 2} {
				job.Shards, job.Revision = total, i+1
				s.transcript.Note("a registers the job with %d shards", total)
				if err := s.process("a").executor.Register(job); err != nil {
					t.Error(err)
				}
				s.advance(time.Duration(i+1)*30*time.Second + 11*time.Second)
			}
		})
	})
	t.Run("instance crashes and returns", func(t *testing.T) {
		compareScenario(t, func(s *stage) {
			job := newJob(4, 4*time.Second)
			s.start("a", job)
			s.start("b", job)
			s.advance(12 * time.Second)
			s.crash("a")
			s.advance(25 * time.Second)
			s.start("a", job)
			s.advance(35 * time.Second)
		})
	})
	t.Run("instance crashes in the middle of a batch", func(t *testing.T) {
		compareScenario(t, func(s *stage) {
			job := newJob(8, 0)
			job.Handler = executor.Together(func(ctx context.Context, b *executor.Batch) error {
				for _, r := range b.Runs {
					select {
					case <-time.After(1500 * time.Millisecond):
					case <-ctx.Done():
						return context.Cause(ctx)
					}
					if err := b.End(r.Shard, nil); err != nil {
						return err
					}
				}
				return nil
			})
			s.start("a", job)
			s.start("b", job)
			s.advance(13500 * time.Millisecond)
			s.crash("b")
			s.advance(25 * time.Second)
		})
	})
	t.Run("failed run is retried after a crash", func(t *testing.T) {
		compareScenario(t, func(s *stage) {
			job := newJob(2, time.Second)
			run := job.Handler
			job.Retry = executor.Retry{Max: 2, Initial: 8 * time.Second, Jitter: -1}
			job.Handler = executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
				if err := run.Handle(ctx, r); err != nil || r.Shard == 0 || r.Retries > 0 {
					return err
				}
				return errors.New("the bank is closed")
			})
			s.start("a", job)
			s.start("b", job)
			s.advance(12 * time.Second)
			s.crash("b")
			s.advance(25 * time.Second)
		})
	})
	t.Run("job follows a fire across a crash", func(t *testing.T) {
		compareScenario(t, func(s *stage) {
			job := newJob(2, 4*time.Second)
			after := newJob(1, time.Second)
			after.Name, after.Schedule = "report", schedule.AfterJob("pay")
			s.start("a", job, after)
			s.start("b", job, after)
			s.advance(12 * time.Second)
			s.crash("b")
			s.advance(30 * time.Second)
		})
	})
	for name, overlap := range map[string]executor.OverlapPolicy{
		"overlapping fires are skipped": executor.SkipOverlapping, "next fire cancels a run": executor.CancelRunning,
	} {
		t.Run(name, func(t *testing.T) {
			compareScenario(t, func(s *stage) {
				job := newJob(2, 22*time.Second)
				job.OnOverlap = overlap
				s.start("a", job)
				s.start("b", job)
				s.advance(55 * time.Second)
			})
		})
	}
	t.Run("fires older than the catch-up window are skipped", func(t *testing.T) {
		compareScenario(t, func(s *stage) {
			job := newJob(1, time.Second)
			job.OnMisfire, job.CatchupWindow = executor.RunAll(10), 25*time.Second
			s.start("a", job)
			s.advance(12 * time.Second)
			s.crash("a")
			s.advance(65 * time.Second)
			s.start("b", job)
			s.advance(75 * time.Second)
		})
	})
	t.Run("shard moves during a fixed delay", func(t *testing.T) {
		compareScenario(t, func(s *stage) {
			job := newJob(2, 3*time.Second)
			job.Schedule = schedule.FixedDelay(5 * time.Second)
			s.start("a", job)
			s.advance(6 * time.Second)
			s.start("b", job)
			s.advance(18 * time.Second)
			s.shutdown("a")
			s.advance(33 * time.Second)
		})
	})
	t.Run("daemon is handed over", func(t *testing.T) {
		compareScenario(t, func(s *stage) {
			job := newJob(2, time.Hour)
			job.Schedule = schedule.Always()
			run := job.Handler
			job.Handler = executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
				err := run.Handle(ctx, r)
				time.Sleep(200 * time.Millisecond) // or its end would come at the same instant as the drain
				return err
			})
			s.start("a", job)
			s.advance(5 * time.Second)
			s.start("b", job)
			s.advance(10 * time.Second)
			s.shutdown("a")
			s.advance(15 * time.Second)
			s.start("a", job)
			s.advance(20 * time.Second)
			s.crash("b")
			s.advance(35 * time.Second)
		})
	})
	t.Run("two crashes in turn", func(t *testing.T) {
		compareScenario(t, func(s *stage) {
			job := newJob(3, 8*time.Second)
			s.start("a", job)
			s.start("b", job)
			s.start("c", job)
			s.advance(11 * time.Second)
			s.crash("c")
			s.advance(18 * time.Second)
			s.crash("b")
			s.advance(45 * time.Second)
		})
	})
	t.Run("failover is off", func(t *testing.T) {
		compareScenario(t, func(s *stage) {
			job := newJob(4, 4*time.Second)
			job.OnCrash = executor.CountAsFailed
			s.start("a", job)
			s.start("b", job)
			s.advance(12 * time.Second)
			s.crash("b")
			s.advance(25 * time.Second)
		})
	})
	t.Run("long run misses fires", func(t *testing.T) {
		compareScenario(t, func(s *stage) {
			s.start("a", newJob(1, 25*time.Second))
			s.advance(50 * time.Second)
		})
	})
	t.Run("trigger waits for runs", func(t *testing.T) {
		compareScenario(t, func(s *stage) {
			job := newJob(4, 4*time.Second)
			s.start("a", job)
			s.start("b", job)
			s.advance(12 * time.Second)
			s.operate("b", "trigger shards 1 and 2", func(ctx context.Context, ex *executor.Executor) error {
				_, err := ex.Trigger(ctx, job.Name, executor.Trigger{Shards: []int{1, 2}})
				return err
			})
			s.advance(25 * time.Second)
		})
	})
	t.Run("pause and resume", func(t *testing.T) {
		compareScenario(t, func(s *stage) {
			job := newJob(2, 4*time.Second)
			s.start("a", job)
			s.start("b", job)
			s.advance(12 * time.Second)
			s.operate("b", "pause", func(ctx context.Context, ex *executor.Executor) error { return ex.Operator().Pause(ctx, job.Name) })
			s.advance(32 * time.Second)
			s.operate("b", "resume", func(ctx context.Context, ex *executor.Executor) error { return ex.Operator().Resume(ctx, job.Name) })
			s.advance(55 * time.Second)
		})
	})
	t.Run("shard is disabled", func(t *testing.T) {
		compareScenario(t, func(s *stage) {
			job := newJob(3, 4*time.Second)
			s.start("a", job)
			s.start("b", job)
			s.advance(12 * time.Second)
			one := operator.Scope{Job: job.Name, Shards: []int{1}}
			s.operate("b", "disable shard 1", func(ctx context.Context, ex *executor.Executor) error { return ex.Operator().Disable(ctx, one) })
			s.advance(32 * time.Second)
			s.operate("b", "enable shard 1", func(ctx context.Context, ex *executor.Executor) error { return ex.Operator().Enable(ctx, one) })
			s.advance(45 * time.Second)
		})
	})
	t.Run("host is disabled", func(t *testing.T) {
		compareScenario(t, func(s *stage) {
			job := newJob(4, 4*time.Second)
			s.start("a", job)
			s.start("b", job)
			s.advance(12 * time.Second)
			host := operator.Scope{Hosts: []string{"host-b"}}
			s.operate("a", "disable host host-b", func(ctx context.Context, ex *executor.Executor) error { return ex.Operator().Disable(ctx, host) })
			s.advance(28 * time.Second)
			s.operate("a", "enable host host-b", func(ctx context.Context, ex *executor.Executor) error { return ex.Operator().Enable(ctx, host) })
			s.advance(35 * time.Second)
		})
	})
	t.Run("leader crashes during a move", func(t *testing.T) {
		compareScenario(t, func(s *stage) {
			job := newJob(6, 8*time.Second)
			s.start("a", job)
			s.start("b", job)
			s.advance(11 * time.Second)
			s.start("c", job)
			s.advance(12 * time.Second)
			s.crash("a")
			s.advance(45 * time.Second)
		})
	})
	t.Run("clock jumps ahead", func(t *testing.T) {
		compareScenario(t, func(s *stage) {
			job := newJob(6, 2*time.Second)
			s.start("a", job)
			s.start("b", job)
			s.advance(2060 * time.Millisecond)
			s.start("c", job)
			s.advance(14 * time.Second)
			s.setClock("c", time.Hour)
			s.advance(35 * time.Second)
			s.setClock("c", 0)
			s.advance(65 * time.Second)
		})
	})
	t.Run("lone clock is ahead", func(t *testing.T) {
		compareScenario(t, func(s *stage) {
			job := newJob(2, 2*time.Second)
			s.start("a", job)
			s.setClock("a", time.Hour)
			s.advance(15 * time.Second)
			s.start("b", job)
			s.advance(35 * time.Second)
			s.setClock("a", 0)
			s.advance(45 * time.Second)
			s.operate("b", "reset", func(ctx context.Context, ex *executor.Executor) error { return ex.Operator().Reset(ctx, job.Name) })
			s.advance(75 * time.Second)
		})
	})
	t.Run("waiting runs of a spread move", func(t *testing.T) {
		compareScenario(t, func(s *stage) {
			job := newJob(6, time.Second)
			job.Schedule = schedule.Every(30 * time.Second).Spread(20 * time.Second)
			s.start("a", job)
			s.advance(33 * time.Second)
			s.start("b", job)
			s.advance(85 * time.Second)
		})
	})
	t.Run("data flow continues on other instances", func(t *testing.T) {
		compareScenario(t, func(s *stage) {
			job := newJob(1, 0)
			job.Handler = newDataflow(90, 10)
			s.start("a", job)
			s.start("b", job)
			s.advance(13500 * time.Millisecond)
			s.crash("a")
			s.advance(21500 * time.Millisecond)
			s.start("c", job)
			s.shutdown("b")
			s.advance(40 * time.Second)
		})
	})
	t.Run("fleet restarts", func(t *testing.T) {
		compareScenario(t, func(s *stage) {
			job := newJob(4, 4*time.Second)
			s.start("a", job)
			s.start("b", job)
			s.advance(12 * time.Second)
			s.crash("a")
			s.crash("b")
			s.advance(32 * time.Second)
			s.start("a", job)
			s.start("b", job)
			s.advance(45 * time.Second)
		})
	})
}
