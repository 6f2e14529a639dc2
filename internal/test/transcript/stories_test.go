package transcript_test

import (
	"context"
	"testing"
	"time"

	"github.com/rota-dev/rota/executor"
)

// TestStories plays what a fleet goes through, once for each file in testdata. The files
// are read by people when they change.
func TestStories(t *testing.T) {
	t.Run("shards are dealt when the first instances start", func(t *testing.T) {
		play(t, func(s *stage) {
			s.start("a", every(4, 2*time.Second))
			s.start("b", every(4, 2*time.Second))
			s.at(15 * time.Second)
		})
	})
	t.Run("one joins while some shards run", func(t *testing.T) {
		play(t, func(s *stage) {
			job := every(6, 4*time.Second)
			s.start("a", job)
			s.start("b", job)
			s.at(12 * time.Second)
			s.start("c", job)
			s.at(25 * time.Second)
		})
	})
	t.Run("one leaves whose shards rest", func(t *testing.T) {
		play(t, func(s *stage) {
			job := every(4, 2*time.Second)
			s.start("a", job)
			s.start("b", job)
			s.at(15 * time.Second)
			s.stop("b")
			s.at(25 * time.Second)
		})
	})
	t.Run("the leader leaves while its shards run", func(t *testing.T) {
		play(t, func(s *stage) {
			job := every(4, 4*time.Second)
			s.start("a", job)
			s.start("b", job)
			s.at(11 * time.Second)
			s.stop("a")
			s.at(25 * time.Second)
		})
	})
	t.Run("the total grows and shrinks", func(t *testing.T) {
		play(t, func(s *stage) {
			job := every(4, 2*time.Second)
			s.start("a", job)
			s.start("b", job)
			s.at(11 * time.Second)
			for i, total := range []int{6, 2} {
				job.Shards, job.Revision = total, i+1
				s.told.Note("%d shards are deployed on a", total)
				if err := s.process("a").ex.Register(job); err != nil {
					t.Error(err)
				}
				s.at(time.Duration(i+1)*30*time.Second + 11*time.Second)
			}
		})
	})
	t.Run("0 and 1 of a crashed instance run again on the other, and it comes back", func(t *testing.T) {
		play(t, func(s *stage) {
			job := every(4, 4*time.Second)
			s.start("a", job)
			s.start("b", job)
			s.at(12 * time.Second)
			s.crash("a")
			s.at(25 * time.Second)
			s.start("a", job)
			s.at(35 * time.Second)
		})
	})
	t.Run("who runs what a crash ended crashes too", func(t *testing.T) {
		play(t, func(s *stage) {
			job := every(3, 8*time.Second)
			s.start("a", job)
			s.start("b", job)
			s.start("c", job)
			s.at(11 * time.Second)
			s.crash("c")
			s.at(18 * time.Second)
			s.crash("b")
			s.at(45 * time.Second)
		})
	})
	t.Run("failover is switched off", func(t *testing.T) {
		play(t, func(s *stage) {
			job := every(4, 4*time.Second)
			job.OnCrash = executor.CountAsFailed
			s.start("a", job)
			s.start("b", job)
			s.at(12 * time.Second)
			s.crash("b")
			s.at(25 * time.Second)
		})
	})
	t.Run("a run that takes too long misses fires", func(t *testing.T) {
		play(t, func(s *stage) {
			s.start("a", every(1, 25*time.Second))
			s.at(50 * time.Second)
		})
	})
	t.Run("a trigger of some shards waits for those that run", func(t *testing.T) {
		play(t, func(s *stage) {
			job := every(4, 4*time.Second)
			s.start("a", job)
			s.start("b", job)
			s.at(12 * time.Second)
			s.operator("b", "trigger 1 and 2", func(ctx context.Context, ex *executor.Executor) error {
				_, err := ex.Trigger(ctx, job.Name, executor.Trigger{Shards: []int{1, 2}})
				return err
			})
			s.at(25 * time.Second)
		})
	})
	t.Run("a pause and its end", func(t *testing.T) {
		play(t, func(s *stage) {
			job := every(2, 4*time.Second)
			s.start("a", job)
			s.start("b", job)
			s.at(12 * time.Second)
			s.operator("b", "pause", func(ctx context.Context, ex *executor.Executor) error { return ex.Pause(ctx, job.Name) })
			s.at(32 * time.Second)
			s.operator("b", "resume", func(ctx context.Context, ex *executor.Executor) error { return ex.Resume(ctx, job.Name) })
			s.at(55 * time.Second)
		})
	})
	t.Run("a shard is disabled and enabled", func(t *testing.T) {
		play(t, func(s *stage) {
			job := every(3, 4*time.Second)
			s.start("a", job)
			s.start("b", job)
			s.at(12 * time.Second)
			one := executor.Scope{Job: job.Name, Shards: []int{1}}
			s.operator("b", "disable 1", func(ctx context.Context, ex *executor.Executor) error { return ex.Disable(ctx, one) })
			s.at(32 * time.Second)
			s.operator("b", "enable 1", func(ctx context.Context, ex *executor.Executor) error { return ex.Enable(ctx, one) })
			s.at(45 * time.Second)
		})
	})
	t.Run("a host is disabled for all jobs while its shards run", func(t *testing.T) {
		play(t, func(s *stage) {
			job := every(4, 4*time.Second)
			s.start("a", job)
			s.start("b", job)
			s.at(12 * time.Second)
			host := executor.Scope{Hosts: []string{"host-b"}}
			s.operator("a", "disable host-b", func(ctx context.Context, ex *executor.Executor) error { return ex.Disable(ctx, host) })
			s.at(28 * time.Second)
			s.operator("a", "enable host-b", func(ctx context.Context, ex *executor.Executor) error { return ex.Enable(ctx, host) })
			s.at(35 * time.Second)
		})
	})
	t.Run("the leader is lost while shards move", func(t *testing.T) {
		play(t, func(s *stage) {
			job := every(6, 8*time.Second)
			s.start("a", job)
			s.start("b", job)
			s.at(11 * time.Second)
			s.start("c", job)
			s.at(12 * time.Second)
			s.crash("a")
			s.at(45 * time.Second)
		})
	})
	t.Run("a clock is set far ahead and right again", func(t *testing.T) {
		play(t, func(s *stage) {
			job := every(6, 2*time.Second)
			s.start("a", job)
			s.start("b", job)
			s.at(2060 * time.Millisecond)
			s.start("c", job)
			s.at(14 * time.Second)
			s.sets("c", time.Hour)
			s.at(35 * time.Second)
			s.sets("c", 0)
			s.at(65 * time.Second)
		})
	})
	t.Run("one alone has a clock that is far ahead until another comes", func(t *testing.T) {
		play(t, func(s *stage) {
			job := every(2, 2*time.Second)
			s.start("a", job)
			s.sets("a", time.Hour)
			s.at(15 * time.Second)
			s.start("b", job)
			s.at(35 * time.Second)
			s.sets("a", 0)
			s.at(45 * time.Second)
			s.operator("b", "reset", func(ctx context.Context, ex *executor.Executor) error { return ex.Reset(ctx, job.Name) })
			s.at(75 * time.Second)
		})
	})
	t.Run("the whole fleet crashes and starts again", func(t *testing.T) {
		play(t, func(s *stage) {
			job := every(4, 4*time.Second)
			s.start("a", job)
			s.start("b", job)
			s.at(12 * time.Second)
			s.crash("a")
			s.crash("b")
			s.at(32 * time.Second)
			s.start("a", job)
			s.start("b", job)
			s.at(45 * time.Second)
		})
	})
}
