package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/schedule"
)

// revision returns a job that fires at an interval.
func revision(n int, every time.Duration) executor.Job {
	ok := executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil })
	return executor.Job{Name: "lower", Revision: n, Schedule: schedule.Every(every), Param: "secret", Handler: ok}
}

// An instance that started with a file that was left behind is named, with its schedule, by the commands that an
// operator types first.
func TestScreens_NameInstancesWithAnotherRevision(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.start("web-1", nil, revision(5, time.Minute))
		f.start("web-2", nil, revision(5, time.Minute))
		assert.NotContains(t, f.run("jobs").out, "differs")
		assert.Contains(t, f.run("doctor").out, "nothing found")
		left := f.start("web-3", nil, revision(4, 10*time.Second))
		time.Sleep(time.Minute)
		const what = `web-3 has revision 4 (schedule "every 10s"), and revision 5 is stored`
		assert.Regexp(t, `(?m)^lower .+ ok, differs on web-3$`, f.run("jobs").out)
		assert.Contains(t, f.run("jobs -o json").out, "\"differs\": [\n        \"web-3\"\n      ]")
		assert.Contains(t, f.run("job lower").out, `has another definition: revision 4, schedule "every 10s"`)
		explained := unwrap(f.run("explain lower --at 00:00:10").out)
		assert.Contains(t, explained, "does not have the instant")
		assert.Contains(t, explained, what)
		assert.Contains(t, explained, "raise the revision")
		assert.Contains(t, unwrap(f.run("explain lower").out), what)
		doctor := f.run("doctor")
		assert.Contains(t, doctor.out, "warning  differs  lower\n  what   "+what+"\n")
		assert.Equal(t, exit.OK, doctor.code)
		assert.Equal(t, exit.OK, f.run("check").code, "an instance that is replaced a little later is usual")
		assert.NotContains(t, f.run("dump").out, `"secret"`)

		require.NoError(t, left.Register(revision(5, time.Minute)))
		time.Sleep(time.Minute)
		for _, line := range []string{"jobs", "job lower", "explain lower", "doctor"} {
			assert.NotRegexp(t, "differs|revision 4", f.run(line).out, line)
		}
	})
}

// In a rolling deployment, instances that are not replaced yet have a lower revision. That is no warning.
func TestScreens_OfARollingDeployment(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.start("web-1", nil, revision(4, time.Minute))
		f.start("web-2", nil, revision(5, 10*time.Second))
		time.Sleep(5 * time.Minute)
		assert.Regexp(t, `(?m)^lower .+ ok, differs on web-1$`, f.run("jobs").out)
		assert.Contains(t, unwrap(f.run("doctor").out), "info differs lower what web-1 has revision 4, and revision 5 is stored do ")
		assert.Equal(t, exit.OK, f.run("check").code)
		assert.Equal(t, exit.OK, f.run("explain lower").code)
	})
}

// unwrap returns a text on one line, with single spaces.
func unwrap(text string) string { return strings.Join(strings.Fields(text), " ") }

// Revisions are those of a whole file. Doctor names a job whose definition has another content, and not one that has the
// revision only.
func TestDoctor_NamesAJobWhoseContentDiffers(t *testing.T) {
	jobs := func(revision int, local string, every time.Duration) (all []executor.Job) {
		for _, name := range []string{"a", "b", "c"} {
			j := executor.Job{Name: name, Revision: revision, Schedule: schedule.Every(time.Minute), Local: "x", Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil })}
			if name == "b" {
				j.Local, j.Schedule = local, schedule.Every(every)
			}
			all = append(all, j)
		}
		return all
	}
	inFleet(t, func(t *testing.T, f *fleet) {
		f.start("web-1", nil, jobs(5, "x", time.Minute)...)
		f.start("web-2", nil, jobs(4, "x", time.Hour)...)
		assert.Contains(t, unwrap(f.run("doctor").out), `what web-2 has another revision of 3 jobs than is stored, and other content of 1 job, `+
			`such as b: web-2 has revision 4 (schedule "every 1h"), and revision 5 is stored do`)
	})
	inFleet(t, func(t *testing.T, f *fleet) { // its content is not on record
		f.start("web-1", nil, jobs(4, "x", time.Minute)...)
		f.start("web-2", nil, jobs(5, "y", time.Hour)...)
		doctor := unwrap(f.run("doctor").out)
		assert.Contains(t, doctor, "differs b what the job differs on web-1, web-2 in what is not stored")
		assert.Contains(t, doctor, "what web-1 has another revision of 3 jobs than is stored: web-1 has revision 4, and revision 5 is stored; "+
			"whether their content differs is not on record do")
	})
	inFleet(t, func(t *testing.T, f *fleet) {
		f.start("web-1", nil, jobs(5, "x", time.Minute)...)
		f.start("web-2", nil, jobs(5, "y", time.Hour)...)
		doctor := unwrap(f.run("doctor").out)
		assert.Contains(t, doctor, `differs b what web-2 has revision 5 with other content`)
		assert.NotRegexp(t, `differs [ac] `, doctor)
	})
}
