package cli

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/executor"
)

// TestRetire retires a job before the deployment without it.
func TestRetire(t *testing.T) {
	inNight(t, withDigest, func(t *testing.T, n *night) {
		n.startThree()
		n.screen(t, "retire", "retire digest --reason 'renamed to report' --yes")
		time.Sleep(time.Second)
		n.screen(t, "retiring-job", "job digest")
		n.screen(t, "retiring-jobs", "jobs")
		n.screen(t, "retiring-doctor", "doctor")
		time.Sleep(5 * time.Minute)
		n.screen(t, "retiring-explain", "explain digest")
		check := n.run("check")
		assert.Equal(t, exit.OK, check.code, check.out)
		assert.Equal(t, "digest\n", n.run("jobs --state retiring -o name").out)
		assert.Contains(t, n.run("next digest").out, "The job is retiring")
		for _, line := range []string{"trigger digest", "pause digest", "resume digest", "override digest shards=4"} {
			r := n.run(line)
			assert.Equal(t, exit.NotMet, r.code, line)
			assert.Contains(t, r.err, "the job is retiring", line)
		}
		assert.Contains(t, n.run("acts digest").out, "retire")

		r := n.run("unretire digest")
		assert.Equal(t, "unretired digest\n", r.out, r.err)
		time.Sleep(3 * time.Minute)
		assert.Equal(t, exit.OK, n.run("wait digest --for ok").code)
		r = n.run("trigger digest --wait")
		require.Equal(t, exit.OK, r.code, r.err)

		r = n.run("retire digest --wait --wait-timeout 5s --yes")
		assert.Equal(t, exit.NotMet, r.code)
		assert.Contains(t, r.err, "deleted once no instance offers it; now web-1, web-2, web-3")
		n.jobs = everyMinute
		n.redeploy("web-1", "web-2")
		assert.Equal(t, exit.OK, n.run("job digest").code, "web-3 offers it")
		n.redeploy("web-3")
		assert.Equal(t, exit.NoJob, n.run("job digest").code)
		assert.Equal(t, exit.NoJob, n.run("unretire digest").code)
		r = n.run("retire digest --yes")
		assert.Equal(t, exit.NoJob, r.code)
		assert.Contains(t, r.err, `retire "digest": unknown job`)
		assert.Equal(t, exit.Usage, n.runContext(t.Context(), "retire tenants", "n\n").code)

		n.jobs = withDigest
		n.redeploy("web-1")
		time.Sleep(3 * time.Minute)
		assert.Equal(t, exit.OK, n.run("wait digest --for ok").code, "a new job")
	})
}

// The jobs of a fleet that is gone keep their records until an instance starts.
func TestRetire_WithoutALeader(t *testing.T) {
	inNight(t, withDigest, func(t *testing.T, n *night) {
		n.startThree()
		n.stopAll()
		time.Sleep(time.Minute)
		r := n.run("retire digest tenants nosuch --yes")
		assert.Equal(t, exit.NoJob, r.code)
		assert.Equal(t, "retires digest: there is no leader to delete it: start an instance\nretires tenants: there is no leader to delete it: start an instance\n", r.out)
		assert.Contains(t, r.err, `retire "nosuch": unknown job`)
		n.jobs = func(string) []executor.Job {
			return []executor.Job{{Name: "report", Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil })}}
		}
		n.launch("web-1")
		r = n.run("retire digest --wait --yes")
		assert.Equal(t, exit.NoJob, r.code, r.out)
		assert.Equal(t, "report\n", n.run("jobs -o name").out)
	})
}
