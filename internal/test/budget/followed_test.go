package budget_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/onecpu"
	"github.com/rota-dev/rota/internal/test/judge"
	"github.com/rota-dev/rota/schedule"
)

// Three instances run a job of 30 or 300 shards each minute. That another job follows it costs its owners no commit.
func TestBudget_FollowedFires(t *testing.T) {
	defer onecpu.Hold()()
	const fires, instances = 20, 3
	table := "\nshards  followed  claims commits  with a copy  plans of it  plans of the other  reads  bytes per fire\n"
	for _, shards := range []int{30, 300} {
		var alone []judge.Commit
		for _, followed := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s := newMemory()
				f := newFleet(t, s)
				defer f.stop()
				offered := []executor.Job{{Name: "parent", Shards: shards, Schedule: schedule.Every(time.Minute), Handler: &runCounter{}}}
				if followed {
					offered = append(offered, executor.Job{Name: "child", Schedule: schedule.AfterJob("parent"), Handler: &runCounter{}})
				}
				for i := range instances {
					f.start(fmt.Sprint("i", i), offered...)
				}
				f.awaitAssigned(len(offered))
				time.Sleep(5 * time.Minute)
				sleepUntilHalf(time.Minute)
				s.count(t)
				time.Sleep(fires * time.Minute)
				c := s.count(t)

				claims, copies, plans := commitsOf(c.commits, "/claims/", "/parent"), commitsWith("/ends/", c.commits), commitsWith("/plan/parent", c.commits)
				table += fmt.Sprintf("%6d  %8v  %14d  %11d  %11d  %18d  %5d  %14d\n", shards, followed, len(claims), len(copies), len(plans),
					len(commitsWith("/plan/child", c.commits)), c.reads, totalBytes(c.commits)/fires)
				if !followed {
					alone = claims
					assert.Empty(t, copies)
					assert.Empty(t, plans, "no plan changes at a fire that nothing follows")
					return
				}
				assert.Len(t, claims, len(alone), "commits that claim fires of the followed job, or end its runs")
				for _, one := range copies {
					assert.Positive(t, keysWith(one, "/claims/"), "a copy of claims is written with them: %v", one.Then)
				}
				assert.LessOrEqual(t, len(copies), fires*instances, "one copy per fire and instance")
				assert.LessOrEqual(t, len(plans), fires, "one commit per fire that has ended")
				assert.LessOrEqual(t, len(commitsWith("/plan/child", c.commits)), 2*fires, "one commit that releases a fire, and one that clears it")
				assert.LessOrEqual(t, c.reads, 2*fires*instances)
			})
		}
	}
	t.Log(table)
}

// commitsOf returns the commits that write a key with both parts.
func commitsOf(commits []judge.Commit, part, end string) (out []judge.Commit) {
	for _, c := range commits {
		for _, op := range c.Then {
			if key := string(op.Key); strings.Contains(key, part) && strings.HasSuffix(key, end) {
				out = append(out, c)
				break
			}
		}
	}
	return out
}
