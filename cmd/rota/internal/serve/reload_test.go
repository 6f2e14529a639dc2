package serve

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/jobsfile"
)

func file(t *testing.T, content string) *jobsfile.File {
	t.Helper()
	f, err := jobsfile.Load("f", []byte(content), jobsfile.Host{})
	require.NoError(t, err)
	return f
}

func TestPlanReload(t *testing.T) {
	const first = "revision: 7\njobs:\n  a: {every: 1m, command: [/bin/echo, a]}\n  b: {every: 1m, command: [/bin/echo, b]}\n"
	for name, c := range map[string]struct {
		next                    string
		added, changed, removed []string
		problem                 string
		revisions               []int // in memory
	}{
		"nothing changes": {first, nil, nil, nil, "", []int{7, 7}},
		"another command needs no revision": {
			"revision: 7\njobs:\n  a: {every: 1m, command: [/bin/echo, x]}\n  b: {every: 1m, command: [/bin/echo, b]}\n",
			nil,
			[]string{"a"},
			nil, "",
			[]int{7, 7},
		},
		"another bound needs no revision": {
			"revision: 7\njobs:\n  a: {every: 1m, max_running: 2, command: [/bin/echo, a]}\n  b: {every: 1m, command: [/bin/echo, b]}\n",
			nil,
			[]string{"a"},
			nil, "",
			[]int{7, 7},
		},
		"another schedule needs one": {
			"revision: 7\njobs:\n  a: {every: 2m, command: [/bin/echo, a]}\n  b: {every: 1m, command: [/bin/echo, b]}\n",
			nil,
			[]string{"a"},
			nil, `job "a": its definition differs in schedule and its revision 7 does not; raise it`,
			[]int{8, 7},
		},
		"another schedule with one": {
			"revision: 8\njobs:\n  a: {every: 2m, command: [/bin/echo, a]}\n  b: {every: 1m, command: [/bin/echo, b]}\n",
			nil,
			[]string{"a"},
			nil, "",
			[]int{8, 7},
		},
		"a lower revision": {
			"revision: 6\njobs:\n  a: {every: 1m, command: [/bin/echo, a]}\n  b: {every: 1m, command: [/bin/echo, b]}\n",
			nil, nil, nil, "job \"a\": revision 6 is below 7, which is in force\njob \"b\": revision 6 is below 7, which is in force",
			[]int{7, 7},
		},
		"jobs come and go": {
			"revision: 7\njobs:\n  b: {every: 1m, command: [/bin/echo, b]}\n  c: {every: 1m, command: [/bin/echo, c]}\n",
			[]string{"c"},
			nil,
			[]string{"a"},
			"",
			[]int{7, 7},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := planReload(file(t, first), file(t, c.next), nil, false)
			assert.Equal(t, [][]string{c.added, c.changed, c.removed}, [][]string{got.added, got.changed, got.removed})
			if c.problem == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, c.problem)
			}
			next := file(t, c.next)
			got, err = planReload(file(t, first), next, nil, true)
			require.NoError(t, err)
			require.Len(t, got.register, len(c.revisions))
			for i, revision := range c.revisions {
				assert.Equal(t, revision, got.register[i].Revision)
				assert.Equal(t, revision, next.Jobs[i].Revision, "for the next reload")
			}
		})
	}
}

func TestListNames(t *testing.T) {
	assert.Equal(t, "", listNames(nil))
	assert.Equal(t, "a, b", listNames([]string{"a", "b"}))
	assert.Contains(t, listNames(make([]string, 25)), "and 5 more")
}

func TestPlanReload_AJobThatComesBackHasItsStoredRevision(t *testing.T) {
	gone := map[string]jobsfile.Job{"a": file(t, "revision: 9\njobs:\n  a: {every: 1m, command: [/bin/echo]}\n").Jobs[0]}
	now := file(t, "revision: 7\njobs:\n  b: {every: 1m, command: [/bin/echo]}\n")
	for every, revision := range map[string]int{"1m": 9, "2m": 10} {
		next := file(t, "revision: 7\njobs:\n  b: {every: 1m, command: [/bin/echo]}\n  a: {every: "+every+", command: [/bin/echo]}\n")
		_, err := planReload(now, next, gone, false)
		require.ErrorContains(t, err, `job "a": revision 7 is below 9, which is in force`)
		got, err := planReload(now, next, gone, true)
		require.NoError(t, err)
		assert.Equal(t, []string{"a"}, got.added)
		assert.Empty(t, got.changed)
		assert.Equal(t, revision, next.Jobs[1].Revision)
	}
}
