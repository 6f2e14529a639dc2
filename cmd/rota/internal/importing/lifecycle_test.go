package importing

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lifecycleCalls are the methods of Elastic-Job's lifecycle interfaces.
var lifecycleCalls = map[string][]string{
	"JobConfigurationAPI":   {"getJobConfiguration", "updateJobConfiguration", "removeJobConfiguration"},
	"JobOperateAPI":         {"trigger", "disable", "enable", "shutdown", "remove", "dump"},
	"ShardingOperateAPI":    {"disable", "enable"},
	"JobStatisticsAPI":      {"getJobsTotalCount", "getAllJobsBriefInfo", "getJobBriefInfo", "getJobsBriefInfo"},
	"ServerStatisticsAPI":   {"getServersTotalCount", "getAllServersBriefInfo"},
	"ShardingStatisticsAPI": {"getShardingInfo"},
}

// lifecycleVerbs are the commands that the page names for them.
var lifecycleVerbs = []string{
	"disable", "drain", "dump", "enable", "forget", "instances", "job", "jobs", "override", "pause", "reset", "resume", "retire", "shards", "trigger",
}

var (
	lifecycleRow = regexp.MustCompile("(?m)^\\| `(\\w+API)\\.([^|]*)\\| (.*) \\|$")
	code         = regexp.MustCompile("`([^`]+)`")
	verb         = regexp.MustCompile("`rota ([a-z]+)[ `]")
)

func TestPage_HasAVerbForEachLifecycleCall(t *testing.T) {
	_, section, found := strings.Cut(readTestFile(t, "../../../../docs/elastic-job.md"), "\n### Lifecycle calls\n")
	require.True(t, found)
	calls, verbs := map[string]map[string]bool{}, map[string]bool{}
	for _, row := range lifecycleRow.FindAllStringSubmatch(section, -1) {
		named := verb.FindAllStringSubmatch(row[3], -1)
		assert.NotEmpty(t, named, row[0])
		for _, v := range named {
			verbs[v[1]] = true
		}
		if calls[row[1]] == nil {
			calls[row[1]] = map[string]bool{}
		}
		for _, c := range code.FindAllStringSubmatch("`"+row[2], -1) {
			calls[row[1]][c[1]] = true
		}
	}
	for api, methods := range lifecycleCalls {
		assert.ElementsMatch(t, methods, slices.Collect(maps.Keys(calls[api])), api)
	}
	assert.Len(t, calls, len(lifecycleCalls))
	assert.ElementsMatch(t, lifecycleVerbs, slices.Collect(maps.Keys(verbs)))
}
