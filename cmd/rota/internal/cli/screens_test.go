package cli

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/schedule"
)

var update = flag.Bool("update", false, "write the screens in testdata and the blocks of the page")

// screens are the command lines whose output is in testdata, by file name.
var screens = map[string]string{
	"jobs":            "jobs",
	"jobs-late":       "jobs --state late",
	"jobs-glob":       "jobs '*e*' --time utc",
	"jobs-wide":       "jobs -o wide",
	"jobs-json":       "jobs inv* -o json",
	"jobs-yaml":       "jobs inv* -o yaml",
	"jobs-jsonl":      "jobs --state paused -o jsonl",
	"jobs-name":       "jobs -o name",
	"job":             "job tenants",
	"job-settle":      "job settle",
	"job-settle-json": "job settle -o json",
	"job-unowned":     "job invoices",
	"job-json":        "job tenants -o json",
	"shards":          "shards tenants",
	"shards-owner":    "shards tenants --owner web-3",
	"instances":       "instances",
	"instances-wide":  "instances -o wide",
	"instances-json":  "instances -o json",
	"next":            "next settle --count 3",
	"next-cron":       "next --cron '30 2 * * 1-5' --in Europe/Berlin --count 3",
	"next-quartz":     "next --quartz '0 0 3 L * ?' --count 2",
	"next-paused":     "next rebuild --count 1",
	"decisions":       "decisions tenants",
	"decisions-all":   "decisions",
	"check":           "check",
	"check-prom":      "check --format prometheus",
	"check-json":      "check invoices --format json",
	"fires":           "fires tenants --since 5m",
	"runs":            "runs tenants",
	"logs":            "logs tenants",
	"jobs-empty":      "jobs -g defualt",
	"instances-empty": "instances -n biling",
	"top":             "top",
	"explain":         "explain invoices --at 01:00",
	"explain-paused":  "explain rebuild",
	"explain-job":     "explain tenants",
	"explain-shard":   "explain tenants 3 --time utc",
	"explain-unknown": "explain setle",
	"explain-json":    "explain tenants 7 -o json",
	"moves":           "moves --without web-2",
	"moves-with":      "moves invoices --with 2 --label gpu=yes",
	"moves-json":      "moves invoices --with 1 --label gpu=yes -o json",
	"doctor":          "doctor",
	"doctor-json":     "doctor -o json",
	"wait-idle":       "wait tenants --for idle --timeout 1s",
	"trigger-wait":    "trigger export --wait",
	"disable-host":    "disable --host n-3",
	"instances-after": "instances",
	"enable-host":     "enable --host n-3",
	"acts":            "acts rebuild",
	"acts-json":       "acts tenants -o json",
	"job-paused":      "job rebuild",
	"retry":           "retry tenants --fire 01:09",
	"cancel":          "cancel tenants --shard 11 --yes",
	"cancel-none":     "cancel export --yes",
	"backfill-dry":    "backfill rebuild --from 00:20 --to 01:00 --dry-run",
	"backfill":        "backfill tenants --from 00:20 --to 00:23 --parallel 2",
	"backfill-json":   "backfill tenants --from 00:20 --to 00:21 -o json",
	"backfill-stop":   "backfill tenants --stop --yes",
	"override-dry":    "override settle 'schedule=cron 0 4 * * * in Asia/Shanghai' shards=4 timeout=2h --dry-run",
	"override":        "override settle shards=4 timeout=2h param=hidden --reason 'slow bank'",
	"override-more":   "override settle max_attempts=5 run_on.zone=a",
	"job-overridden":  "job settle",
	"override-clear":  "override settle --clear shards param run_on",
	"override-back":   "override settle --clear",
	"pause-until":     "pause settle --until 18:00 --reason 'bank holiday'",
	"pause-all":       "pause --all --for 2h --reason deploy --by lee --yes",
	"jobs-all-paused": "jobs",
	"job-all-paused":  "job rebuild",
	"resume-all":      "resume --all",
	"trigger-paused":  "trigger settle",
	"drain":           "drain web-3 --wait",
	"drain-missing":   "drain web-9",
	"undrain-missing": "undrain web-9",
	"acts-group":      "acts",
	"undrain":         "undrain web-3",
	"forget":          "forget rebuild --yes",
}

// order is that of commands that change something or take time, after those that do not.
var order = []string{
	"top", "wait-idle", "trigger-wait", "disable-host", "instances-after", "enable-host",
	"retry", "cancel", "cancel-none", "backfill-dry", "backfill", "backfill-json", "backfill-stop", "override-dry", "override", "override-more",
	"job-overridden", "override-clear", "override-back", "pause-until", "pause-all", "jobs-all-paused", "job-all-paused", "resume-all",
	"drain", "acts-group", "undrain", "forget", "trigger-paused", "drain-missing", "undrain-missing",
}

func TestScreens(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		incident(f)
		f.env["ROTA_HISTORY"] = putHistory(t, time.Now().Add(time.Hour-12*time.Second), time.Minute)
		for name, line := range screens {
			if !slices.Contains(order, name) {
				f.compareScreen(t, name, line)
			}
		}
		for _, name := range order {
			time.Sleep(time.Second) // for the leader
			f.compareScreen(t, name, screens[name])
		}
	})
}

// TestExplain_OfATriggeredRunThatFailed follows the command that explain prints for a job without a schedule.
func TestExplain_OfATriggeredRunThatFailed(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.wrap = func(reg registry.Registry) registry.Registry { return steady{reg} }
		fails := true
		f.start("web-1", nil, executor.Job{Name: "reindex", Schedule: schedule.OnTrigger(), Shards: 2, Handler: executor.HandlerFunc(func(_ context.Context, r *executor.Run) error {
			if fails && r.Shard == 1 {
				return errors.New("search-2: disk full")
			}
			return nil
		})})
		require.Zero(t, f.run("trigger reindex").code)
		time.Sleep(time.Minute)
		f.compareScreen(t, "explain-triggered", "explain reindex")
		fails = false
		_, command, found := strings.Cut(f.run("explain reindex 1").out, "by  rota ")
		require.True(t, found)
		require.Zero(t, f.run(strings.TrimSpace(command)).code)
		time.Sleep(time.Second)
		assert.Equal(t, exit.OK, f.run("explain reindex").code)
	})
}

// compareScreen compares what a command prints with a file of testdata.
func (f *fleet) compareScreen(t *testing.T, name, line string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	if line == "top" {
		time.AfterFunc(time.Second, cancel) // the first screen
	}
	defer cancel()
	r := f.runContext(ctx, line, "")
	// The target of the command, which goes to stderr, comes first on a terminal.
	got := "$ rota " + line + "\n" + r.out + r.err
	if head, rest, found := strings.Cut(r.err, "\n"); found && strings.HasPrefix(head, "# ") {
		got = "$ rota " + line + "\n" + head + "\n" + r.out + rest
	}
	if r.code != exit.OK {
		got += "exit code " + string(rune('0'+r.code)) + "\n"
	}
	compareFile(t, name, got)
}

// packageDir is the working directory of tests that do not change it.
var packageDir, _ = os.Getwd()

// compareFile compares a text with a file of testdata.
func compareFile(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join(packageDir, "testdata", name+".txt")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), got, "read the difference; if it is meant: go test ./internal/cli -update")
}

func TestScreens_FitTheWidth(t *testing.T) {
	all := maps.Clone(screens)
	for _, r := range []string{"stuck-jobs", "stuck-explain", "poison-job", "unowned-explain", "upgrade-doctor", "clock-ahead-job", "explain-triggered", "define", "define-dry", "definitions", "kinds", "delete", "define-file", "define-file-dry", "define-file-refused", "define-prune-dry", "define-prune", "define-past"} {
		all[r] = ""
	}
	for name, line := range all {
		text, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
		require.NoError(t, err)
		if strings.Contains(line, "-o ") || strings.Contains(line, "--format") || strings.HasPrefix(line, "dump") || strings.HasPrefix(line, "check") {
			continue
		}
		for l := range strings.Lines(string(text)) {
			assert.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(l, "\n")), 100, "%s: %s", name, l)
		}
	}
}

// TestScreens_JSON parses JSON with a version, and finds no null in it.
func TestScreens_JSON(t *testing.T) {
	for name, line := range screens {
		if !strings.HasSuffix(line, "json") {
			continue
		}
		text, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
		require.NoError(t, err)
		_, body, _ := strings.Cut(string(text), "\n")
		body, _, _ = strings.Cut(body, "\nexit code")
		var v map[string]any
		require.NoError(t, json.Unmarshal([]byte(body), &v), name)
		assert.EqualValues(t, 1, v["version"], name)
		assert.NotContains(t, body, "null", name)
	}
}

const page = operating + "command.md"

var block = regexp.MustCompile("(?s)<!-- screen ([a-z-]+) -->\n```text\n(.*?)```\n")

// TestPage compares the screens of the pages with those of testdata. With -update it has to run after
// TestScreens, TestExplain, TestRunbooks and TestBackup.
func TestPage(t *testing.T) {
	for page, least := range map[string]int{page: 10, operating + "runbooks.md": 15, operating + "upgrade.md": 1, operating + "backup.md": 1} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		shown := map[string]bool{}
		next := block.ReplaceAllStringFunc(string(text), func(b string) string {
			name := block.FindStringSubmatch(b)[1]
			shown[name] = true
			want, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
			require.NoError(t, err)
			return "<!-- screen " + name + " -->\n```text\n" + string(want) + "```\n"
		})
		assert.GreaterOrEqual(t, len(shown), least, page)
		assert.Equal(t, strings.Count(next, "<!-- screen "), len(block.FindAllString(next, -1)), "%s: a block is not complete", page)
		if *update {
			require.NoError(t, os.WriteFile(page, []byte(next), 0o644))
			continue
		}
		assert.Equal(t, next, string(text), "if the change is meant: go test ./internal/cli -update")
	}
}

// TestPage_HasEveryCommand compares the page with the help.
func TestPage_HasEveryCommand(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	_, help, _ := execute(t, "--help")
	for _, m := range regexp.MustCompile(`(?m)^  ([a-z]+) +[A-Z]`).FindAllStringSubmatch(help, -1) {
		if m[1] != "help" {
			assert.True(t, strings.Contains(string(text), "`rota "+m[1]), "the page has no command %s", m[1])
		}
	}
}
