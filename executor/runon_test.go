package executor_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry/memory"
)

func TestRunOn(t *testing.T) {
	zone := func(name string) map[string]string { return map[string]string{"zone": name} }
	runOn := func(e *executor.Executor, f *fleet, name string, revision int) {
		t.Helper()
		job := f.job(4, takes(0))
		job.Revision, job.RunOn = revision, zone(name)
		require.NoError(t, e.Register(job))
	}
	by := func(f *fleet, minute int) map[string]int {
		who := map[string]int{}
		for _, names := range f.began(minute) {
			who[names[0]]++
			assert.Len(t, names, 1)
		}
		return who
	}
	bubble(t, "has a job run where the labels are, from a new definition on elsewhere", func(t *testing.T, f *fleet) {
		a := f.start("a", executor.Options{Labels: zone("east")}, 4, takes(0))
		f.start("b", executor.Options{Labels: zone("west")}, 4, takes(0))
		until(1)
		assert.Equal(t, map[string]int{"a1": 2, "b1": 2}, by(f, 1))
		runOn(a, f, "east", 1)
		until(2)
		assert.Equal(t, map[string]int{"a1": 4}, by(f, 2))
		runOn(a, f, "west", 2)
		until(3)
		assert.Equal(t, map[string]int{"b1": 4}, by(f, 3))
	})
	bubble(t, "owes the fires while nobody has the labels", func(t *testing.T, f *fleet) {
		a := f.start("a", executor.Options{Labels: zone("east")}, 4, takes(0))
		runOn(a, f, "north", 1)
		until(2)
		assert.Empty(t, f.began(2))
		f.start("b", executor.Options{Labels: zone("north")}, 4, takes(0))
		assert.Equal(t, map[string]int{"b1": 4}, by(f, 2), "the latest, as it is late")
		until(3)
		assert.Equal(t, map[string]int{"b1": 4}, by(f, 3))
	})
	t.Run("takes no labels of a process that no job could name", func(t *testing.T) {
		_, err := executor.New(memory.New().Client("a"), "test", executor.Options{Labels: map[string]string{"": "east"}})
		assert.ErrorContains(t, err, "labels: an empty key")
	})
}
