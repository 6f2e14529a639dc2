package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/schedule"
)

// operating is the directory of the pages for people on call.
const operating = "../../../../docs/operating/"

// runbooks are the failures of runbooks.md and of other pages, with the jobs of their fleets. Each has the screens and the
// log lines of the page.
var runbooks = []struct {
	name string
	jobs func(instance string) []executor.Job
	play func(*testing.T, *night)
}{
	{"the store is down", everyMinute, func(t *testing.T, n *night) {
		n.startThree()
		resume := n.server.Pause()
		time.Sleep(3 * time.Minute)
		n.logged(t, "store-down-log", "web-1", "store unreachable", "session lost")
		n.screen(t, "store-down-jobs", "jobs")
		n.screen(t, "store-down-check", "check")
		resume()
		time.Sleep(time.Minute)
		n.logged(t, "store-up-log", "web-1", "joined again")
		assert.Contains(t, n.processes[n.leader(t)].log.String(), "msg=leading")
		n.do(t, "wait tenants --for ok", "doctor", "jobs --state late")
		n.screen(t, "store-up-check", "check")
	}},
	{"the store is full", everyMinute, func(t *testing.T, n *night) {
		n.startThree()
		free := n.server.Fill()
		time.Sleep(7 * time.Minute)
		n.logged(t, "store-full-log", "web-1", "claims not written; trying again")
		n.screen(t, "store-full-jobs", "jobs")
		n.screen(t, "store-full-explain", "explain tenants 0")
		n.screen(t, "store-full-trigger", "trigger tenants")
		free()
		n.do(t, "wait tenants --for ok", "doctor", "trigger tenants --wait")
		n.screen(t, "store-full-mended", "jobs")
	}},
	{"a clock is skewed", everyMinute, func(t *testing.T, n *night) {
		n.startThree()
		n.setClock("web-3", 7*time.Second)
		time.Sleep(2 * time.Minute)
		n.logged(t, "clock-log", "web-3", "this clock is skewed")
		n.screen(t, "clock-instances", "instances")
		n.setClock("web-3", 0)
		time.Sleep(2 * time.Minute)
		n.logged(t, "clock-mended-log", "web-3", "this clock is no longer skewed")
		n.screen(t, "clock-mended", "instances")
		n.do(t, "wait tenants --for ok")
	}},
	{"a clock was ahead", everyMinute, func(t *testing.T, n *night) {
		n.launch("web-1")
		n.setClock("web-1", time.Hour)
		time.Sleep(10 * time.Minute)
		n.setClock("web-1", 0)
		time.Sleep(2*time.Minute + 11*time.Second)
		n.logged(t, "clock-ahead-log", "web-1", "claims are ahead of this clock")
		n.do(t, "instances")
		n.screen(t, "clock-ahead-job", "job tenants")
		n.screen(t, "clock-ahead-explain", "explain tenants 0")
		n.screen(t, "clock-ahead-reset", "reset tenants --yes")
		time.Sleep(2 * time.Minute)
		n.screen(t, "clock-ahead-mended", "explain tenants 0")
		n.do(t, "wait tenants --for ok")
	}},
	{"a run does not end", func(string) []executor.Job { return exportJob(0, waitForContext) }, func(t *testing.T, n *night) {
		n.startThree()
		n.screen(t, "stuck-jobs", "jobs")
		n.screen(t, "stuck-shards", "shards export")
		n.screen(t, "stuck-explain", "explain export 3")
		n.screen(t, "stuck-cancel", "cancel export --shard 3 --yes")
		n.do(t, "wait export --for idle")
		n.screen(t, "stuck-mended", "shards export")
		n.do(t, "trigger export --shards 3 --wait", "wait export --for ok")
	}},
	{"a handler ignores its context", func(string) []executor.Job { return exportJob(time.Minute, sleepForAnHour) }, func(t *testing.T, n *night) {
		n.startThree()
		owner := ownerOf(t, n, "export", 3)
		n.logged(t, "stuck-handler-log", owner, "handler ignores its time-out")
		n.do(t, "cancel export --shard 3 --yes", "override export timeout=10m", "override export --clear timeout")
		n.screen(t, "stuck-handler-wait", "wait export --for idle --timeout 30s")
		n.crash(owner)
		time.Sleep(15 * time.Second)
		n.launch(owner)
		n.screen(t, "stuck-handler-mended", "wait export --for idle")
		n.do(t, "wait export --for moved")
		assert.Contains(t, n.run("job export").out, "7 ok, 0 failed, 0 skipped, 1 lost", "the cancelled run is not made again")
	}},
	{"a run kills its process", nil, playPoison},
	{"shards have no owner", func(string) []executor.Job {
		jobs := everyMinute("")
		jobs[0].RunOn = map[string]string{"gpu": "yes"}
		return jobs
	}, func(t *testing.T, n *night) {
		n.startThree()
		n.screen(t, "unowned-jobs", "jobs")
		n.screen(t, "unowned-explain", "explain tenants")
		n.do(t, "decisions tenants")
		n.startWith(n.server.Client("web-4"), executor.Options{Instance: "web-4", Labels: map[string]string{"gpu": "yes"}, Logger: slog.New(slog.DiscardHandler)}, n.jobs("")...)
		n.do(t, "acts", "acts tenants")
		n.screen(t, "unowned-mended", "wait tenants --for ok")
	}},
	{"a job was removed", withDigest, func(t *testing.T, n *night) {
		n.startThree()
		n.jobs = everyMinute
		n.redeploy("web-1", "web-2", "web-3")
		time.Sleep(2*time.Minute - 3*time.Second)
		n.screen(t, "removed-jobs", "jobs")
		n.screen(t, "removed-check", "check")
		n.screen(t, "removed-explain", "explain digest")
		n.screen(t, "removed-doctor", "doctor")
		n.screen(t, "removed-job", "job digest")
		n.screen(t, "removed-retire", "retire digest --reason 'renamed to report' --yes")
		time.Sleep(time.Second)
		n.screen(t, "removed-mended", "jobs")
		n.logged(t, "removed-log", n.leader(t), "retired job deleted")
		assert.Equal(t, exit.OK, n.run("check").code)
		n.do(t, "doctor", "retire tenants --yes", "unretire tenants")
		n.jobs = withDigest
		n.redeploy("web-1")
		n.jobs = everyMinute
		n.redeploy("web-1")
		time.Sleep(time.Minute)
		n.do(t, "forget digest --yes", "wait tenants --for ok")
	}},
	{"runs fail", nil, playFailing},
	{"work is stopped", everyMinute, playStops},
	{"an older program", everyMinute, func(t *testing.T, n *night) {
		n.startThree()
		keys, err := record.NewKeys("billing", "default")
		require.NoError(t, err)
		later := `{"name":"digest","shards":2,"schedule":"moon full","strategy":"sticky","max_attempts":3,"on_crash":"rerun elsewhere","on_misfire":"run once"}`
		_, err = n.server.Client("later").Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create(keys.Job("digest"), []byte(later))}})
		require.NoError(t, err)
		n.jobs = func(string) []executor.Job {
			return append(everyMinute(""), executor.Job{Name: "digest", Schedule: schedule.Every(time.Hour), Shards: 2, Handler: executor.HandlerFunc(returnAtOnce)})
		}
		n.launch("web-4")
		time.Sleep(time.Minute)
		n.logged(t, "upgrade-log", "web-4", "definition is not supported by this version")
		n.screen(t, "upgrade-doctor", "doctor")
	}},
	{"an older definition", func(string) []executor.Job {
		jobs := everyMinute("")
		jobs[0].Revision, jobs[0].Shards = 2, 8
		return jobs
	}, func(t *testing.T, n *night) {
		n.startThree()
		n.jobs = func(string) []executor.Job {
			jobs := everyMinute("")
			jobs[0].Revision = 1
			return jobs
		}
		n.launch("web-4")
		time.Sleep(time.Minute)
		n.logged(t, "rollback-log", "web-4", "stored definition has a higher revision")
		n.do(t, "job tenants", "doctor", "check", "instances -o wide")
		assert.Contains(t, n.run("job tenants").out, "shards    8\n", "the definition of the higher revision")
	}},
	{"a job is paused", everyMinute, func(t *testing.T, n *night) {
		n.startThree()
		n.do(t, "pause tenants --reason 'deploy 42'")
		time.Sleep(time.Second)
		n.do(t, "acts tenants", "explain tenants", "resume tenants", "pause --all --for 1h --yes", "resume --all", "drain web-2 --wait", "undrain web-2",
			"moves --without web-3", "disable --host n-2", "enable --host n-2", "check --format prometheus")
	}},
}

func returnAtOnce(context.Context, *executor.Run) error { return nil }

// withDigest returns the jobs of everyMinute and one that is removed later.
func withDigest(string) []executor.Job {
	return append(everyMinute(""), executor.Job{Name: "digest", Schedule: schedule.Every(time.Minute), Shards: 2, Handler: executor.HandlerFunc(returnAtOnce)})
}

func everyMinute(string) []executor.Job {
	return []executor.Job{{Name: "tenants", Schedule: schedule.Every(time.Minute), Shards: 6, Handler: executor.HandlerFunc(returnAtOnce)}}
}

// exportJob returns a job of which shard 3 has a handler of its own for the fire at 00:05, once.
func exportJob(timeout time.Duration, h executor.HandlerFunc) []executor.Job {
	return []executor.Job{{Name: "export", Schedule: schedule.Every(5 * time.Minute), Shards: 4, Timeout: timeout, Handler: executor.HandlerFunc(
		func(ctx context.Context, r *executor.Run) error {
			if r.Shard == 3 && r.FireTime.Minute() == 5 && r.Attempt == 1 {
				return h(ctx, r)
			}
			return nil
		},
	)}}
}

func waitForContext(ctx context.Context, _ *executor.Run) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func sleepForAnHour(context.Context, *executor.Run) error {
	time.Sleep(time.Hour)
	return nil
}

// ownerOf returns the instance that owns a shard.
func ownerOf(t *testing.T, n *night, job string, shard int) string {
	t.Helper()
	for name, p := range n.processes {
		st, err := p.ex.Operator().Status(t.Context(), job)
		require.NoError(t, err)
		for _, m := range st.Members {
			if slices.Contains(m.Shards, shard) {
				return m.Instance
			}
		}
		require.Failf(t, "no owner", "seen by %s", name)
	}
	return ""
}

// playPoison has a shard whose run kills its process, each time, until it is mended. A supervisor starts the process again.
func playPoison(t *testing.T, n *night) {
	var mended atomic.Bool
	killed := make(chan string, 10)
	n.jobs = func(instance string) []executor.Job {
		return []executor.Job{{Name: "imports", Schedule: schedule.Every(10 * time.Minute), Shards: 4, Handler: executor.HandlerFunc(
			func(ctx context.Context, r *executor.Run) error {
				if r.Shard == 2 && !mended.Load() {
					killed <- instance
					<-ctx.Done()
				}
				return context.Cause(ctx)
			},
		)}}
	}
	n.launch("web-1", "web-2", "web-3")
	var crashed []string
	for range 3 {
		name := <-killed
		crashed = append(crashed, name)
		n.crash(name)
		time.Sleep(20 * time.Second) // until the supervisor starts it
		n.launch(name)
	}
	time.Sleep(time.Minute)
	assert.Len(t, killed, 0, "after three attempts, the run is not made again")
	n.logged(t, "poison-log", n.leader(t), "reaped expired instances")
	n.screen(t, "poison-instances", "instances")
	n.screen(t, "poison-job", "job imports")
	n.screen(t, "poison-disable", "disable imports --shards 2 --reason 'kills its process'")
	time.Sleep(10 * time.Minute)
	assert.Len(t, killed, 0, "the next fire of the disabled shard")
	n.screen(t, "poison-disabled", "shards imports")
	mended.Store(true)
	n.do(t, "enable imports --shards 2", "wait imports --for ok")
	n.screen(t, "poison-mended", "trigger imports --shards 2 --wait")
	n.do(t, "retry imports --fire 00:10") // instead of the trigger
	assert.NotEmpty(t, crashed)
}

// playFailing has a job of which a shard fails until it is mended.
func playFailing(t *testing.T, n *night) {
	var mended atomic.Bool
	n.jobs = func(string) []executor.Job {
		return []executor.Job{{Name: "imports", Schedule: schedule.Every(10 * time.Minute), Shards: 4, Handler: executor.HandlerFunc(
			func(_ context.Context, r *executor.Run) error {
				if r.Shard == 2 && !mended.Load() {
					return errors.New("connect to db-2: connection refused")
				}
				return nil
			},
		)}}
	}
	n.startThree()
	n.screen(t, "failing-jobs", "jobs --state failing")
	n.screen(t, "failing-explain", "explain imports 2")
	n.logged(t, "failing-log", ownerOf(t, n, "imports", 2), "run failed")
	mended.Store(true)
	n.screen(t, "failing-retry", "retry imports --fire 00:10")
	n.do(t, "wait imports --for idle")
	n.screen(t, "failing-retried", "jobs")
	time.Sleep(8 * time.Minute) // past the next fire
	n.screen(t, "failing-mended", "wait imports --for ok")
}

// playStops stops work in each way of which-act.md, two minutes each, and starts it again.
func playStops(t *testing.T, n *night) {
	n.startThree()
	count := func(stop, start string, ran, skipped uint64) {
		counts := func() operator.Counts {
			st, err := n.processes["web-2"].ex.Operator().Status(t.Context(), "tenants")
			require.NoError(t, err)
			return st.Counts
		}
		before := counts()
		n.do(t, stop)
		time.Sleep(2 * time.Minute)
		after := counts()
		assert.Equal(t, ran, after.Claimed-before.Claimed, "%s: runs", stop)
		assert.Equal(t, skipped, after.Skipped-before.Skipped, "%s: skipped", stop)
		n.do(t, start)
		time.Sleep(time.Minute)
	}
	count("pause tenants", "resume tenants", 0, 0)
	count("pause --all --yes", "resume --all", 0, 0)
	count("pause tenants --schedule", "resume tenants", 0, 0)
	count("disable tenants --shards 1", "enable tenants --shards 1", 10, 2)
	count("disable --host n-1", "enable --host n-1", 12, 0)
	count("drain web-1 --wait", "undrain web-1", 12, 0)
	count("override tenants 'schedule=every 10s'", "override tenants --clear", 6*12, 0)
	n.do(t, "pause tenants --schedule", "trigger tenants --wait", "resume tenants")
}

// TestRunbooks plays each failure, and compares its screens and log lines with testdata.
func TestRunbooks(t *testing.T) {
	var mu sync.Mutex
	played := map[string]bool{}
	for _, r := range runbooks {
		t.Run(r.name, func(t *testing.T) {
			lines := inNight(t, r.jobs, r.play)
			mu.Lock()
			defer mu.Unlock()
			for _, line := range lines {
				played[line] = true
			}
		})
	}
	t.Run("every command of the pages has run", func(t *testing.T) {
		for _, c := range commandsOfPages(t) {
			if verb := strings.Fields(c.line); len(verb) == 1 || slices.Contains([]string{"run", "validate", "raise-fences", "restore", "dump", "version", "context", "notify", "web", "postgres", "define"}, verb[0]) {
				continue // a name in a sentence, or tested by TestDeploy, TestBackup, TestNotify, TestDefineFile and package postgres
			}
			matches := false
			for line := range played {
				matches = matches || c.pattern().MatchString(line)
			}
			assert.True(t, matches, "%s: no runbook runs `rota %s`", c.page, c.line)
		}
	})
}

// pageCommand is a command line of a page. Words in capitals stand for names.
type pageCommand struct{ page, line string }

var (
	commandLine = regexp.MustCompile("(?m)(?:`|^\\$? ?)rota ([a-z-]+[^`\n#|>]*)")
	placeholder = regexp.MustCompile(`^[A-Z]+$|^'?\.\.\.'?$`)
)

// commandsOfPages returns the command lines of the pages for people on call.
func commandsOfPages(t *testing.T) (all []pageCommand) {
	t.Helper()
	pages, err := filepath.Glob(operating + "*.md")
	require.NoError(t, err)
	for _, page := range pages {
		if slices.Contains([]string{"command.md", "messages.md", "incident.md"}, filepath.Base(page)) {
			continue
		}
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range commandLine.FindAllStringSubmatch(string(text), -1) {
			all = append(all, pageCommand{filepath.Base(page), strings.TrimSpace(m[1])})
		}
	}
	assert.Greater(t, len(all), 30)
	return all
}

// pattern matches the command lines that the page means.
func (c pageCommand) pattern() *regexp.Regexp {
	var words []string
	for _, w := range word.FindAllString(c.line, -1) {
		if placeholder.MatchString(w) {
			words = append(words, `('[^']*'|\S+)`)
		} else {
			words = append(words, regexp.QuoteMeta(w))
		}
	}
	return regexp.MustCompile("^" + strings.Join(words, " ") + "( --yes)?$")
}

// TestPages_HaveCommandsThatParse finds misspelt commands and flags.
func TestPages_HaveCommandsThatParse(t *testing.T) {
	for _, c := range commandsOfPages(t) {
		var args []string
		for _, w := range word.FindAllString(c.line, -1) {
			args = append(args, strings.Trim(w, "'"))
		}
		root, _ := newRoot(settings.New(nil), Streams{})
		cmd, rest, err := root.Find(args)
		require.NoError(t, err, "%s: rota %s", c.page, c.line)
		assert.NotSame(t, root, cmd, "%s: rota %s", c.page, c.line)
		for i, w := range rest { // placeholders of flags have any type
			if placeholder.MatchString(w) && i > 0 && strings.HasPrefix(rest[i-1], "--") {
				if f := cmd.Flag(strings.TrimPrefix(rest[i-1], "--")); f != nil && f.Value.Type() != "string" {
					rest[i] = map[string]string{"duration": "1h", "uint64": "1", "int": "1", "shards": "1", "stringSlice": "a"}[f.Value.Type()]
				}
			}
		}
		if assert.NoError(t, cmd.ParseFlags(rest), "%s: rota %s", c.page, c.line) && cmd.Args != nil && len(rest) > 0 {
			assert.NoError(t, cmd.Args(cmd, cmd.Flags().Args()), "%s: rota %s", c.page, c.line)
		}
	}
}

// TestAlertsPage_HasEveryAlert compares the page with the rules.
func TestAlertsPage_HasEveryAlert(t *testing.T) {
	text, err := os.ReadFile("../../../../rotaprom/alerts.yaml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For string
				Labels           map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	var rules []string
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			rules = append(rules, r.Alert+" | "+r.Labels["severity"])
		}
	}
	assert.Greater(t, len(rules), 8)
	page, err := os.ReadFile(operating + "alerts.md")
	require.NoError(t, err)
	var documented []string
	for _, m := range regexp.MustCompile(`(?m)^## (Rota\w+)\n\n(\w+): `).FindAllStringSubmatch(string(page), -1) {
		documented = append(documented, m[1]+" | "+strings.ToLower(m[2]))
	}
	assert.Equal(t, rules, documented)

	overdue := file.Groups[0].Rules[0]
	pending, err := time.ParseDuration(overdue.For)
	require.NoError(t, err)
	_, limit, _ := strings.Cut(overdue.Expr, "> ")
	seconds, err := strconv.Atoi(limit)
	require.NoError(t, err)
	minutes := []string{"no", "one", "two", "three", "four", "five", "six", "seven", "eight"}
	after := minutes[int((time.Duration(seconds)*time.Second+pending)/time.Minute)] + " minutes"
	assert.Contains(t, string(page), "## "+overdue.Alert+"\n\nCritical: a fire has been due for "+after)
	assert.Contains(t, string(page), "the job's period plus "+after)
	runbooks, err := os.ReadFile(operating + "runbooks.md")
	require.NoError(t, err)
	assert.Contains(t, string(runbooks), "After "+after+", the alert `"+overdue.Alert+"` fires")
}

// TestPages_LinkToHeadings finds links to headings that do not exist.
func TestPages_LinkToHeadings(t *testing.T) {
	anchors := func(path string) map[string]bool {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		found := map[string]bool{}
		for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(text), -1) {
			name := regexp.MustCompile("[^a-z0-9 _-]").ReplaceAllString(strings.ToLower(m[1]), "")
			found[strings.ReplaceAll(name, " ", "-")] = true
		}
		return found
	}
	pages, err := filepath.Glob(operating + "*.md")
	require.NoError(t, err)
	count := 0
	for _, page := range append(pages, "../../../../docs/operating.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`\]\(([^)#\s:]*)#([^)\s]+)\)`).FindAllStringSubmatch(string(text), -1) {
			target := page
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(page), m[1])
			}
			if filepath.Ext(target) == ".md" {
				count++
				assert.True(t, anchors(target)[m[2]], "%s: no heading %s in %s", page, m[2], target)
			}
		}
	}
	assert.Greater(t, count, 10)
}
