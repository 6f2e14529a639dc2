package layout

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// promises are the rules of this repository, each with minimal changes to a tree that
// break it.
var promises = []struct {
	name   string
	check  func(*tree) []string
	breaks []map[string]string
}{
	{"imports point down", arrowsPointDown, []map[string]string{
		{"registry/x.go": `package registry; import _ "example.com/other"`},
		{"registry/x.go": `package registry; import _ "example.org/m/internal/x"`},
		{"registry/memory/x.go": `package memory; import _ "example.org/m/internal/x"`},
		{"conformance/x.go": `package conformance; import _ "example.org/m/registry/memory"`},
		{"coordinator/x.go": `package coordinator; import _ "example.org/m/executor"`},
		{"handler/x.go": `package handler; import _ "example.org/m/internal/group/planning"`},
		{"coordinator/x.go": `package coordinator; import _ "example.org/m/registry/memory"`},
		{"executor/x.go": `package executor; import _ "example.org/m/rotatest"`},
		{"executor/x.go": `package executor; import _ "example.org/m/cmd/rota"`},
		{"internal/a/x.go": `package a; import _ "example.org/m/examples/settle"`},
		{"internal/record/x.go": `package record; import _ "example.org/m/internal/test/judge"`},
		{"rotatest/x.go": `package rotatest; import _ "example.org/m/internal/test/judge"`},
		{
			"go.work":         "use (\n\t.\n\t./cmd/rota\n)\n",
			"cmd/rota/go.mod": "module example.org/m/cmd/rota\n",
			"cmd/rota/x.go":   "// Command rota is a.\npackage main; import _ \"example.com/other\"",
		},
		{"examples/a/x.go": `package main; import _ "example.org/m/internal/a"`},
		{"unheard/x.go": `package unheard`},
	}},
	{"algorithms import no backend", algorithmsKnowNoBackend, []map[string]string{
		{
			"coordinator/x.go": `package coordinator; import _ "example.org/m/internal/a"`,
			"internal/a/x.go":  `package a; import _ "example.org/m/internal/b"`,
			"internal/b/x.go":  `package b; import _ "example.org/m/registry/memory"`,
		},
		{"executor/x.go": `package executor; import _ "example.org/m/registry/etcd"`},
	}},
	{"schedules know no fleet", schedulesKnowNoFleet, []map[string]string{
		{"schedule/x.go": `package schedule; import _ "context"`},
		{"schedule/x.go": `package schedule; import _ "example.org/m/internal/a"`, "internal/a/x.go": `package a; import _ "example.org/m/registry"`},
	}},
	{"decisions are pure", decisionsArePure, []map[string]string{
		{"internal/group/planning/x.go": `package planning; import _ "context"`},
		{"internal/group/claiming/x.go": `package claiming; import _ "sync/atomic"`},
		{"internal/group/election/x.go": `package election; import _ "log/slog"`},
		{"internal/group/balance/x.go": `package balance; import _ "math/rand/v2"`},
		{"internal/group/skew/x.go": `package skew; import "time"; var since = time.Since`},
		{"coordinator/strategy/x.go": `package strategy; func f() { go f() }`},
		{"internal/group/due/x.go": `package due; func f(chan int) {}`},
		{"internal/group/explain/x.go": `package explain; import "time"; var now = time.Now`},
		{"internal/group/diagnosis/x.go": `package diagnosis; import _ "context"`},
	}},
	{"packages have comments", packagesHaveComments, []map[string]string{
		{"executor/x.go": `package executor`},
		{"executor/x.go": "// Something else.\npackage executor"},
		{"cmd/rota/x.go": "// Package main is a command.\npackage main"},
	}},
	{"prose is plain", checkProse, []map[string]string{
		{"docs/x.md": "What is kept decides nothing, and is bounded."},
		{"docs/x.md": "The record tells its owner."},
		{"registry/x.go": "// Package registry is owned by nobody.\npackage registry"},
	}},
	{"tests do not sleep", testsDoNotSleep, []map[string]string{
		{"registry/x_test.go": `package registry; import "time"; func f() { time.Sleep(1) }`},
	}},
	{"tests do not skip", testsDoNotSkip, []map[string]string{
		{"registry/x_test.go": `package registry; import "testing"; func Test(t *testing.T) { t.Skip() }`},
		{"internal/a/x.go": `package a; import "testing"; func f(tb testing.TB) { tb.Skipf("") }`},
	}},
	{"loading a package does nothing", loadingDoesNothing, []map[string]string{
		{"registry/x.go": `package registry; func init() {}`},
		{"registry/x.go": `package registry; var c = make(chan int)`},
		{"registry/x.go": `package registry; var c map[string]chan int`},
		{"registry/x_test.go": `package registry; var c struct{ done <-chan struct{} }`},
		{"registry/x.go": `package registry; var n = func() int { go println(); return 0 }()`},
	}},
	{"the module's path is written once", modulePathIsWrittenOnce, []map[string]string{
		{"registry/x.go": `package registry; const path = "example.org/m/registry"`},
		{"docs/x.md": `import "example.org/m/executor"`},
		{"README.md": "\ngo get example.org/m@main, which is example.org/m"},
		{"docs/x.md": "\ngo get example.org/m@main\n"},
	}},
	{"modules of the workspace share versions", modulesShareVersions, []map[string]string{
		{
			"go.mod": "module example.org/m\nrequire a.org/x v1.0.0\n", "go.work": "use (\n\t.\n\t./cmd/rota\n)\n",
			"cmd/rota/go.mod": "module example.org/m/cmd/rota\nrequire (\n\ta.org/x v1.1.0 // indirect\n)\n",
		},
	}},
	{"directories are documented", directoriesAreDocumented, []map[string]string{
		{"unheard/x.txt": ""},
		{"CONTRIBUTING.md": "| `registry/memory/` | |\n", "registry/x.go": "package registry"},
	}},
	{"the front page is short", frontPageIsShort, []map[string]string{
		{"README.md": strings.Repeat("\n", 121)},
	}},
	{"documents show what compiles", documentsShowWhatCompiles, []map[string]string{
		{"README.md": ""},
		{"README.md": "```go\nfunc main() {}\n```\n"},
		{"README.md": "<!-- x.go -->\n```go\nfunc main() {}\n```\n"},
		{
			"README.md": "<!-- x.go -->\n```go\nfunc main() {}\n```\n",
			"x.go":      "package main\n" + shownFrom + "func main() { }\n" + shownTo,
		},
		{"README.md": sound["README.md"], "cmd/rota/a.go": sound["cmd/rota/a.go"], "docs/x.md": "```go\nfunc main() {}\n```\n"},
	}},
	{"tests that documents name exist", namedTestsExist, []map[string]string{
		{"docs/x.md": "`go test ./executor -run TestA`"},
		{"docs/x.md": "| `./executor -run 'TestA/of b'` |", "executor/a_test.go": "package executor; func TestA() { f(`of c`) }"},
		{"docs/x.md": "`./executor -run TestA`", "coordinator/a_test.go": "package coordinator; func TestA() {}", "executor/a.go": "package executor; func TestA() {}"},
	}},
	{"log lines are documented", logLinesAreDocumented, []map[string]string{
		{"registry/x.go": `package registry; func f() { log.Warn("full") }`},
		{"registry/x.go": `package registry; func f() { log.Warn("full") }`, "docs/operating/messages.md": "| full | ERROR | |"},
		{"registry/x.go": `package registry; func f() { log.Debug("full") }`, "docs/operating/messages.md": "| empty | WARN | |"},
		{"registry/x.go": `package registry; func f() { log.Log(ctx, slog.LevelInfo, "full") }`},
		{"registry/x.go": `package registry; var t = []line{{slog.LevelWarn, "full", "more full"}}`, "docs/operating/messages.md": "| full | WARN | |"},
		{"registry/x.go": `package registry; func f() { log.Debug("full") }`, "docs/x.md": "See `full` (WARN)."},
		{"registry/x.go": `package registry; func f() { log.Debug("full") }`, "docs/x.md": "It logs `fuller`."},
		{"registry/x.go": `package registry; func f() { log.Debug("full") }`, "docs/x.md": "It logs WARN `fuller ...`."},
		{"registry/x.go": `package registry; func f() { log.Debug("full") }`, "docs/x.md": `level=DEBUG msg="not full"`},
	}},
	{"exported names have users", exportsHaveUsers, []map[string]string{
		{"internal/a/x.go": "package a; func F() {}; var _ = x.F", "internal/a/x_test.go": "package a_test; import _ \"example.org/m/internal/a\"; var _ = a.F"},
		{"internal/a/x.go": "package a; func (t) M() {}", "internal/test/b/x.go": "package b; var _ = a.T{}.M"},
		{"internal/a/x.go": "package a; var V = 1", "executor/x.go": "package executor; var _ = b.V"},
	}},
	{"packages are small", packagesAreSmall, []map[string]string{manyFiles("executor")}},
	{"comments name files that exist", commentsNameFiles, []map[string]string{
		{"registry/x.go": "package registry\n\n// F is in gone.go.\nfunc F() {}"},
		{"registry/x_test.go": "package registry // see gone.go"},
	}},
	{"links have targets", linksLeadSomewhere, []map[string]string{
		{"docs/x.md": "[x](../nowhere.md#part)"},
		{"docs/x.md": "# Part\n[x](#parts)"},
		{"docs/x.md": "[x](a.md#part)"},
		{"docs/x.md": "```\n# Part\n```\n[x](#part)"},
	}},
}

// manyFiles returns more files of a package than are allowed.
func manyFiles(dir string) map[string]string {
	files := map[string]string{}
	for i := range mostFiles + 1 {
		files[fmt.Sprintf("%s/f%d.go", dir, i)] = "package " + dir
	}
	return files
}

// repository is the root of the repository.
var repository = os.DirFS("../../..")

func TestRepository(t *testing.T) {
	tr, err := readTree(repository)
	if err != nil {
		t.Fatal(err)
	}
	if len(tr.sources) == 0 || tr.module == "" {
		t.Fatalf("read %d Go files of module %q", len(tr.sources), tr.module)
	}
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) {
			for _, fault := range p.check(tr) {
				t.Error(fault)
			}
		})
	}
}

// sound is a tree that keeps every rule but comes close to breaking some.
var sound = map[string]string{
	"go.mod":    "module example.org/m\n",
	"docs/a.md": "## 1. The `b`, as_is\n[up](../README.md) [beside](.) `go test ./registry -v -run Soak`\n| `./registry -run 'TestA/of a thing/b, c'` |",
	"README.md": "# D\n[a](docs/a.md#1-the-b-as_is) [b](https://example.org/#e) [c](#d)\n" +
		"\ngo get example.org/m@main\n" +
		"<!-- cmd/rota/a.go -->\n```go\nfunc init() {}\n```\n",
	"CONTRIBUTING.md": "| `registry/` | |\n| `conformance/` | |\n| `executor/` | |\n| `coordinator/` | |\n| `internal/` | |\n| `cmd/rota/` | |\n| `docs/` | |\n",

	"registry/a.go":                     "// Package registry is a.\npackage registry; import _ \"time\"; func (a) init() {}; var f func(chan int)",
	"registry/memory/a.go":              "// Package memory is a.\npackage memory; import _ \"example.org/m/registry\"",
	"registry/a_test.go":                `package registry; import ("time"; _ "testing/synctest"; _ "example.org/m/registry/memory"); func TestA() { time.Sleep(1); f("of a thing", "b, c") }`,
	"conformance/a.go":                  "// Package conformance is a.\npackage conformance; import \"testing\"; func f(t testing.TB) { t.Skip() }",
	"internal/group/planning/a.go":      "// Package planning is a.\npackage planning; import \"time\"; func f(now time.Time) time.Time { return now.Add(time.Second) }",
	"coordinator/strategy/a.go":         "// Package strategy is a.\npackage strategy",
	"internal/group/planning/a_test.go": `package planning; import ("context"; "time"); func g() { f(time.Now()); _ = context.Background }`,
	"executor/a.go":                     "// Package executor is a.\npackage executor; import _ \"example.org/m/coordinator\"; func f() { c := make(chan int); go close(c) }",
	"cmd/rota/a.go":                     "// Command rota is a.\npackage main\n\n" + shownFrom + "func init() {}\n" + shownTo,
	"internal/u/a.go":                   "// Package u is a.\npackage u; func F() {}; func (t) String() string { return \"\" }; func (t) M() {}; var v = 1",
	"internal/v/a.go":                   "// Package v is a.\npackage v; var _, _ = u.F, x.M",
	"internal/t/go.mod":                 "module example.org/m/internal/t\n",
	"go.work":                           "use (\n\t.\n\t./cmd/rota\n)\n",
	"cmd/rota/go.mod":                   "module example.org/m/cmd/rota\n",
	"internal/t/a.go":                   "package t; import _ \"example.org/m/cmd/rota\"",
	".gitignore":                        "*.out\n/m\n",
	"registry/b.go":                     "package registry; func f() { log.Warn(\"it is full; stop\", 1); log.Debug(\"b\"); http.Error(w, \"c\", 1) }; var t = []line{{slog.LevelInfo, \"d\"}}",
	"docs/operating/messages.md":        "| it is full; stop | WARN | |\n| `d` | INFO |\n\nIt logs `it is full; ...` (WARN), and DEBUG `b`. level=INFO msg=\"d\"",
	"registry/a.out":                    "example.org/m",
	"m":                                 "example.org/m",
	".hidden/a.go":                      "package hidden; func init() {}",
}

func TestChecks_AcceptASoundTree(t *testing.T) {
	tr := mustRead(t, sound)
	for _, p := range promises {
		for _, fault := range p.check(tr) {
			t.Errorf("%s: %s", p.name, fault)
		}
	}
}

func TestChecks_DetectEachViolation(t *testing.T) {
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) {
			for _, change := range p.breaks {
				files := map[string]string{"go.mod": sound["go.mod"]}
				maps.Copy(files, change)
				if len(p.check(mustRead(t, files))) == 0 {
					t.Errorf("no check detects: %v", change)
				}
			}
		})
	}
}

func mustRead(t *testing.T, files map[string]string) *tree {
	t.Helper()
	fsys := fstest.MapFS{}
	for p, text := range files {
		fsys[p] = &fstest.MapFile{Data: []byte(text)}
	}
	tr, err := readTree(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}
