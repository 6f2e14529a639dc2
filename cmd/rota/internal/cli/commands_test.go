package cli

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/faults"
	"github.com/rota-dev/rota/schedule"
)

// TestExitCodes has command lines for each exit code.
func TestExitCodes(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		incident(f)
		for line, want := range map[string]struct {
			code int
			err  string
		}{
			"jobs":                           {exit.OK, ""},
			"resume rebuild":                 {exit.OK, ""},
			"wait settle --for moved":        {exit.OK, ""},
			"trigger export --shards ''":     {exit.Usage, "--shards is empty: give it a value, or leave it out"},
			"trigger export --shard ''":      {exit.Usage, "--shards is empty"},
			"cancel export --shard '' --yes": {exit.Usage, "--shard is empty"},
			"disable '' --host n-1":          {exit.Usage, `argument 1 of "disable [JOB]" is empty`},
			"pause settle ''":                {exit.Usage, `argument 2 of "pause JOB... | --all" is empty`},
			"jobs ''":                        {exit.Usage, "argument 1"},
			"acts ''":                        {exit.Usage, "argument 1"},
			"next ''":                        {exit.Usage, "argument 1"},
			"disable tenants --shards 1 --instance ''":        {exit.Usage, `"--instance" flag: it has an empty name`},
			"disable --instance a, --host b":                  {exit.Usage, `"--instance" flag: it has an empty name`},
			"disable --instance a --host ''":                  {exit.Usage, `"--host" flag: it has an empty name`},
			"moves --without '' --without web-1":              {exit.Usage, `"--without" flag: it has an empty name`},
			"pause settle --until ''":                         {exit.Usage, "--until is empty"},
			"pause settle --by ''":                            {exit.Usage, "--by is empty"},
			"jobs --context ''":                               {exit.Usage, "--context is empty"},
			"jobs --state ''":                                 {exit.Usage, "--state is empty"},
			"trigger export --param ''":                       {exit.OK, ""},
			"resume backup --reason ''":                       {exit.OK, ""},
			"retry export --fire 01:00 --shard ''":            {exit.Usage, "--shard is empty"},
			"shards export --owner ''":                        {exit.Usage, "--owner is empty"},
			"trigger export --shards 7":                       {exit.Usage, "there is no shard 7 of 1"},
			"override export shards=0":                        {exit.Usage, "shards: 0 is not from 1 on"},
			"override export --clear bogus":                   {exit.Usage, `"bogus" is no field of an override: one of schedule, shards`},
			"override export shards=-2":                       {exit.Usage, "shards"},
			"override export shards=-2 --dry-run":             {exit.Usage, "shards"},
			"override export timeout=-1s":                     {exit.Usage, "timeout"},
			"disable export --shards 99":                      {exit.Usage, "there is no shard 99 of 1"},
			"disable --instance a/b":                          {exit.Usage, "instance"},
			"cancel export --shard 7 --yes":                   {exit.Usage, "there is no shard 7 of 1"},
			"jobs --state sad":                                {exit.Usage, `state is "sad"`},
			"jobs a[":                                         {exit.Usage, "syntax error in pattern"},
			"jobs -o xml":                                     {exit.Usage, `--output is "xml"`},
			"job":                                             {exit.Usage, "0 arguments given, expected: rota job JOB"},
			"jobs a b":                                        {exit.Usage, "2 arguments given, expected: rota jobs [GLOB]"},
			"trigger":                                         {exit.Usage, "0 arguments given, expected: rota trigger JOB"},
			"reset":                                           {exit.Usage, "0 arguments given, expected: rota reset JOB..."},
			"context use":                                     {exit.Usage, "0 arguments given, expected: rota context use NAME"},
			"retry export --fire 2100-01-01T00:00:00Z":        {exit.NotMet, "on record for 2100-01-01T00:00:00Z: it is in the future"},
			"retry settle --fire 2000-01-01T00:20:00.5Z":      {exit.NotMet, "the schedule has no fire at that instant"},
			"disable tenants":                                 {exit.Usage, "name --shards, --instance or --host"},
			"disable --shards 1":                              {exit.Usage, "--shards needs a job"},
			"trigger export --shards x":                       {exit.Usage, `invalid argument "x" for "--shards" flag: "x" is neither a shard nor a range of shards, as in 3,7-9`},
			"trigger export --shards 3,7-":                    {exit.Usage, `invalid argument "3,7-" for "--shards" flag: "7-" is neither`},
			"disable tenants --shards 3-1":                    {exit.Usage, `invalid argument "3-1" for "--shards" flag: the range "3-1" ends before it begins`},
			"cancel tenants --shard -1":                       {exit.Usage, `invalid argument "-1" for "--shard" flag: "-1" is neither`},
			"retry tenants --fire 01:09 --shard 3,,7":         {exit.Usage, `invalid argument "3,,7" for "--shard" flag: "" is neither`},
			"runs tenants --shards x":                         {exit.Usage, `invalid argument "x" for "--shard" flag: "x" is neither`},
			"trigger export --shards 0-200000":                {exit.Usage, "there is no shard 200000: a job has at most 10000, from 0"},
			"cancel tenants --shard 4,3,3 --yes":              {exit.NotMet, "no run is in progress or pending"},
			"wait settle --for lunch":                         {exit.Usage, `--for is "lunch", not one of idle, ok, moved`},
			"next":                                            {exit.Usage, "name a job, or one of --cron"},
			"next settle --cron '* * * * *'":                  {exit.Usage, "a job and a schedule are named"},
			"next --cron '0 25 * * *'":                        {exit.Usage, "cron 0 25 * * *"},
			"next --cron '0 5 * * *' --in Mars":               {exit.Usage, "Mars"},
			"next settle --count 0":                           {exit.Usage, `invalid argument "0" for "-c, --count" flag: it is below 1`},
			"next settle --count 10001":                       {exit.Usage, `for "-c, --count" flag: it is above 10000`},
			"jobs --registry memory":                          {exit.Usage, "the registry memory exists within one process"},
			"jobs --registry consul://a":                      {exit.Usage, "the scheme must be etcd:// or zk://"},
			"jobs --context nosuch":                           {exit.Usage, `there is no context "nosuch"`},
			"context use nosuch":                              {exit.Usage, `there is no context "nosuch"`},
			"context set new":                                 {exit.Usage, `context "new" has no registry`},
			"reset settle":                                    {exit.Usage, "not confirmed, nothing was changed"},
			"explain settle --at lunch":                       {exit.Usage, `--at is "lunch", neither RFC 3339 nor a time of day`},
			"explain settle x":                                {exit.Usage, `shard is "x"`},
			"explain settle 99":                               {exit.Usage, "there is no shard 99 of 3"},
			"explain nosuch":                                  {exit.NoJob, ""},
			"explain invoices":                                {exit.NotMet, ""},
			"explain tenants 3":                               {exit.OK, ""},
			"moves --without nosuch":                          {exit.Usage, `there is no instance "nosuch"`},
			"moves --label zone=a":                            {exit.Usage, "--label needs --with"},
			"moves --with -1":                                 {exit.Usage, "-1 more instances: not from 1 to 1000"},
			"moves --with 1 --label =a":                       {exit.Usage, "labels of the added instances: an empty key"},
			"raise-fences --yes --above 18446744073709551615": {exit.Usage, "greater than 4611686018427387904"},
			"backfill tenants --from 00:00 --to 01:09":        {exit.Usage, "the window has more than 64"},
			"wait settle --for ok --timeout -1s":              {exit.Usage, "--timeout is -1s, below 0"},
			"top --every -1s":                                 {exit.Usage, "--every is -1s, below 0"},
			"next settle --in Mars":                           {exit.Usage, "a job and a schedule are named"},
			"dump -n a//b":                                    {exit.Usage, "empty segment"},
			"dev foo":                                         {exit.Usage, `unknown command "foo" for "rota dev"`},
			"completion foo":                                  {exit.Usage, `unknown command "foo" for "rota completion"`},
			"help foo":                                        {exit.Usage, `unknown command "foo" for "rota"`},
			"help context foo":                                {exit.Usage, `unknown command "foo" for "rota context"`},
			"help context ls":                                 {exit.OK, ""},
			"dev":                                             {exit.OK, ""},
			"demo --registry nope":                            {exit.Usage, `demo failed: --registry: registry "nope": the scheme must be`},
			"demo --kill 7":                                   {exit.Usage, "--kill is 7"},
			"import crontab /nosuch":                          {exit.Usage, "no such file"},
			"moves nosuch":                                    {exit.NoJob, "unknown job"},
			"doctor":                                          {exit.NotMet, ""},
			"job nosuch":                                      {exit.NoJob, "unknown job; rota jobs lists"},
			"job setle":                                       {exit.NoJob, "unknown job; did you mean settle?"},
			"pause settle setle":                              {exit.NoJob, `pause "setle": unknown job; did you mean settle?`},
			"retire settl --yes":                              {exit.NoJob, "unknown job; did you mean settle?"},
			"pause settle nosuch":                             {exit.NoJob, `pause "nosuch": unknown job`},
			"trigger nosuch":                                  {exit.NoJob, "unknown job"},
			"wait nosuch --for ok":                            {exit.NoJob, "unknown job"},
			"shards nosuch":                                   {exit.NoJob, "unknown job"},
			"wait tenants --for idle --timeout 1s":            {exit.NotMet, "tenants after 1s: 1 shard running"},
			"trigger tenants --shards 7 --wait":               {exit.NotMet, "of tenants failed in shard 7: POST"},
			"pause":                                           {exit.Usage, "name jobs, or --all"},
			"pause settle --all":                              {exit.Usage, "--all and names of jobs"},
			"pause settle --for 1h --until 18:00":             {exit.Usage, "--for and --until exclude"},
			"pause settle --until lunch":                      {exit.Usage, `--until is "lunch"`},
			"pause settle --until 1999-01-01":                 {exit.Usage, "the end 1999-01-01T00:00:00Z is not in the future"},
			"pause --all --yes --until 1999-01-01":            {exit.Usage, "the end 1999-01-01T00:00:00Z is not in the future"},
			"pause --schedule settle --for 1h":                {exit.Usage, "--schedule excludes"},
			"resume":                                          {exit.Usage, "name jobs, or --all"},
			"retry tenants":                                   {exit.Usage, "--fire T"},
			"retry settle --fire 01:00":                       {exit.NotMet, "no failed run is on record"},
			"cancel settle --yes":                             {exit.NotMet, "no run is in progress or pending"},
			"cancel settle":                                   {exit.Usage, "not confirmed"},
			"cancel settle --shard 0":                         {exit.Usage, "not confirmed"},
			"forget settle":                                   {exit.Usage, "not confirmed"},
			"forget settle --yes":                             {exit.NotMet, "the job is in use"},
			"forget nosuch --yes":                             {exit.NoJob, "unknown job"},
			"pause --all":                                     {exit.Usage, "not confirmed"},
			"backfill tenants --stop":                         {exit.Usage, "not confirmed"},
			"backfill tenants --from 00:10":                   {exit.Usage, "--from T --to T"},
			"backfill tenants --from 00:10 --to 00:10":        {exit.Usage, "the window is empty"},
			"backfill tenants --from 00:10 --to 00:11 --parallel 0": {exit.Usage, `invalid argument "0" for "--parallel" flag: it is below 1`},
			"backfill tenants --from 00:10 --to 00:10 --time local": {exit.Usage, "the window is empty"},
			"retry tenants --fire noon --time local":                {exit.Usage, `--fire is "noon"`},
			"pause tenants --until noon --time local":               {exit.Usage, `--until is "noon"`},
			"override settle":                           {exit.Usage, "name a field as KEY=VALUE"},
			"override settle shards":                    {exit.Usage, `"shards" is not KEY=VALUE`},
			"override settle shards=many":               {exit.Usage, "not a number"},
			"override settle --clear shards=3":          {exit.Usage, "--clear takes the names"},
			"override settle --file /nosuch":            {exit.Usage, "no such file"},
			"override settle max_attempts=0":            {exit.Usage, "max_attempts is 0, below 1; an empty value, max_attempts=, is the default: 3"},
			"override settle timeout=0s":                {exit.Usage, "timeout is 0s, below 1ms; an empty value, timeout=, is the default: none"},
			"override settle timeout=0 --dry-run":       {exit.Usage, "timeout is 0, below 1ms"},
			"override settle catchup_window=0m":         {exit.Usage, "catchup_window is 0m, below 1ms"},
			"override settle handler=x":                 {exit.Usage, `there is no field "handler"; there are schedule, shards, param, `},
			"override settle misfire=x":                 {exit.Usage, `there is no field "misfire"; is it on_misfire?`},
			"override settle every=5s":                  {exit.Usage, `there is no field "every"; write schedule='every 5s'`},
			"override settle schedule=5s":               {exit.Usage, `write schedule='every 5s'`},
			"override settle 'schedule=*/10 * * * * *'": {exit.Usage, `write schedule='cron */10 * * * * *'`},
			"override settle schedule=lunch":            {exit.Usage, `schedule "lunch"`},
			"shards tenants 99":                         {exit.Usage, "there is no shard 99 of 16"},
			"shards tenants x":                          {exit.Usage, `shard is "x": "x" is neither a shard nor a range`},
			"override nosuch shards=3":                  {exit.NoJob, "unknown job"},
			"acts nosuch":                               {exit.NoJob, "unknown job; rota jobs"},
			"check settle --max-late 1h":                {0, ""},
			"check tenants":                             {1, ""},
			"check invoices":                            {2, ""},
			"check --format xml":                        {3, `--format is "xml"`},
			"check --registry consul://a":               {3, ""},
			"check --nosuch":                            {3, "unknown flag: --nosuch"},
			"check --min-jobs x":                        {3, `invalid argument "x" for "--min-jobs" flag: it is not a whole number`},
			"check --min-jobs -1":                       {3, `invalid argument "-1" for "--min-jobs" flag: it is below 0`},
			"check --min-instances -1":                  {3, `invalid argument "-1" for "--min-instances" flag: it is below 0`},
			"check --max-late -1s":                      {3, "--max-late is -1s, below 0"},
			"check -o json":                             {3, "--output does not apply"},
			"check a b":                                 {3, "2 arguments given, expected: rota check [GLOB]"},
			"check ''":                                  {3, `argument 1 of "check [GLOB]" is empty`},
			"check a[":                                  {3, ""},
		} {
			r := f.run(line)
			assert.Equal(t, want.code, r.code, "%s: %s", line, r.err)
			assert.Contains(t, r.err, want.err, line)
		}
		in := faults.New(1, faults.Rule{Fault: faults.LoseRequest, Ops: faults.Txn})
		f.wrap = func(reg registry.Registry) registry.Registry { return in.Wrap("console", reg) }
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r := f.runContext(ctx, "pause settle", "")
		assert.Equal(t, exit.Unknown, r.code, r.err)
	})
}

// The names of fields that override accepts are those of package coordinator.
func TestOverride_HasTheFieldsOfTheCoordinator(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		op, err := operator.New(f.server.Client("op"), "billing", "default")
		require.NoError(t, err)
		err = op.Override(t.Context(), "settle", operator.Override{Policies: map[string]any{"x": 1}})
		require.ErrorContains(t, err, `there is no policy "x"; there are `)
		_, list, _ := strings.Cut(err.Error(), "there are ")
		want := append(strings.Split(list, ", "), "schedule", "shards", "param", "shard_params")
		_, list, _ = strings.Cut(strings.TrimSpace(f.run("override settle x=1").err), "there are ")
		assert.ElementsMatch(t, want, strings.Split(list, ", "))
	})
}

// shard and shards are the same flag.
func TestShardFlags_HaveBothSpellings(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		incident(f)
		for _, line := range []string{"trigger export --shard 7", "trigger export --shards 7", "disable export --shard 7", "disable export --shards 7"} {
			assert.Contains(t, f.run(line).err, "there is no shard 7 of 1", line)
		}
		for _, line := range []string{"cancel export --shard 0 --yes", "cancel export --shards 0 --yes"} {
			assert.Contains(t, f.run(line).err, "no run is in progress", line)
		}
		assert.Equal(t, "1\n3\n4\n", f.run("shards tenants 1 3-4 -o name").out)
	})
}

// A trigger of a paused job names the pause that it waits for: that of the job, or that of the group.
func TestTrigger_NamesThePauseThatItWaitsFor(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.start("web-1", nil, executor.Job{Name: "poll", Schedule: schedule.OnTrigger(), Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil })})
		assert.Equal(t, "triggered poll: #1\n", f.run("trigger poll").out)
		f.run("pause --all --for 1h --reason deploy --yes")
		r := f.run("trigger poll --wait --wait-timeout 1s")
		assert.Equal(t, "triggered poll: #2\nthe group is paused by kim (deploy) until 2000-01-01T01:00:01Z; the run waits for the resume\n", r.out)
		assert.Equal(t, exit.NotMet, r.code, r.err)
		f.run("resume --all")
		f.run("pause poll")
		assert.Equal(t, "triggered poll: #3\nthe job is paused by kim; the run waits for the resume\n", f.run("trigger poll").out)
		f.run("pause poll --schedule")
		assert.Equal(t, "triggered poll: #4\n", f.run("trigger poll").out, "triggers run")
	})
}

// The note of a request gives the reason why its runs do not begin.
func TestRequests_NameWhatTheyWaitFor(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		instance := f.start("web-1", nil, executor.Job{Name: "poll", Schedule: schedule.Every(time.Hour), Shards: 3, Handler: executor.HandlerFunc(
			func(context.Context, *executor.Run) error { return errors.New("no") })})
		time.Sleep(61 * time.Minute)
		f.run("disable poll --shards 1,2")
		assert.Equal(t, "triggered poll: #1\nshards 1-2 are disabled; their runs wait for rota enable\n", f.run("trigger poll").out)
		assert.Equal(t, "triggered poll: #2\nshard 1 is disabled; its run waits for rota enable\n", f.run("trigger poll --shards 0,1").out)
		assert.Equal(t, "triggered poll: #3\n", f.run("trigger poll --shards 0").out)
		f.run("enable poll --shards 1,2")
		f.run("pause poll")
		const paused = "the job is paused by kim; the run waits for the resume\n"
		assert.Contains(t, f.run("retry poll --fire 01:00 --shards 2").out, ": trigger #4\n"+paused)
		assert.Contains(t, f.run("backfill poll --from 2000-01-01T00:30:00Z --to 2000-01-01T01:01:00Z").out, paused)
		f.run("resume poll")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, instance.Shutdown(ctx))
		assert.Contains(t, f.run("trigger poll").out, "\nno instance is alive; the run waits for the start of one\n")
	})
}

// TestConnect_DeadAddress needs a port at which nothing listens.
func TestConnect_DeadAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	dead := l.Addr().String()
	require.NoError(t, l.Close())
	for _, scheme := range []string{"etcd", "zookeeper"} {
		began := time.Now()
		code, out, errs := execute(t, "jobs", "-n", "a", "--registry", scheme+"://"+dead)
		assert.Equal(t, exit.Failed, code)
		assert.Empty(t, out)
		assert.Contains(t, errs, dead)
		assert.Contains(t, errs, "comes from --registry. Check that it is right")
		assert.Less(t, time.Since(began), 8*time.Second)

		code, out, _ = execute(t, "check", "-n", "a", "--registry", scheme+"://"+dead)
		assert.Equal(t, 3, code)
		assert.True(t, strings.HasPrefix(out, "ROTA UNKNOWN - "), out)
		assert.Equal(t, 1, strings.Count(out, "\n"))
	}
}

func TestConnect_NeedsAddressAndNamespace(t *testing.T) {
	code, _, errs := execute(t, "jobs")
	assert.Equal(t, exit.Usage, code)
	assert.Contains(t, errs, "no registry is named: pass --registry")
	assert.Contains(t, errs, "no namespace is named: pass -n", "both at once")
	code, _, errs = execute(t, "jobs", "--registry", "etcd://a")
	assert.Equal(t, exit.Usage, code)
	assert.Contains(t, errs, "no namespace is named: pass -n")
}

// TestTimeout covers a store that accepts connections and answers nothing.
func TestTimeout(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		defer f.server.Pause()()
		began := time.Now()
		r := f.run("jobs --timeout 2s")
		assert.Equal(t, exit.Failed, r.code)
		assert.Contains(t, r.err, "comes from ROTA_REGISTRY")
		assert.LessOrEqual(t, time.Since(began), 3*time.Second)
		assert.Equal(t, 3, f.run("check").code)
	})
}

func TestVerbs(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		incident(f)
		for _, c := range []struct{ line, out, then, shows string }{
			{"pause settle export", "paused settle\npaused export\n", "jobs --state paused -o name", "backup\nexport\nrebuild\nsettle\n"},
			{"resume settle export", "resumed settle\nresumed export\n", "jobs --state paused -o name", "backup\nrebuild\n"},
			{"pause --schedule settle", "stopped the schedule of settle\n", "jobs --state stopped -o name", "settle\n"},
			{"disable tenants --shards 1-2,5", "disabled shards 1-2,5 for tenants\n", "job tenants", "disabled   shards 1-2,5,9\n"},
			{"enable tenants --shards 9", "enabled shard 9 for tenants\n", "job tenants", "disabled   shards 1-2,5\n"},
			{"disable --instance web-3", "disabled instance web-3 for all jobs\n", "instances", "web-3  n-3   drained  0 "},
			{"disable tenants --host n-2", "disabled host n-2 for tenants\n", "job tenants", "hosts n-2\n"},
			{"reset tenants --yes", "reset tenants\n", "decisions tenants", "reset"},
			{"trigger export -o json", "\"trigger\": 2,\n", "job export", "2 ok"},
		} {
			r := f.run(c.line)
			assert.Equal(t, exit.OK, r.code, r.err)
			assert.Contains(t, r.out, c.out)
			time.Sleep(10 * time.Second) // for the leader
			assert.Contains(t, f.run(c.then).out, c.shows, "after %s", c.line)
		}
	})
}

func TestOverride_ReadsAFile(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		incident(f)
		r := f.runContext(t.Context(), "override settle --file - shards=5", "schedule: every 1h\nshards: 4\nshard_params: {0: hidden}\nretry: {max: 1, initial: 1s, max_interval: 1m, factor: 2}\n")
		require.Equal(t, exit.OK, r.code, r.err)
		assert.Equal(t, "overrides retry, schedule, shard_params, shards of settle\n", r.out)
		r = f.run("job settle -o wide")
		assert.Contains(t, r.out, "shard_params=(set), shards=5\n")
		assert.Contains(t, r.out, "schedule=every 1h")
		assert.NotContains(t, r.out, "hidden")
		assert.NotContains(t, f.run("acts settle").out, "hidden")
		r = f.runContext(t.Context(), "override settle --file -", "shards: many\n")
		assert.Equal(t, exit.Usage, r.code)
		assert.Contains(t, r.err, "shards: the value has another type")
		r = f.runContext(t.Context(), "override settle --file -", "timeout: 0s\n")
		assert.Equal(t, exit.Usage, r.code)
		assert.Contains(t, r.err, "timeout is 0s, below 1ms")
		r = f.runContext(t.Context(), "override settle --file -", "param: [s3cret]\n")
		assert.Equal(t, exit.Usage, r.code)
		assert.NotContains(t, r.err, "s3cret", "parameters may be secret")
		for _, field := range []string{"description", "strategy", "timeout", "on_crash", "on_misfire", "max_attempts", "on_overlap", "catchup_window", "retry", "retry.max", "tracking", "run_on", "pool"} {
			r = f.run("override tenants " + field + "=")
			assert.Equal(t, exit.OK, r.code, "%s: %s", field, r.err)
			require.Equal(t, exit.OK, f.run("override tenants --clear").code)
		}
		assert.Equal(t, exit.Usage, f.run("override tenants shards=").code, "it has no default")
		r = f.run("override tenants param=")
		require.Equal(t, exit.OK, r.code, r.err)
		assert.Contains(t, f.run("job tenants -o wide").out, "param=(set)", "an empty parameter is one")
	})
}

func TestForget(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		incident(f)
		for _, e := range f.members {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_ = e.Shutdown(ctx)
			cancel()
		}
		r := f.runContext(t.Context(), "forget export", "y\n")
		assert.Equal(t, exit.OK, r.code, r.err)
		assert.Equal(t, "forgot export\n", r.out)
		assert.Contains(t, r.err, "This will delete all records of export")
		assert.Equal(t, exit.NoJob, f.run("job export").code)
	})
}

func TestDrain_ReportsTheEndOfTheWait(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		incident(f)
		r := f.run("drain web-2 --wait --wait-timeout 5s") // of which shard 11 of tenants runs without end
		assert.Equal(t, exit.NotMet, r.code, r.err)
		assert.Contains(t, r.err, "it owns shard")
		assert.Contains(t, f.run("instances").out, "web-2  n-2   being drained")
	})
}

func TestWaits_FailIfTheStoreIsAwayAtTheirEnd(t *testing.T) {
	for _, line := range []string{
		"drain web-2 --wait --wait-timeout 1m", "wait tenants --for idle --timeout 1m", "retire export --yes --wait --wait-timeout 1m",
		"trigger tenants --shards 11 --wait --wait-timeout 1m",
	} {
		t.Run(line, func(t *testing.T) {
			inFleet(t, func(t *testing.T, f *fleet) {
				incident(f)
				time.AfterFunc(2*time.Second, func() { f.server.Partition("console") })
				r := f.run(line)
				assert.Equal(t, exit.Failed, r.code, "nobody knows whether the condition holds: %s", r.err)
				assert.Contains(t, r.err, "the store does not answer")
			})
		})
	}
}

func TestDrain_NotesADeadInstanceThatIsOnRecord(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		incident(f)
		for range 2 { // the first drain puts it on record
			r := f.run("drain web-9")
			assert.Equal(t, exit.OK, r.code, r.err)
			assert.Contains(t, r.out+r.err, "no instance web-9 is alive; the drain holds for its start")
		}
		assert.Contains(t, f.run("instances").out, "web-9")
	})
}

func TestVerbs_AskAndRespectProtection(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		incident(f)
		assert.Contains(t, f.runContext(t.Context(), "reset settle", "y\n").out, "reset settle")
		r := f.runContext(t.Context(), "reset settle", "n\n")
		assert.Equal(t, exit.Usage, r.code)
		assert.Contains(t, r.err, "This will reset settle: fires that were claimed ahead of time will run again (billing/default). Continue? [y/N]")

		config := "current: prod\ncontexts: {prod: {registry: \"etcd://store\", protected: true}}\n"
		require.NoError(t, os.WriteFile(f.env["ROTA_CONFIG"], []byte(config), 0o600))
		for _, verb := range []string{
			"pause settle", "resume settle", "trigger export", "reset settle", "disable --host a", "enable --host a",
			"pause --all", "resume --all", "drain web-9", "undrain web-9", "override settle shards=4", "override settle --clear",
			"backfill tenants --from 00:20 --to 00:21", "backfill tenants --stop", "retry tenants --fire 01:09", "cancel tenants", "raise-fences --above 7",
		} {
			r := f.runContext(t.Context(), verb, "y\n")
			assert.Equal(t, exit.Usage, r.code, verb)
			assert.Contains(t, r.err, `context "prod" is protected: repeat with --yes`, verb)
			assert.Equal(t, exit.OK, f.run(verb+" --yes").code, verb)
		}
		assert.Equal(t, exit.OK, f.run("jobs").code, "screens need no --yes")
	})
}

func TestContext(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		assert.Contains(t, f.run("context ls").out, "no contexts; rota context set makes one")
		for _, line := range []string{
			"context set prod --registry etcd://store -n billing --protected --user kim --password-file /run/secret --ca-file /ca",
			"context set test --registry zookeeper://zk/chroot -n other -g small",
			"context set prod -g default",
			"context use test",
		} {
			r := f.run(line)
			require.Equal(t, exit.OK, r.code, r.err)
		}
		assert.Equal(t, "NAME   REGISTRY               NAMESPACE  GROUP    PROTECTED\n"+
			"prod   etcd://store           billing    default  yes\n"+
			"test*  zookeeper://zk/chroot  other      small    no\n", f.run("context ls").out)
		assert.Equal(t, "prod\ntest\n", f.run("context ls -o name").out)
		text, err := os.ReadFile(f.env["ROTA_CONFIG"])
		require.NoError(t, err)
		assert.Contains(t, string(text), "password_file: /run/secret")
		assert.Equal(t, exit.Usage, f.run("context ls -o xml").code)
		r := f.run("context set bad --registry consul://a")
		assert.Equal(t, exit.Usage, r.code)
		again, err := os.ReadFile(f.env["ROTA_CONFIG"])
		require.NoError(t, err)
		assert.Equal(t, string(text), string(again))
	})
}

// TestWatch shows a screen again after a change, and only then; and ends with the context.
func TestWatch(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		incident(f)
		f.wrap = nil
		e := f.members[0]
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan result)
		go func() { ended <- f.runContext(ctx, "jobs settle -w -o jsonl", "") }()
		time.Sleep(10 * time.Second)
		require.NoError(t, e.Operator().Pause(t.Context(), "settle"))
		time.Sleep(10 * time.Second)
		cancel()
		r := <-ended
		assert.Equal(t, exit.OK, r.code, r.err)
		lines := strings.Split(strings.TrimSpace(r.out), "\n")
		assert.Contains(t, lines[0], `"state":"ok"`)
		assert.Contains(t, lines[len(lines)-1], `"state":"paused"`)
		assert.Less(t, len(lines), 6)
		synctest.Wait()
		assert.Zero(t, f.server.Counts("console").Watches)
	})
}

// TestOutage has commands that wait survive an outage of the store.
func TestOutage(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		incident(f)
		in := faults.New(1)
		f.wrap = func(reg registry.Registry) registry.Registry { return in.Wrap("console", reg) }
		ctx, cancel := context.WithCancel(t.Context())
		shown, waited := make(chan result), make(chan result)
		go func() { shown <- f.runContext(ctx, "job settle -w -o name", "") }()
		go func() { waited <- f.runContext(ctx, "wait rebuild --for ok", "") }()
		time.Sleep(10 * time.Second)
		outage := in.Add(faults.Rule{Fault: faults.LoseRequest, Ops: faults.Get})
		time.Sleep(10 * time.Second)
		require.NoError(t, f.members[0].Operator().Resume(t.Context(), "rebuild"))
		time.Sleep(10 * time.Second)
		outage.End()
		r := <-waited
		assert.Equal(t, exit.OK, r.code, r.err)
		assert.Equal(t, "rebuild is ok\n", r.out)
		time.Sleep(10 * time.Second)
		cancel()
		r = <-shown
		assert.Equal(t, exit.OK, r.code)
		assert.Contains(t, r.err, "registry unavailable")
		assert.Greater(t, strings.Count(r.out, "settle\n"), 1)
	})
}

func TestTop(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		incident(f)
		f.wrap = nil
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		r := f.runContext(ctx, "top", "")
		assert.Equal(t, exit.OK, r.code, r.err)
		assert.Contains(t, r.out, "jobs   6, 1 late, 1 failing, 2 paused, 2 ok\n")
		assert.Less(t, strings.Index(r.out, "invoices"), strings.Index(r.out, "tenants"), "the gravest first")
	})
}

func TestCompletion(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		incident(f)
		for line, want := range map[string]string{
			"__complete job ''":                       "backup\nexport\ninvoices\nrebuild\nsettle\ntenants\n",
			"__complete pause settle s":               ":4\n",
			"__complete pause tenants s":              "settle\n",
			"__complete job settle ''":                ":4\n",
			"__complete disable --instance ''":        "web-1\nweb-2\nweb-3\n",
			"__complete shards tenants --owner w":     "web-1\nweb-2\nweb-3\n",
			"__complete jobs --state fail":            "failing\n",
			"__complete tri":                          "trigger\t",
			"__complete jobs --registry consul:// ''": ":1\n",
		} {
			r := f.run(line)
			assert.True(t, strings.HasPrefix(r.out, want), "%s: %s", line, r.out)
		}
		defer f.server.Pause()()
		began := time.Now()
		assert.True(t, strings.HasPrefix(f.run("__complete job ''").out, ":1\n"))
		assert.LessOrEqual(t, time.Since(began), 2*time.Second)
	})
	code, out, _ := execute(t, "completion", "bash")
	assert.Equal(t, exit.OK, code)
	assert.Contains(t, out, "bash completion V2 for rota")
}

func TestVersion(t *testing.T) {
	code, out, _ := execute(t, "version")
	assert.Equal(t, exit.OK, code)
	assert.Regexp(t, `^rota .*, go1\.`, out)
}

// TestRun_Interrupted prints no error for the end by a signal.
func TestRun_Interrupted(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.start("web-1", nil, executor.Job{
			Name: "j", Schedule: schedule.Every(time.Minute), Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil }),
		})
		require.NoError(t, f.members[0].Operator().Pause(t.Context(), "j"))
		time.Sleep(time.Second) // for the leader
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, interrupt)
		r := f.runContext(ctx, "wait j --for ok", "")
		assert.Equal(t, exit.Failed, r.code)
		assert.Empty(t, r.err)
	})
}

func TestNext_OfAJobThatFollows(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		ok := executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil })
		f.start("web-1", nil,
			executor.Job{Name: "settle", Schedule: schedule.Every(time.Minute), Handler: ok},
			executor.Job{Name: "report", Schedule: schedule.AfterJob("settle"), Handler: ok})
		r := f.run("next report")
		assert.Equal(t, exit.OK, r.code, r.err)
		assert.Contains(t, r.out, "after settle\nno fires\n\nThe job follows others: it fires when their fires have ended.\n")
		time.Sleep(2 * time.Minute)
		r = f.run("jobs report -o jsonl")
		assert.Contains(t, r.out, `"last_fire":"2000-01-01T00:02:00Z"`)
		assert.Contains(t, r.out, `"state":"ok"`)
		assert.Contains(t, f.run("dump").out, "groups/default/ends/~web-1.")
	})
}

func TestDisable_NotesWhatDoesNotExist(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		incident(f)
		for line, want := range map[string]string{
			"disable tenants --shards 3":                 "disabled shard 3 for tenants\n",
			"enable tenants --shards 3,99":               "tenants has the shards 0 to 15\n",
			"disable --instance web-1 --instance web-9":  "no instance web-9 is alive; this holds for its start. Alive: web-1, web-2, web-3\n",
			"enable tenants --instance web-9":            "no instance web-9 is alive; this holds for its start. Alive: web-1, web-2, web-3\n",
			"disable tenants --host n-9 --instance none": "no instance is alive on host n-9; this holds for its next instance. Alive: ",
			"enable --host n-9":                          "no instance is alive on host n-9; this holds for its next instance. Alive: ",
		} {
			r := f.run(line)
			assert.Equal(t, exit.OK, r.code, line)
			assert.Contains(t, r.out, want, line)
		}
	})
}
