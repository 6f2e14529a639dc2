package serve

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry/memory"
)

// poolServer returns a server of a process with a store, and an operator of its group.
func poolServer(t *testing.T, p *process, store *memory.Server) (*server, *operator.Operator) {
	t.Helper()
	s := &server{options: p.options}
	var err error
	s.ex, err = executor.New(store.Client("web-1"), "default", executor.Options{Logger: s.log})
	require.NoError(t, err)
	op, err := operator.New(store.Client("console"), "default", "")
	require.NoError(t, err)
	return s, op
}

func sizesOf(t *testing.T, op *operator.Operator) map[string]int {
	t.Helper()
	sizes, err := op.AddPools(t.Context(), nil)
	require.NoError(t, err)
	return sizes
}

const poolFile = `pools: {db: 2, licence: 1}
kinds:
  mail: {command: [/bin/true], pool: mails}
jobs:
  settle: {every: 1m, command: [/bin/true], pool: db}
`

func TestSetPools(t *testing.T) {
	t.Run("sets missing sizes; those that are set stay, and each difference is logged", func(t *testing.T) {
		p, store := newProcess(""), memory.New()
		s, op := poolServer(t, p, store)
		require.NoError(t, op.SetPool(t.Context(), "db", 5))
		s.setPools(t.Context(), file(t, poolFile))
		assert.Equal(t, map[string]int{"db": 5, "licence": 1}, sizesOf(t, op))
		differing := p.find(t, "the size of a pool is not that of the file")
		require.Len(t, differing, 1)
		assert.Equal(t, []any{"db", 5.0, 2.0}, []any{differing[0]["pool"], differing[0]["size"], differing[0]["size_in_file"]})
		missing := p.find(t, "a pool of jobs has no size")
		require.Len(t, missing, 1)
		assert.Equal(t, "mails", missing[0]["pool"])
	})
	t.Run("the first of two files that differ decides", func(t *testing.T) {
		p, store := newProcess(""), memory.New()
		s, op := poolServer(t, p, store)
		s.setPools(t.Context(), file(t, poolFile))
		s.setPools(t.Context(), file(t, "pools: {db: 9, more: 3}\njobs: {a: {every: 1m, command: [/bin/true]}}\n"))
		assert.Equal(t, map[string]int{"db": 2, "licence": 1, "more": 3}, sizesOf(t, op))
		assert.Len(t, p.find(t, "the size of a pool is not that of the file"), 1)
	})
	t.Run("writes nothing for a file without pools", func(t *testing.T) {
		p, store := newProcess(""), memory.New()
		s, op := poolServer(t, p, store)
		s.setPools(t.Context(), file(t, "jobs: {a: {every: 1m, command: [/bin/true]}}\n"))
		assert.Empty(t, sizesOf(t, op))
		assert.Zero(t, store.Counts("web-1").Reads)
		assert.Empty(t, p.records(t))
	})
	t.Run("tries again until the store answers, and logs an error once", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p, store := newProcess(""), memory.New()
			s, op := poolServer(t, p, store)
			free := store.Fill()
			s.beginSetPools(t.Context(), file(t, poolFile))
			time.Sleep(time.Minute)
			assert.Len(t, p.find(t, "sizes of pools not set; trying again"), 1)
			free()
			time.Sleep(poolsRetry)
			synctest.Wait()
			assert.Equal(t, map[string]int{"db": 2, "licence": 1}, sizesOf(t, op))
			s.pools.Wait()
		})
	})
	t.Run("ends with the next one", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p, store := newProcess(""), memory.New()
			s, op := poolServer(t, p, store)
			free := store.Fill()
			s.beginSetPools(t.Context(), file(t, poolFile))
			time.Sleep(time.Second)
			s.beginSetPools(t.Context(), file(t, "pools: {db: 9}\njobs: {a: {every: 1m, command: [/bin/true]}}\n"))
			free()
			s.pools.Wait()
			assert.Equal(t, map[string]int{"db": 9}, sizesOf(t, op))
		})
	})
}

func TestRun_SetsTheSizesOfPoolsAtTheStartAndAtAReload(t *testing.T) {
	path := writeFile(t, "pools: {db: 0}\njobs:\n  settle: {every: 1m, shell: echo ran, pool: db}\n")
	inBubble(t, path, func(t *testing.T, p *process) {
		time.Sleep(90 * time.Second)
		assert.Empty(t, p.lines(t, "settle"), "a pool of size 0 holds all runs back")
		assert.Empty(t, p.find(t, "a pool of jobs has no size"))
		rewrite(t, path, "pools: {db: 0, licence: 1}\njobs:\n  other: {every: 1m, shell: echo ran, pool: licence}\n")
		p.signals <- syscall.SIGHUP
		time.Sleep(time.Minute)
		assert.Len(t, p.lines(t, "other"), 1)
		p.signals <- syscall.SIGTERM
		require.NoError(t, p.await(t))
	})
}

func TestFile_NotesPoolsThatItDoesNotHave(t *testing.T) {
	notes := func(content string) []string { return file(t, content).Notes }
	assert.Equal(t, []string{
		"kinds.mail: the file has no size for pool mails; without one, runs wait",
		"jobs.a: the file has no size for pool dbb; without one, runs wait: is it db?",
	}, notes("pools: {db: 2}\nkinds: {mail: {command: [/bin/true], pool: mails}}\njobs: {a: {every: 1m, command: [/bin/true], pool: dbb}}\n"))
	assert.Empty(t, notes("jobs: {a: {every: 1m, command: [/bin/true], pool: dbb}}\n"), "operators have set the size")
}
