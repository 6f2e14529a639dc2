package scheduletext

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCircles(t *testing.T) {
	jobs := map[string][]string{
		"a": {"b", "c"}, "b": {"d"}, "c": {"d", "a"}, "d": nil,
		"self": {"self"}, "beside": {"self", "a"}, "unknown": {"nowhere"},
	}
	followed := func(job string) []string { return jobs[job] }
	for start, want := range map[string][]string{
		"a": {"a", "c"}, "c": {"c", "a"}, "b": nil, "d": nil, "self": {"self"}, "beside": nil, "unknown": nil,
	} {
		t.Run(start, func(t *testing.T) { assert.Equal(t, want, NewCircles(followed).Through(start)) })
	}

	t.Run("an earlier search hides no circle", func(t *testing.T) {
		c := NewCircles(followed)
		for range 2 {
			for _, start := range []string{"beside", "d", "b", "unknown", "a", "c", "self"} {
				assert.Equal(t, NewCircles(followed).Through(start), c.Through(start), start)
			}
		}
	})
	t.Run("each job is visited once", func(t *testing.T) {
		visits := 0
		layers := func(job string) []string { // each job of a layer follows both jobs of the next one
			visits++
			layer, err := strconv.Atoi(job[1:])
			if err != nil || layer == 40 {
				return nil
			}
			next := strconv.Itoa(layer + 1)
			return []string{"l" + next, "r" + next}
		}
		c := NewCircles(layers)
		for layer := range 41 {
			assert.Nil(t, c.Through("l"+strconv.Itoa(layer)))
			assert.Nil(t, c.Through("r"+strconv.Itoa(layer)))
		}
		assert.Equal(t, 2*41, visits)
	})
}
