package executor_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/schedule"
)

// chain starts an executor of a parent, which fires each minute, and of a child that follows it.
func (f *fleet) startChain(name string, child schedule.Schedule, parent, handle executor.HandlerFunc) *executor.Executor {
	f.t.Helper()
	e := f.executor(name, executor.Options{}, 2, parent)
	j := f.job(1, handle)
	j.Name, j.Schedule = "child", child
	require.NoError(f.t, e.Register(j))
	require.NoError(f.t, e.Start(f.t.Context()))
	return e
}

func TestAfterJob(t *testing.T) {
	bubble(t, "fires at the instant of the followed fire, once all its shards have ended", func(t *testing.T, f *fleet) {
		var c calls
		f.startChain("a", schedule.AfterJob("job"),
			func(ctx context.Context, r *executor.Run) error {
				time.Sleep(time.Duration(1+9*r.Shard) * time.Second)
				c.add("parent %d ends", r.Shard)
				return nil
			},
			func(ctx context.Context, r *executor.Run) error {
				c.add("child begins %s", r.FireTime.Format("04:05"))
				return nil
			})
		pass(170 * time.Second)
		assert.Equal(t, []string{
			"61.0 parent 0 ends", "70.0 parent 1 ends", "70.0 child begins 01:00",
			"121.0 parent 0 ends", "130.0 parent 1 ends", "130.0 child begins 02:00",
		}, c.all())
	})
	fails := func(ctx context.Context, r *executor.Run) error {
		if r.Shard == 1 && r.FireTime.Equal(minute(1)) {
			return errors.New("out of order")
		}
		return nil
	}
	for name, s := range map[string]struct {
		schedule schedule.Schedule
		want     []int
		skipped  int
	}{
		"AfterJob":           {schedule.AfterJob("job"), []int{2, 3}, 1},
		"AfterJob OnEnd":     {schedule.AfterJob("job").OnEnd(), []int{1, 2, 3}, 0},
		"AfterJob OnFailure": {schedule.AfterJob("job").OnFailure(), []int{1}, 0},
	} {
		bubble(t, name+" after a fire of which a shard failed", func(t *testing.T, f *fleet) {
			var fires []time.Time
			f.startChain("a", s.schedule, fails, func(ctx context.Context, r *executor.Run) error {
				fires = append(fires, r.FireTime)
				return nil
			})
			until(3)
			time.Sleep(time.Second)
			var want []time.Time
			for _, n := range s.want {
				want = append(want, minute(n))
			}
			assert.Equal(t, want, fires)
			o := f.operator()
			st, err := o.Status(t.Context(), "child")
			require.NoError(t, err)
			assert.EqualValues(t, s.skipped, st.Counts.Skipped)
			assert.Empty(t, st.Problem)
		})
	}
}

func TestAfterJob_RunsLongerThanThePeriodOfTheFollowedJob(t *testing.T) {
	for name, c := range map[string]struct {
		policy executor.MisfirePolicy
		want   []int
	}{
		"RunAll runs each fire that was released meanwhile, oldest first": {executor.RunAll(100), []int{1, 2, 3, 4}},
		"RunOnce runs the latest": {executor.RunOnce, []int{1, 3, 5, 8}},
	} {
		bubble(t, name, func(t *testing.T, f *fleet) {
			var fires []int
			e := f.executor("a", executor.Options{}, 1, takes(0))
			j := f.job(1, func(ctx context.Context, r *executor.Run) error {
				fires = append(fires, r.FireTime.Minute())
				return takes(145*time.Second)(ctx, r)
			})
			j.Name, j.Schedule, j.OnMisfire = "child", schedule.AfterJob("job"), c.policy
			require.NoError(t, e.Register(j))
			require.NoError(t, e.Start(t.Context()))
			pass(10 * time.Minute)
			assert.Equal(t, c.want, fires)
		})
	}
}

func TestAfterJob_Text(t *testing.T) {
	for _, s := range []schedule.Schedule{
		schedule.AfterJob("settle"), schedule.AfterJob("settle", "invoice").OnEnd(), schedule.AfterJob("in").OnFailure(),
		schedule.AfterJob("name of, many \"words\""),
	} {
		parsed, err := schedule.Parse(s.String())
		require.NoError(t, err, s)
		assert.Equal(t, s, parsed)
		assert.Equal(t, s.After(), parsed.After())
	}
	assert.Equal(t, []string{"settle", "in voice"}, schedule.AfterJob("settle", "in voice").After())
	assert.Equal(t, "after-end settle, invoice", schedule.AfterJob("settle", "invoice").OnEnd().String())
	assert.Nil(t, schedule.Every(time.Second).After())
}

func TestAfterJob_Refuses(t *testing.T) {
	for text, want := range map[string]string{
		schedule.AfterJob("").String():                                          "the name of a job to follow is empty",
		schedule.AfterJob("a", "a").String():                                    `it names job "a" twice`,
		schedule.AfterJob("a").Spread(time.Second).String():                     `"spread" does not apply to a schedule that follows jobs`,
		schedule.AfterJob("a").In("Asia/Shanghai").String():                     `"in" does not apply`,
		schedule.Every(time.Second).OnEnd().String():                            "has to be quoted",
		"after two words":                                                       "has to be quoted",
		schedule.AfterJob("a", "b", "c", "d", "e", "f", "g", "h", "i").String(): "it names 9 jobs, at most 8",
	} {
		_, err := schedule.Parse(text)
		assert.ErrorContains(t, err, want, text)
	}
}
