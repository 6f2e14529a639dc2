package conformance_test

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/conformance"
	"github.com/rota-dev/rota/internal/test/etcdbackend"
	"github.com/rota-dev/rota/internal/test/memorybackend"
	"github.com/rota-dev/rota/internal/test/zookeeperbackend"
)

var update = flag.Bool("update", false, "write docs/conformance.md")

// backends are the backends of this repository, in the order of the page's columns.
func backends() []conformance.Backend {
	return []conformance.Backend{
		memorybackend.New(),
		etcdbackend.New(etcdbackend.Config{Members: 1}),
		etcdbackend.New(etcdbackend.Config{Members: 3, RootPassword: "some"}),
		zookeeperbackend.New(zookeeperbackend.Config{Members: 1, SuperPassword: "some", Quota: true}),
		zookeeperbackend.New(zookeeperbackend.Config{Members: 3, SuperPassword: "some", Quota: true}),
		// As registry/postgres/internal/postgresbackend, in a module that this one cannot import.
		{Name: "postgres", Lacks: conformance.SingleServer("is one server: a standby is never read, and promoted by other programs")},
	}
}

func TestPageIsUpToDate(t *testing.T) {
	const path = "../docs/conformance.md"
	want := conformance.Page(backends()...)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	if string(got) != want {
		t.Errorf("%s is out of date: run go test ./conformance -update", path)
	}
}

func TestPageIsComplete(t *testing.T) {
	page := conformance.Page(
		conformance.Backend{Name: "one", Lacks: conformance.Lacks{conformance.Move: "stays where it is", "W16": "is far away"}},
		conformance.Backend{Name: "two"},
	)
	for _, c := range conformance.Cases() {
		assert.Contains(t, page, c.Title())
	}
	for _, p := range conformance.Promises() {
		assert.Contains(t, page, string(p))
	}
	for _, want := range []string{
		"| Move | stays where it is | F14 |",
		"| W16 | is far away | W16 |",
		"| F14 a store that moves to a new address is found again |  | Move | lacking | passed |",
		"| W16 events arrive promptly, even right after the watch began |  |  | lacking | passed |",
		"| F04 a client of an isolated member loses its session in time and gets no stale fresh reads | **S** | Isolate | passed | passed |",
		"### two\n\nNothing.\n",
	} {
		assert.Contains(t, page, want)
	}
	assert.Regexp(t, `\| one \| (\d+) \| \d+ \| 2 \|`, page)
}
