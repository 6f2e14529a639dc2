package layout

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// reach lists the packages that the production code of each package may import besides
// the standard library. The first matching row applies. Tests may import anything.
var reach = []struct {
	pkg string
	may []string
}{
	{".", nil},
	{"registry", []string{"internal/backoff"}},
	{"registry/backend", []string{"registry"}},
	{"registry/memory", []string{"registry", "registry/backend"}},
	{"registry/faults", []string{"registry", "registry/backend"}},
	{"registry/etcd", []string{"registry", "registry/backend", "internal/cleartext", "go.etcd.io/etcd/...", "google.golang.org/grpc/...", "go.uber.org/zap"}},
	{"registry/zookeeper", []string{"registry", "registry/backend", "internal/cleartext", "internal/parallel", "internal/zkwire", "github.com/go-zookeeper/zk"}},
	{"registry/postgres", []string{"registry", "registry/backend", "internal/cleartext", "github.com/jackc/pgx/v5/..."}},
	{"registry/postgres/internal/ledger", []string{"registry", "registry/postgres", "schedule", "executor", "github.com/jackc/pgx/v5/..."}},
	{"registry/postgres/internal/...", []string{"registry/...", "conformance/...", "internal/registryurl", "internal/test/...", "github.com/jackc/pgx/v5/..."}},
	{"lock", []string{"registry", "internal/backoff"}},
	{"conformance/...", []string{"registry", "lock", "conformance/...", "github.com/stretchr/testify/...", "github.com/anishathalye/porcupine"}},
	{"internal/group/snapshot", []string{"registry", "internal/group/due", "internal/group/planning", "internal/group/pools", "internal/record", "internal/shardset"}},
	{"internal/group/membertest", []string{"registry/...", "operator", "coordinator/...", "internal/group/...", "internal/record", "internal/shardset", "github.com/stretchr/testify/..."}},
	{"internal/group/coordtest", []string{"internal/group/due", "internal/record", "internal/shardset", "github.com/stretchr/testify/..."}},
	{"internal/group/...", []string{"registry", "coordinator/strategy", "internal/group/...", "internal/contain", "internal/count", "internal/heap", "internal/jobname", "internal/mutex", "internal/parallel", "internal/record", "internal/scheduletext", "internal/shardset"}},
	{"operator", []string{"registry", "schedule", "coordinator/strategy", "internal/group/...", "internal/backoff", "internal/count", "internal/heap", "internal/jobname", "internal/parallel", "internal/record", "internal/scheduletext", "internal/shardset"}},
	{"coordinator/...", []string{"registry", "lock", "coordinator/...", "internal/group/...", "internal/contain", "internal/count", "internal/jobname", "internal/mutex", "internal/parallel", "internal/record", "internal/scheduletext", "internal/shardset"}},
	{"schedule", []string{"internal/firelist", "internal/jobname", "internal/scheduletext", "internal/texthash", "github.com/robfig/cron/v3"}}, // knows no fleet
	{"executor/...", []string{"registry", "schedule", "operator", "coordinator/...", "executor/...", "internal/group/...", "internal/contain", "internal/count", "internal/firelist", "internal/heap", "internal/jobname", "internal/mutex", "internal/record", "internal/runlog", "internal/scheduletext", "internal/shardset", "internal/texthash"}},
	{"history/sqltest", nil},
	{"web/browsertest", nil},
	{"handler", []string{"executor", "registry", "internal/contain", "internal/httprules", "internal/mutex", "internal/runlog", "github.com/robfig/cron/v3"}},
	{"notify", []string{
		"registry", "lock", "operator", "executor", "internal/contain", "internal/count", "internal/httprules", "internal/mutex", "internal/secret",
		"internal/record", "internal/view",
	}},
	{"history", []string{"executor", "internal/contain", "internal/heap", "internal/mutex"}},
	{"rotatest", []string{"registry", "registry/memory", "schedule", "operator", "coordinator", "executor", "internal/onecpu", "internal/record", "internal/shardset"}},

	{"cmd/rota/internal/importing", []string{
		"schedule", "executor", "handler", "internal/count", "internal/scheduletext", "cmd/rota/internal/exit", "cmd/rota/internal/settings", "internal/shell",
		"github.com/go-zookeeper/zk", "github.com/spf13/cobra", "go.yaml.in/yaml/v3",
	}},
	{"cmd/rota/internal/importing/imported/...", []string{"schedule", "executor", "handler"}},

	// Only tests, commands and test machinery may import test machinery.
	{"internal/test/etcdbackend", []string{
		"registry", "registry/backend", "registry/etcd", "conformance/...", "internal/...",
		"go.etcd.io/etcd/...", "google.golang.org/...", "go.uber.org/zap", "golang.org/x/net/http2/hpack",
	}},
	{"internal/test/zookeeperbackend", []string{"registry", "registry/backend", "registry/zookeeper", "conformance/...", "internal/...", "github.com/go-zookeeper/zk"}},
	{"internal/test/memorybackend", []string{"registry", "registry/memory", "conformance"}},
	{"internal/test/storelog", []string{"registry", "internal/test/judge", "go.etcd.io/etcd/...", "go.uber.org/zap"}},
	{"internal/test/fullstore", []string{"github.com/go-zookeeper/zk", "go.etcd.io/etcd/...", "go.uber.org/zap"}},
	{"internal/test/testserver/...", []string{"conformance/...", "internal/test/..."}},
	{"internal/test/...", []string{"registry/...", "schedule", "operator", "coordinator/...", "executor/...", "conformance/...", "internal/...", "github.com/robfig/cron/v3"}},

	{"internal/registryurl", []string{"registry", "registry/etcd", "registry/zookeeper"}},
	{"internal/scheduletext", []string{"internal/jobname"}},
	{"internal/record", []string{"registry", "internal/jobname", "internal/scheduletext", "internal/shardset"}},
	{"internal/contain", []string{"internal/mutex"}},
	{"internal/view", []string{"registry", "operator", "history", "internal/count", "internal/shell"}},
	{"internal/look", []string{"registry", "schedule", "operator", "executor", "history", "internal/view"}},
	{"internal/acts", []string{"schedule", "operator", "executor", "internal/count", "internal/instant", "internal/record", "internal/shardset", "internal/view"}},
	{"internal/acts", []string{"operator", "internal/view"}},
	{"internal/...", []string{"registry"}},
	{"cmd/rota/internal/console/...", []string{
		"history", "notify", "web", "internal/count", "internal/look", "internal/registryurl", "cmd/rota/internal/console/...", "cmd/rota/internal/exit",
		"cmd/rota/internal/historyurl", "cmd/rota/internal/jobsfile", "cmd/rota/internal/ownfile", "cmd/rota/internal/port", "internal/secret", "cmd/rota/internal/settings",
		"github.com/spf13/cobra", "go.yaml.in/yaml/v3", "golang.org/x/crypto/bcrypt", "golang.org/x/term",
	}},
	{"cmd/...", []string{
		"registry/...", "schedule", "operator", "coordinator", "coordinator/strategy", "executor", "handler", "history", "notify", "rotaprom", "internal/...", "cmd/rota/internal/...", "cmd/rota/rotacmd",
		"conformance/child", "conformance/freeport",
		"github.com/prometheus/client_golang/...", "github.com/spf13/cobra", "github.com/spf13/pflag", "go.yaml.in/yaml/v3", "go.yaml.in/yaml/v4",
		"golang.org/x/term", "github.com/go-sql-driver/mysql", "github.com/jackc/pgx/v5/...", "modernc.org/sqlite",
	}},
	{"web/...", []string{"registry", "schedule", "operator", "executor", "history", "internal/...", "web/..."}},
	{"rotaprom", []string{"executor", "registry", "github.com/prometheus/client_golang/..."}},
	{"rotaotel", []string{"executor", "go.opentelemetry.io/otel/..."}},
	{"examples/settlement", []string{"registry/...", "schedule", "executor", "modernc.org/sqlite"}},
	{"examples/settlement/onpostgres", []string{"registry/postgres", "schedule", "executor", "github.com/jackc/pgx/v5/..."}},
	{"examples/sqlstore", []string{"registry", "registry/backend", "github.com/jackc/pgx/v5/..."}},
	// Examples show user code, which cannot import internal packages.
	{"examples/...", []string{"registry/...", "schedule", "operator", "coordinator", "executor", "handler", "rotatest", "github.com/robfig/cron/v3"}},
}

// usersOfGroup are the packages that may import the decisions and loops of a group. All others see them through these.
var usersOfGroup = []string{"executor", "operator", "coordinator/...", "internal/group/...", "internal/test/..."}

func arrowsPointDown(tr *tree) (faults []string) {
	for _, s := range tr.sources {
		if s.isTest() {
			continue
		}
		may, ok := mayImport(s.dir())
		if !ok {
			faults = append(faults, fmt.Sprintf("%s: no row of reach matches package %s", s.path, s.dir()))
			continue
		}
		for _, imp := range s.imports() {
			target := imp
			if dir, ok := tr.dirOfImport(imp); ok {
				target = dir
			} else if first, _, _ := strings.Cut(imp, "/"); !strings.Contains(first, ".") {
				continue // the standard library
			}
			if !matchesAny(target, may...) || matchesAny(target, "internal/group/...") && !matchesAny(s.dir(), usersOfGroup...) {
				faults = append(faults, fmt.Sprintf("%s: %s may not import %s", s.path, s.dir(), imp))
			}
		}
	}
	return faults
}

func mayImport(pkg string) (patterns []string, ok bool) {
	for _, r := range reach {
		if matchesPattern(pkg, r.pkg) {
			return r.may, true
		}
	}
	return nil, false
}

// schedulesKnowNoFleet follows indirect imports: a reader of schedules should need no package of fleets.
func schedulesKnowNoFleet(tr *tree) (faults []string) {
	for _, dep := range slices.Sorted(maps.Keys(closure(importsOf(tr), "schedule"))) {
		if dep != "schedule" && !matchesAny(dep, "internal/...") || matchesAny(dep, "internal/record") {
			faults = append(faults, fmt.Sprintf("schedule depends on %s", dep))
		}
	}
	for _, s := range tr.sources {
		if s.dir() == "schedule" && !s.isTest() && slices.Contains(s.imports(), "context") {
			faults = append(faults, s.path+": schedule may not import context")
		}
	}
	return faults
}

// importsOf returns the imports of production code within this module, by package.
func importsOf(tr *tree) map[string][]string {
	imports := map[string][]string{}
	for _, s := range tr.sources {
		if s.isTest() {
			continue
		}
		for _, imp := range s.imports() {
			if dir, ok := tr.dirOfImport(imp); ok {
				imports[s.dir()] = append(imports[s.dir()], dir)
			}
		}
	}
	return imports
}

// algorithmsKnowNoBackend follows indirect imports, which internal packages would hide.
func algorithmsKnowNoBackend(tr *tree) (faults []string) {
	imports := importsOf(tr)
	for _, pkg := range slices.Sorted(maps.Keys(imports)) {
		if !matchesAny(pkg, "coordinator/...", "executor/...") || pkg == "internal/group/membertest" {
			continue
		}
		for _, dep := range slices.Sorted(maps.Keys(closure(imports, pkg))) {
			if strings.HasPrefix(dep, "registry/") {
				faults = append(faults, fmt.Sprintf("%s depends on the backend %s", pkg, dep))
			}
		}
	}
	return faults
}

// closure returns start and all nodes reachable from it.
func closure(edges map[string][]string, start string) map[string]bool {
	seen := map[string]bool{}
	for todo := []string{start}; len(todo) > 0; {
		node := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !seen[node] {
			seen[node] = true
			todo = append(todo, edges[node]...)
		}
	}
	return seen
}
