package web

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/schedule"
)

// wrongOf returns the part of the fleet's page about a job that is wrong.
func wrongOf(k *kit, job string) string {
	body := k.page("/")
	_, part, found := strings.Cut(body, `<li id="wrong-`+job+`">`)
	require.True(k, found, body)
	part, _, _ = strings.Cut(part, "</li>")
	return part
}

// The fleet's page has the words, the command and the act of the page that explains the job.
func TestFleet_ShowsWhatMendsAJob(t *testing.T) {
	onFleet(t, func(k *kit) {
		e, err := k.op.Explain(context.Background(), "export", operator.AllShards, time.Time{})
		require.NoError(t, err)
		part := wrongOf(k, "export")
		assert.Contains(t, part, "<strong>Do:</strong> "+e.Answers[0].Do)
		assert.Contains(t, part, "<code>rota retry export --fire 2000-01-01T00:01:00Z</code>")
		const button = `<a class="button" href="jobs/export/act/retry?fire=2000-01-01T00%3A01%3A00Z&amp;shards=0-1">retry</a>`
		assert.Contains(t, part, button)
		form := k.page("/jobs/export/act/retry?fire=2000-01-01T00%3A01%3A00Z&shards=0-1")
		assert.Contains(t, form, `value="0-1"`)
		assert.Contains(t, k.page("/jobs/export/explain"), e.Answers[0].Do)

		k.user.Role = Look
		part = wrongOf(k, "export")
		assert.NotContains(t, part, "act/retry", "the button is for those who may act")
		assert.Contains(t, part, "rota retry export")
		assert.NotContains(t, part, secret)
		k.user.Role = Admin
		reads := k.newConsole(Options{})
		defer reads.Close()
		assert.NotContains(t, k.do(reads, httptest.NewRequest("GET", "/", nil)).Body.String(), "act/retry", "nor on a console that does not act")
	})
}

// An instance whose shards wait for its return can be drained.
func TestFleet_ShowsWhatMendsAnInstance(t *testing.T) {
	rotatest.Run(t, func(fleet *rotatest.Fleet) {
		fleet.Options.RestartGrace = time.Hour
		job := executor.Job{Name: "settle", Schedule: schedule.Every(time.Minute), Shards: 4, Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil })}
		a := fleet.Start("a", job)
		fleet.Start("b", job)
		fleet.Sleep(70 * time.Second)
		k := &kit{T: t, fleet: fleet, op: a.Operator(), user: User{Name: "lee", Role: Admin}}
		k.console = k.newConsole(Options{Acts: true})
		defer k.console.Close()
		fleet.Crash("b")
		fleet.Sleep(2 * time.Minute)
		body := k.page("/")
		assert.Contains(t, body, `<a class="button" href="instances/b/act/drain">drain</a> <code>rota drain b</code>`)
		k.user.Role = Look
		body = k.page("/")
		assert.NotContains(t, body, "act/drain")
		assert.Contains(t, body, "<code>rota drain b</code>")
		fleet.Start("b", job)
		fleet.Sleep(time.Minute)
	})
}

func TestFleet_LeadsToTheDoctorWithoutALeader(t *testing.T) {
	op, err := operator.New(memory.New().Client("web"), "billing", "")
	require.NoError(t, err)
	c, err := New(op, Options{})
	require.NoError(t, err)
	defer c.Close()
	st := fleetOf(1)
	st.Leader = operator.LeaderStatus{}
	c.feed.status, c.feed.failed = st, time.Now().Add(time.Hour)
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	assert.Contains(t, w.Body.String(), `<a class="button" href="doctor">Doctor</a> <code>rota doctor</code>`)
}

// What a failing job needs stays while its next fire runs, waits or is dropped by a pause.
func TestFleet_AdvisesAboutTheFireThatFailed(t *testing.T) {
	onFleet(t, func(k *kit) {
		require.NoError(t, k.op.As("kim", "").Pause(context.Background(), "export"))
		k.fleet.Sleep(2 * time.Minute)
		part := wrongOf(k, "export")
		assert.Contains(t, part, "failing: shards 0-1, paused")
		assert.Contains(t, part, "The fire of 2000-01-01T00:01:00Z failed")
		assert.Contains(t, part, "remove the cause, then resume the job, then retry the fire")
	})
}

// Advice is computed from the snapshot, once for all viewers.
func TestFleet_AdvisesWithoutReadingTheStore(t *testing.T) {
	onFleet(t, func(k *kit) {
		k.page("/")
		for job, e := range k.console.explanations.entries {
			assert.Equal(t, "export 2000-01-01 00:01:00 +0000 UTC", job, "the fire that failed")
			assert.NoError(t, e.err)
		}
		assert.Len(t, k.console.explanations.entries, 1)
	})
}
