package record

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFindOthers(t *testing.T) {
	members := []*Member{
		{Name: "d", Jobs: []string{"job", "other"}, Revisions: []int{5, 1}, Differs: []string{"other"}},
		{Name: "c", Jobs: []string{"job"}, Revisions: []int{4}, Own: map[string]string{"job": `schedule "every 10s"`}},
		{Name: "b", Unsupported: []string{"job"}, Revisions: []int{5}, Differs: []string{"job"}},
		{Name: "a", Jobs: []string{"another"}},
	}
	texts := func(job string, stored int) (all []string) {
		for _, o := range FindOthers(members, job, stored) {
			all = append(all, o.String())
		}
		return all
	}
	assert.Equal(t, []string{
		"b has revision 5 with other content than the stored one",
		`c has revision 4 (schedule "every 10s"), and revision 5 is stored`,
	}, texts("job", 5))
	assert.Equal(t, []string{"d has revision 1 with other content than the stored one"}, texts("other", 1))
	assert.Empty(t, texts("nobody's", 0))
}

func TestDescribeOwn(t *testing.T) {
	stored := `{"name":"job","revision":5,"schedule":"every 1m","shards":2,"param":"secret"}`
	for own, want := range map[string]string{
		`{"name":"job","revision":4,"schedule":"every 10s","shards":3,"param":"other secret"}`: `param, schedule "every 10s", shards 3`,
		`{"name":"job","revision":4,"schedule":"every 1m","param":"secret"}`:                   "shards none",
		`{"name":"job","revision":4,"schedule":"every 1m","shards":2,"param":"secret"}`:        "",
		`spoilt`: "",
	} {
		assert.Equal(t, want, DescribeOwn(json.RawMessage(own), json.RawMessage(stored)))
	}
	long := DescribeOwn(json.RawMessage(`{"schedule":"`+strings.Repeat("é", 200)+`"}`), json.RawMessage(`{}`))
	assert.LessOrEqual(t, len(long), maxOwnBytes+len("..."))
}
