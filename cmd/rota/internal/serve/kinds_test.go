//go:build unix

package serve

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/jobsfile"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry/etcd"
	"github.com/rota-dev/rota/schedule"
)

const kindFile = "revision: 7\nkinds:\n  a: {command: [/bin/echo, a], timeout: 1m}\n  b: {command: [/bin/echo, b]}\n"

func TestPlanKinds(t *testing.T) {
	for name, c := range map[string]struct {
		next                    string
		added, changed, removed []string
		problem                 string
		revisions               []int // in memory
	}{
		"nothing changes": {kindFile, nil, nil, nil, "", []int{7, 7}},
		"another command or bound needs no revision": {
			"revision: 7\nkinds:\n  a: {command: [/bin/echo, x], timeout: 1m}\n  b: {command: [/bin/echo, b], max_running: 3}\n", nil, []string{"a", "b"}, nil, "", []int{7, 7},
		},
		"other defaults need one": {
			"revision: 7\nkinds:\n  a: {command: [/bin/echo, a], timeout: 2m, max_jobs: 9, description: x}\n  b: {command: [/bin/echo, b]}\n", nil,
			[]string{"a"},
			nil,
			`kind "a": it differs in description, max_jobs, timeout and its revision 7 does not; raise it`,
			[]int{8, 7},
		},
		"a lower revision": {
			"revision: 6\nkinds:\n  b: {command: [/bin/echo, b]}\n", nil, nil, []string{"a"}, `kind "b": revision 6 is below 7, which is in force`, []int{7},
		},
		"kinds come and go": {"revision: 7\nkinds:\n  b: {command: [/bin/echo, b]}\n  c: {command: [/bin/echo, c]}\n", []string{"c"}, nil, []string{"a"}, "", []int{7, 7}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := planKinds(file(t, kindFile), file(t, c.next), nil, false)
			assert.Equal(t, [][]string{c.added, c.changed, c.removed}, [][]string{got.added, got.changed, got.removed})
			if c.problem == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, c.problem)
			}
			got, err = planKinds(file(t, kindFile), file(t, c.next), nil, true)
			require.NoError(t, err)
			var revisions []int
			for i := range got.register {
				revisions = append(revisions, got.register[i].Revision)
			}
			assert.Equal(t, c.revisions, revisions)
		})
	}
	t.Run("a kind that comes back has its stored revision", func(t *testing.T) {
		gone := file(t, "revision: 9\nkinds:\n  a: {command: [/bin/echo]}\n")
		next := file(t, "revision: 7\nkinds:\n  a: {command: [/bin/echo]}\n")
		_, err := planKinds(file(t, "kinds:\n  b: {command: [/bin/echo]}\n"), next, map[string]*jobsfile.Kind{"a": &gone.Kinds[0]}, false)
		require.EqualError(t, err, `kind "a": revision 7 is below 9, which is in force`)
	})
}

func TestValidate_ShowsKinds(t *testing.T) {
	f := file(t, kindFile)
	text, err := describe("jobs.yaml", f, target{url: "memory", namespace: "n", group: "g"}, 1, time.Now())
	require.NoError(t, err)
	assert.Contains(t, text, "jobs.yaml is valid: 0 jobs, 2 kinds, revision 7, ")
	assert.Contains(t, text, "KIND  REVISION  MAX JOBS  DIGEST    WORK\na     7         100000    "+f.Kinds[0].Digest[:8]+"  /bin/echo a\n")
	assert.NotContains(t, text, "SCHEDULE", "there are no jobs")
}

// A process whose file has only kinds runs jobs that another process defines, with a parameter that no shell reads, and by its newest file.
func TestFleet_RunsJobsOfItsKinds(t *testing.T) {
	addrs := servertest.Etcd(t).Addrs()
	list := filepath.Join(t.TempDir(), "ran")
	content := `namespace: kinds
registry: etcd://` + strings.Join(addrs, ",") + `/kinds-of-run
kinds:
  mark:
    command: [/bin/sh, -c, 'echo "PREFIX $0" >> ` + list + `', "{{.Param}}"]
    timeout: 1m
`
	path := writeFile(t, strings.ReplaceAll(content, "PREFIX", "first"))
	p := startRun(t, path, "--instance", "a", "--ttl", "2s")
	reg, err := etcd.Open(t.Context(), etcd.Options{Endpoints: addrs, Namespace: "/kinds-of-run", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { closeRegistry(reg) })
	op, err := operator.New(reg, "kinds", "default")
	require.NoError(t, err)
	op = op.WithCompiler(executor.Compile)
	require.Eventually(t, func() bool {
		kinds, err := op.Kinds(t.Context())
		return err == nil && len(kinds) == 1 && len(kinds[0].Instances) == 1
	}, patience, tick)
	_, err = op.Define(t.Context(), operator.Definition{Name: "acme/x", Kind: "mark", Schedule: schedule.Every(time.Second), Param: "$(id); `id`"})
	require.NoError(t, err)
	ran := func(line string) bool {
		text, _ := os.ReadFile(list)
		return strings.Contains(string(text), line+"\n")
	}
	require.Eventually(t, func() bool { return ran("first $(id); `id`") }, patience, tick)

	rewrite(t, path, strings.ReplaceAll(content, "PREFIX", "second"))
	p.send(t, syscall.SIGHUP)
	require.Eventually(t, func() bool { return ran("second $(id); `id`") }, patience, tick)
	p.Terminate()
	assert.Equal(t, 0, p.exitCode(t))
}

const mixedFile = `kinds:
  a: {command: [/bin/echo, a]}
jobs:
  local: {command: [/bin/echo, b], every: 1h}
  acme/x: {kind: a, every: 1h}
  acme/past: {kind: a, at: 2020-01-01T00:00:00Z}
  acme/last: {kind: a, after: [acme/x, elsewhere]}
`

func TestValidate_ShowsJobsWithAKind(t *testing.T) {
	f := file(t, mixedFile)
	now := time.Date(2026, 11, 23, 6, 30, 0, 0, time.UTC)
	text, err := describe("jobs.yaml", f, target{url: "memory", namespace: "n", group: "g"}, 2, now)
	require.NoError(t, err)
	assert.Contains(t, text, "jobs.yaml is valid: 1 job, 1 kind, 3 jobs with a kind, revision 0, ")
	assert.Contains(t, text, `JOB WITH A KIND  KIND  SCHEDULE                   NEXT FIRES
acme/x           a     every 1h                   2026-11-23 07:00:00 UTC
                                                  2026-11-23 08:00:00 UTC
acme/past        a     at 2020-01-01T00:00:00Z    none any more
acme/last        a     after "acme/x", elsewhere  after acme/x, elsewhere
`)
	assert.Equal(t, []string{`job "acme/last" follows "elsewhere", which is not in this file`}, listUnknownFollowed(f))
	assert.Equal(t, []string{`job "acme/past" has no fires from now on`}, listEnded(f, now))
}

func TestRun_LeavesJobsWithAKindToDefine(t *testing.T) {
	inBubble(t, writeFile(t, mixedFile), func(t *testing.T, p *process) {
		time.Sleep(time.Minute)
		lines := p.find(t, "jobs with a kind are not run from the file")
		require.Len(t, lines, 1)
		assert.Equal(t, "acme/x, acme/past, acme/last", lines[0]["jobs"])
		assert.Empty(t, p.lines(t, "acme/x"))
	})
}

func TestRun_RefusesAFileWithNothingToRun(t *testing.T) {
	p := newProcess(writeFile(t, "jobs: {acme/x: {kind: a, every: 1h}}\n"))
	err := run(t.Context(), p.options)
	require.ErrorContains(t, err, "all of its jobs have a kind: rota define -f defines them, and there is nothing to run here")
	assert.Equal(t, exit.Usage, exit.CodeOf(err))
}
