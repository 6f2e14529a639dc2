package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
)

// badDefinitions are arguments of define, after a name and a kind that are right, and what the error names.
var badDefinitions = []struct{ args, field string }{
	{"--schedule 'cron 0 25 * * *'", "25"},
	{"--schedule 'cron 0 3 * *'", "0 3 * *"},
	{"--schedule 'every 0s'", "every 0s"},
	{"--schedule 'every soon'", "every soon"},
	{"--schedule 'at noon'", "at noon"},
	{"--schedule sometimes", "sometimes"},
	{"--schedule 'cron @daily in Mars'", "Mars"},
	{"--cron '61 * * * *'", "61"},
	{"--cron @fortnightly", "fortnightly"},
	{"--cron @daily --in Mars/Base", "--in"},
	{"--every 1ns", "1ns"},
	{"--every -1h", "--every"},
	{"--every soon", "--every"},
	{"--at noon", "--at"},
	{"--at 1999-12-31T00:00:00Z", "schedule"},
	{"--at 2500-01-01T00:00:00Z", "schedule"},
	{"--every 1h --shards 0", "--shards"},
	{"--every 1h --shards 10001", "--shards"},
	{"--every 1h --shards two", "--shards"},
	{"--every 1h --kind-revision -1", "--kind-revision"},
	{"--every 1h --kind-revision 9", "kind_revision"},
	{"--every 1h --delete-after 0s", "--delete-after"},
	{"--every 1h --delete-after forever", "--delete-after"},
	{"--every 1h --if-revision 0", "--if-revision"},
	{"--every 1h --param " + strings.Repeat("x", 8193), "param"},
	{"--every 1h --shards 2 shard_params.7=x", "shard_params"},
	{"--every 1h --shards 2 shard_params.one=x", "shard_params"},
	{"--every 1h description=" + strings.Repeat("x", 1001), "description"},
	{"--every 1h timeout=-1s", "timeout"},
	{"--every 1h timeout=soon", "timeout"},
	{"--every 1h on_crash=panic", "on_crash"},
	{"--every 1h on_misfire=never", "on_misfire"},
	{"--every 1h 'on_misfire=run all 0'", "on_misfire"},
	{"--every 1h max_attempts=-1", "max_attempts"},
	{"--every 1h max_attempts=many", "max_attempts"},
	{"--every 1h on_overlap=queue", "on_overlap"},
	{"--every 1h catchup_window=-1h", "catchup_window"},
	{"--every 1h retry.initial=10s", "retry"},
	{"--every 1h retry.max=3 retry.factor=0.5", "retry"},
	{"--every 1h retry.max=3 retry.jitter=2", "retry"},
	{"--every 1h retry.most=3", "retry"},
	{"--every 1h tracking=some", "tracking"},
	{"--every 1h tracking=claims retry.max=3", "retry"},
	{"--schedule 'fixed delay 1m' tracking=claims", "tracking"},
	{"--schedule always on_overlap=skip", "on_overlap"},
	{"--every 1h colour=red", "colour"},
}

func TestDefine_NamesTheFieldOfEachBadDefinition(t *testing.T) {
	assert.GreaterOrEqual(t, len(badDefinitions), 40)
	inFleet(t, func(t *testing.T, f *fleet) {
		offerReports(t, f)
		for _, c := range badDefinitions {
			r := f.run("define acme/bad --kind report " + c.args)
			shown := c.args[:min(len(c.args), 80)]
			assert.Contains(t, []int{exit.Usage, exit.NotMet}, r.code, "%s: %s", shown, r.err)
			assert.Contains(t, r.err, c.field, shown)
			assert.Empty(t, r.out, shown)
			first, _, _ := strings.Cut(r.err, "\n")
			assert.Less(t, len(first), 500, shown)
		}
		for _, name := range []string{"''", strings.Repeat("x", 101), "' spaced '"} {
			r := f.run("define " + name + " --kind report --every 1h")
			assert.Equal(t, exit.Usage, r.code, "%s: %s", name, r.err)
		}
		assert.Equal(t, "no jobs are defined\n", f.run("definitions").out)
	})
}
