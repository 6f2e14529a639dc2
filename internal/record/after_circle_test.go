package record

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFindCircle(t *testing.T) {
	jobs := map[string][]string{
		"a": {"b", "c"}, "b": {"d"}, "c": {"d", "a"}, "d": nil,
		"self": {"self"}, "beside": {"self", "a"}, "unknown": {"nowhere"},
	}
	followed := func(job string) []string { return jobs[job] }
	for start, want := range map[string][]string{
		"a": {"a", "c"}, "c": {"c", "a"}, "b": nil, "d": nil, "self": {"self"}, "beside": nil, "unknown": nil,
	} {
		t.Run(start, func(t *testing.T) { assert.Equal(t, want, FindCircle(start, followed)) })
	}

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
		assert.Nil(t, FindCircle("l0", layers))
		assert.Equal(t, 1+2*40, visits)
	})
}
