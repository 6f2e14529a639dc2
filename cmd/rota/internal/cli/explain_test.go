package cli

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/schedule"
)

func TestExplain_ReadsTheHistory(t *testing.T) {
	now := time.Date(2000, 1, 1, 3, 0, 0, 0, time.UTC)
	url := putHistory(t, now, time.Hour) // fires of 01:00 and 02:00
	inFleet(t, func(t *testing.T, f *fleet) {
		f.start("web-1", nil, executor.Job{Name: "tenants", Schedule: schedule.Every(time.Hour), Shards: 16, Handler: executor.HandlerFunc(
			func(context.Context, *executor.Run) error { return nil })})
		time.Sleep(time.Until(now.Add(time.Minute)))
		r := f.run("explain tenants 7 --at 02:00")
		assert.Equal(t, exit.OK, r.code)
		assert.Contains(t, unwrap(r.out), "only the run history has its outcome")
		assert.Contains(t, unwrap(r.out), "by rota runs tenants --fire 2000-01-01T02:00:00Z --history URL")

		for _, c := range []struct {
			line string
			code int
			has  []string
		}{
			{"explain tenants 7 --at 02:00", exit.NotMet, []string{
				"failed: attempt 1 ended at 2000-01-01T02:00:01Z on web-1 with: 503 Service Unavailable, by the run history.",
				"STOP outcome by the run history, it failed", "by rota retry tenants --fire 2000-01-01T02:00:00Z",
			}},
			{"explain tenants --at 02:00", exit.NotMet, []string{"shards 0-6,8-15", "succeeded: the runs had ended by 2000-01-01T02:00:09Z", "shard 7 ", "503 Service Unavailable"}},
			{"explain tenants 6 --at 01:00", exit.OK, []string{"succeeded: attempt 1 ended at 2000-01-01T01:00:02Z on web-1"}},
			{"explain tenants 6", exit.OK, []string{"succeeded, as attempt 1 by web-1"}},
		} {
			for _, how := range []string{" --history '" + url + "'", ""} {
				f.env["ROTA_HISTORY"] = ""
				if how == "" {
					f.env["ROTA_HISTORY"] = url
				}
				r := f.run(c.line + how)
				assert.Equal(t, c.code, r.code, "%s: %s", c.line, r.err)
				for _, text := range c.has {
					assert.Contains(t, unwrap(r.out), text, c.line)
				}
			}
		}

		f.env["ROTA_HISTORY"] = url + "-damaged"
		require.Equal(t, exit.Usage, f.run("explain tenants 7 --at 02:00").code)
		f.env["ROTA_HISTORY"] = "postgres://kim@127.0.0.1:1/db?sslmode=disable"
		r = f.run("explain tenants 7 --at 02:00")
		assert.Equal(t, exit.OK, r.code, "the records have an answer without it")
		assert.Contains(t, r.err, "the answer is without the history: history postgres://kim@127.0.0.1:1/db: ")
		assert.Contains(t, unwrap(r.out), "only the run history has its outcome")
	})
}
