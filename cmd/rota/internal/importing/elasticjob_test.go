package importing

import (
	"bytes"
	"context"
	"encoding/json"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	v2 "github.com/rota-dev/rota/cmd/rota/internal/importing/imported/v2"
	v3 "github.com/rota-dev/rota/cmd/rota/internal/importing/imported/v3"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/handler"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// readTestTree returns the records of a file.
func readTestTree(t *testing.T, file string) (*node, map[string]string) {
	t.Helper()
	var records map[string]string
	require.NoError(t, yaml.Unmarshal([]byte(readTestFile(t, file)), &records))
	root := &node{}
	for path, value := range records {
		root.set(path, value)
	}
	return root, records
}

func convertTestTree(t *testing.T, file string) document {
	t.Helper()
	root, _ := readTestTree(t, file)
	d, err := convertElasticJob(root, elasticJobOptions{source: "the namespace billing", namespace: "billing", startPaused: true})
	require.NoError(t, err)
	return d
}

func TestConvertElasticJob_WritesAJobsFile(t *testing.T) {
	for _, file := range []string{"testdata/elasticjob-2", "testdata/elasticjob-3"} {
		requireGolden(t, file+".jobs.yaml", writeJobsFile(convertTestTree(t, file+".yaml")))
	}
}

// The Go files are packages that this test imports, so they compile.
func TestConvertElasticJob_WritesGo(t *testing.T) {
	for version, written := range map[string][]executor.Job{"2": v2.Jobs(), "3": v3.Jobs()} {
		d := convertTestTree(t, "testdata/elasticjob-"+version+".yaml")
		text, err := writeGoFile(d, "jobs")
		require.NoError(t, err)
		requireGolden(t, "imported/v"+version+"/jobs.go", text)

		require.Len(t, written, len(d.jobs))
		for i, j := range d.jobs {
			got := written[i]
			assert.Equal(t, j.name, got.Name)
			assert.Equal(t, j.description, got.Description)
			assert.Equal(t, j.param, got.Param)
			assert.Equal(t, max(j.shards, 1), max(got.Shards, 1))
			if len(j.shardParams) > 0 {
				assert.Equal(t, j.shardParams, got.ShardParams)
			}
			if want := j.schedule; want.text == "" || want.dropped {
				assert.Equal(t, schedule.OnTrigger(), got.Schedule)
			} else {
				assert.True(t, strings.HasPrefix(got.Schedule.String(), "quartz "+want.text), got.Schedule.String())
			}
			assert.Equal(t, j.startPaused, got.StartPaused)
			assert.Equal(t, j.skipMissed, got.OnMisfire == executor.SkipMissed)
			assert.Equal(t, j.skipOverlapping, got.OnOverlap == executor.SkipOverlapping)
			assert.Equal(t, j.countAsFailed, got.OnCrash == executor.CountAsFailed)
			assert.Equal(t, j.trackClaims, got.Tracking == executor.TrackClaims)
			assert.Equal(t, j.strategy, got.Strategy)
			assert.Equal(t, j.maxRunning, got.MaxRunning)
		}
	}
}

// Only the packages that the code uses are imported, whatever its comments and strings mention.
func TestWriteGoFile_ImportsWhatItUses(t *testing.T) {
	talk := "in time. fmt.Println, http.Get, context.Background, handler.Command"
	for _, c := range []struct {
		work    work
		imports []string
	}{
		{work{class: class{name: talk}}, []string{"context", "fmt", executorPath}},
		{work{argv: []string{"a"}}, []string{executorPath, handlerPath}},
		{
			work{request: &request{method: "PURGE", timeout: time.Second}},
			[]string{"time", executorPath, handlerPath},
		},
	} {
		text, err := writeGoFile(document{jobs: []job{{name: talk, description: talk, notes: []string{talk}, work: c.work}}}, "p")
		require.NoError(t, err)
		file, err := parser.ParseFile(token.NewFileSet(), "", text, parser.ImportsOnly)
		require.NoError(t, err)
		var got []string
		for _, i := range file.Imports {
			got = append(got, strings.Trim(i.Path.Value, `"`))
		}
		assert.Equal(t, c.imports, got)
	}
}

// A handler that is missing makes Register fail with the name of the Java class, and a run too.
// Jobs whose work is known are accepted.
func TestConvertElasticJob_MissingHandlersAreRefused(t *testing.T) {
	reg := memory.New().Client("a")
	defer reg.Close(context.Background())
	ex, err := executor.New(reg, "billing", executor.Options{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	missing := map[string]string{
		"settle": "the Java class com.example.Settle", "orders": "the Java data flow com.example.Orders", "old": "the Java class com.example.Old",
		"stream": "the Java data flow com.example.Orders", "once": "the Java class com.example.Once$Inner", "2nd-clean": "the Java class com.example.Clean",
	}
	seen := 0
	for _, j := range append(v2.Jobs(), v3.Jobs()...) {
		j.Shards = min(j.Shards, maxShards)
		want, ok := missing[j.Name]
		if !ok {
			assert.NoError(t, ex.Register(j), j.Name)
			continue
		}
		seen++
		err := ex.Register(j)
		assert.ErrorIs(t, err, executor.ErrInvalidJob)
		assert.ErrorContains(t, err, "write the handler that does the work of "+want)
		err = j.Handler.Handle(t.Context(), &executor.Run{})
		assert.ErrorContains(t, err, want)
		assert.ErrorAs(t, err, new(*executor.PermanentError))
	}
	assert.Equal(t, len(missing)+1, seen) // settle is in both
}

// Scripts receive the arguments that Elastic-Job passes, and HTTP servers the header.
func TestConvertElasticJob_PassesTheShardingContext(t *testing.T) {
	byName := map[string]executor.Job{}
	for _, j := range v3.Jobs() {
		byName[j.Name] = j
	}
	run := &executor.Run{RunInfo: executor.RunInfo{
		ID: "echo/1/2026-01-02T03:04:05Z/1", Job: "echo", Shard: 1, Shards: 2, Param: `a=1, "b"`, ShardParam: "x", FireTime: time.Unix(0, 0),
	}}
	context := `{"jobName":"echo","taskId":"echo/1/2026-01-02T03:04:05Z/1","shardingTotalCount":2,` +
		`"jobParameter":"a=1, \"b\"","shardingItem":1,"shardingParameter":"x"}`
	var logged bytes.Buffer
	cmd := byName["echo"].Handler.(*handler.Cmd)
	cmd.Logger = slog.New(slog.NewJSONHandler(&logged, nil))
	require.NoError(t, cmd.Handle(t.Context(), run))
	var line struct{ Line string }
	require.NoError(t, json.Unmarshal(logged.Bytes(), &line))
	assert.Equal(t, "one two {{.Names}} $HOME "+context, line.Line)

	var got *http.Request
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
	}))
	defer server.Close()
	for _, j := range convertTestTree(t, "testdata/elasticjob-3.yaml").jobs {
		if r := j.work.request; j.name == "poll" {
			h := handler.HTTP(handler.Request{URL: server.URL, Method: r.method, Header: r.header, Body: r.body})
			require.NoError(t, h.Handle(t.Context(), run))
		}
	}
	require.NotNil(t, got)
	assert.Equal(t, context, got.Header.Get("shardingContext"))
	assert.Equal(t, "application/json", got.Header.Get("Content-Type"))
	assert.Equal(t, `{"a": "{{b}}"}`, string(body))
}

func TestConvertElasticJob_PoliciesAndItemsAtTheirEdges(t *testing.T) {
	for name, c := range map[string]struct {
		config      string
		trackClaims bool
		countFailed bool
	}{
		"a YAML configuration without monitorExecution, which is false then": {"", true, false},
		"neither monitorExecution nor failover":                              {"monitorExecution: false\nfailover: false", true, false},
		"failover alone":                                                     {"monitorExecution: false\nfailover: true", true, false},
		"monitorExecution alone":                                             {"monitorExecution: true", false, true},
		"both":                                                               {"monitorExecution: true\nfailover: true", false, false},
	} {
		root := &node{}
		root.set("a/config", "jobName: a\ncron: 0/5 * * * * ?\nshardingTotalCount: 2\nshardingItemParameters: 0=x,1=y,2=z\nprops: {script.command.line: echo}\n"+c.config)
		d, err := convertElasticJob(root, elasticJobOptions{})
		require.NoError(t, err, name)
		assert.Equal(t, c.trackClaims, d.jobs[0].trackClaims, name)
		assert.Equal(t, c.countFailed, d.jobs[0].countAsFailed, name)
		assert.Equal(t, map[int]string{0: "x", 1: "y"}, d.jobs[0].shardParams, "items below the number of shards")
	}
}

func TestConvertElasticJob_ReportsAllMistakes(t *testing.T) {
	root := &node{}
	for job, config := range map[string]string{
		"a": "cron: [",
		"b": "- 1",
		"c": "shardingTotalCount: 0",
		"d": "shardingTotalCount: many\nfailover: perhaps\nmaxTimeDiffSeconds: x",
		"e": "shardingTotalCount: 1\nshardingItemParameters: 0",
		"f": "{\"shardingTotalCount\":1,\"jobType\":\"SCRIPT\",\"scriptCommandLine\":\"a 'b\"}",
		"g": "shardingTotalCount: 1",
		"h": " ",
		"j": "# nothing",
		"i": "shardingTotalCount: 1\nprops: {http.connect.timeout.milliseconds: soon, http.uri: a}",
	} {
		root.set(job+"/config", config)
	}
	_, err := convertElasticJob(root, elasticJobOptions{})
	require.Error(t, err)
	for i, want := range []string{
		"job a: ",
		"job b: the configuration is no mapping",
		"job c: shardingTotalCount is 0, below 1",
		`job d: shardingTotalCount is "many", not a number`,
		`failover is "perhaps", not true or false`,
		"the configuration names no class, and is no script or HTTP job",
		`maxTimeDiffSeconds is "x", not a number`,
		"job e: shardingItemParameters: ",
		"job f: the command of the script \"a 'b\": a quotation mark is not closed",
		"job g: the configuration names no class, and is no script or HTTP job",
		"job h: the configuration is empty",
		"job j: the configuration is empty",
		`job i: http.connect.timeout.milliseconds is "soon", not a number`,
	} {
		assert.ErrorContains(t, err, want, i)
	}
	_, err = convertElasticJob(root, elasticJobOptions{source: "the namespace x", jobs: []string{"z*"}})
	assert.EqualError(t, err, "the namespace x has no jobs of Elastic-Job")
}

func TestConvertElasticJob_ConvertsOnlyTheNamedJobs(t *testing.T) {
	root, _ := readTestTree(t, "testdata/elasticjob-3.yaml")
	d, err := convertElasticJob(root, elasticJobOptions{jobs: []string{"s*", "poll"}})
	require.NoError(t, err)
	var names []string
	for _, j := range d.jobs {
		names = append(names, j.name)
	}
	assert.Equal(t, []string{"poll", "settle", "stream"}, names)
	assert.False(t, d.jobs[1].startPaused)
	assert.True(t, d.jobs[2].startPaused, "disabled on all servers")
}

func TestConvertTimeZone(t *testing.T) {
	for id, want := range map[string]string{
		"GMT": "UTC", "GMT+0": "UTC", "GMT+8": "Etc/GMT-8", "GMT+08": "Etc/GMT-8", "GMT+08:00": "Etc/GMT-8", "GMT+0800": "Etc/GMT-8",
		"GMT-05:00": "Etc/GMT+5", "GMT+14:00": "Etc/GMT-14", "Asia/Shanghai": "Asia/Shanghai",
	} {
		zone, ok := convertTimeZone(id)
		assert.True(t, ok, id)
		assert.Equal(t, want, zone)
		assert.NoError(t, checkTimezone(zone))
	}
	for _, id := range []string{"GMT+05:30", "GMT+15", "GMT-13", "Mars", "GMT+8:0:0"} {
		_, ok := convertTimeZone(id)
		assert.False(t, ok, id)
	}
	fires, err := schedule.Quartz("0 0 3 * * ?").In("Etc/GMT-8").Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), 1)
	require.NoError(t, err)
	assert.Equal(t, time.Date(2026, 1, 1, 19, 0, 0, 0, time.UTC), fires[0].UTC())
}

func TestSplitCommand(t *testing.T) {
	for line, want := range map[string][]string{
		`a  b `:          {"a", "b"},
		`a 'b c' "d'e"f`: {"a", "b c", "d'ef"},
		`a ""`:           {"a", ""},
		`C:\x "C:\y z"`:  {`C:\x`, `C:\y z`},
	} {
		words, err := splitCommand(line)
		require.NoError(t, err)
		assert.Equal(t, want, words)
	}
	for _, line := range []string{"", "  ", `a "b`, `'`} {
		_, err := splitCommand(line)
		assert.Error(t, err, line)
	}
}

func TestFunctionName_IsUniqueAndValid(t *testing.T) {
	used := map[string]int{"Jobs": 1}
	for _, c := range [][2]string{
		{"settle", "settleJob"},
		{"Settle", "settleJob2"},
		{"poll-tenants", "pollTenantsJob"},
		{"2nd", "job2ndJob"},
		{"日报", "日报Job"},
		{"///", "job"},
		{"com.example.DailyJob", "comExampleDailyJob"},
		{"Job", "job2"},
	} {
		assert.Equal(t, c[1], functionName(used, c[0]))
	}
}

func TestParseElasticJobAddress(t *testing.T) {
	a, err := parseElasticJobAddress("zookeeper://a,b:2182,[::1]:2183/x/y")
	require.NoError(t, err)
	assert.Equal(t, elasticJobAddress{servers: []string{"a:2181", "b:2182", "[::1]:2183"}, namespace: "x/y"}, a)
	for _, text := range []string{"a:2181/x", "zk://a", "zk://a/", "zk:///x", "zk://a,/x", "zk://u:p@a/x", "etcd://a/x", "zk://a/x//y"} {
		_, err := parseElasticJobAddress(text)
		assert.Error(t, err, text)
	}
}
