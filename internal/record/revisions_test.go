package record

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMember_Revisions(t *testing.T) {
	for name, c := range map[string]struct {
		of   map[string]int
		want string
	}{
		"that are all zero are omitted":           {nil, `{"name":"","session":"","jobs":["a","b","c"],"unsupported":["d","e"]}`},
		"that are all the same are one number":    {map[string]int{"a": 7, "b": 7, "c": 7, "d": 7, "e": 7}, `{"name":"","session":"","jobs":["a","b","c"],"unsupported":["d","e"],"revisions":[7]}`},
		"that differ follow the order of jobs":    {map[string]int{"b": 1, "d": 2, "e": 2}, `{"name":"","session":"","jobs":["a","b","c"],"unsupported":["d","e"],"revisions":[0,1,0,2]}`},
		"that end with zeros keep the first zero": {map[string]int{"a": 1}, `{"name":"","session":"","jobs":["a","b","c"],"unsupported":["d","e"],"revisions":[1,0]}`},
	} {
		t.Run(name, func(t *testing.T) {
			m := Member{Jobs: []string{"a", "b", "c"}, Unsupported: []string{"d", "e"}}
			m.SetRevisions(c.of)
			b, err := Encode(m)
			require.NoError(t, err)
			assert.Equal(t, c.want, string(b))
			m, err = Decode[Member](b)
			require.NoError(t, err)
			for _, job := range []string{"a", "b", "c", "d", "e"} {
				got, has := m.Revision(job)
				assert.True(t, has, job)
				assert.Equal(t, c.of[job], got, job)
			}
			_, has := m.Revision("x")
			assert.False(t, has)
		})
	}
}
