package record

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDifferences(t *testing.T) {
	differences := func(first, second string) []string {
		return Differences(json.RawMessage(first), "before", json.RawMessage(second), "now")
	}
	t.Run("ignore the spelling of JSON", func(t *testing.T) {
		assert.Empty(t, differences(`{"shards":1,"run_on":{"a":"b"}}`, `{ "run_on": {"a": "b"}, "shards": 1 }`))
	})
	t.Run("name each field with both values, except the revision", func(t *testing.T) {
		assert.Equal(t,
			[]string{`param: "x" before, none now`, `schedule: "@hourly" before, "@daily" now`, `shards: 2 before, 3 now`},
			differences(`{"revision":1,"shards":2,"schedule":"@hourly","param":"x"}`, `{"revision":2,"shards":3,"schedule":"@daily"}`))
	})
	t.Run("shorten long values to the part that differs", func(t *testing.T) {
		long := strings.Repeat("x", 5000)
		got := differences(`{"param":"`+long+`a`+long+`"}`, `{"param":"`+long+`b`+long+`"}`)
		assert.Len(t, got, 1)
		assert.Contains(t, got[0], "xa")
		assert.Contains(t, got[0], "xb")
		assert.Less(t, len(got[0]), 250)
	})
	t.Run("do not split characters", func(t *testing.T) {
		long := strings.Repeat("é", 500)
		for _, s := range differences(`{"param":"`+long+`é"}`, `{"param":"`+long+`è"}`) {
			assert.Equal(t, strings.ToValidUTF8(s, "?"), s)
		}
	})
	t.Run("beyond the bound are counted", func(t *testing.T) {
		fields := make([]string, 20)
		for i := range fields {
			fields[i] = fmt.Sprintf("%q:1", fmt.Sprint("f", i))
		}
		got := differences("{}", "{"+strings.Join(fields, ",")+"}")
		assert.Len(t, got, 13)
		assert.Equal(t, "and 8 more", got[12])
	})
	t.Run("of a definition that is not an object are an error text", func(t *testing.T) {
		assert.Equal(t, []string{"one definition is not a JSON object"}, differences("[]", "{}"))
	})
}
