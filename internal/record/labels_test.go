package record

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCheckLabels(t *testing.T) {
	t.Run("accepts labels within the bounds", func(t *testing.T) {
		assert.Empty(t, CheckLabels(nil, 0))
		assert.Empty(t, CheckLabels(map[string]string{strings.Repeat("k", 100): strings.Repeat("v", 200), "区": ""}, 2))
	})
	t.Run("returns all errors, sorted by key", func(t *testing.T) {
		var got []string
		for _, err := range CheckLabels(map[string]string{
			"": "x", "a": "\xff", "b": "x\ny", "c\x00": "", "d": strings.Repeat("v", 201), strings.Repeat("k", 101): "",
		}, 5) {
			got = append(got, err.Error())
		}
		assert.Equal(t, []string{
			"6 labels, at most 5", "an empty key", `the value of "a" is not UTF-8`, `the value of "b" has a control character`,
			`the key "c\x00" has a control character`, `the value of "d" has 201 bytes, at most 200`,
			`the key "` + strings.Repeat("k", 100) + `" has 101 bytes, at most 100`,
		}, got)
	})
}

func TestHasLabels(t *testing.T) {
	labels := map[string]string{"zone": "a", "pool": "", "disk": "ssd"}
	for _, c := range []struct {
		text   string
		wanted map[string]string
		has    bool
	}{
		{"no labels wanted", nil, true},
		{"one of them", map[string]string{"zone": "a"}, true},
		{"all of them", map[string]string{"zone": "a", "pool": "", "disk": "ssd"}, true},
		{"another value", map[string]string{"zone": "b"}, false},
		{"one of two", map[string]string{"zone": "a", "disk": "hdd"}, false},
		{"a missing key with an empty value", map[string]string{"rack": ""}, false},
	} {
		t.Run(c.text, func(t *testing.T) { assert.Equal(t, c.has, HasLabels(labels, c.wanted)) })
	}
	assert.False(t, HasLabels(nil, map[string]string{"zone": ""}))
}

func TestLabelsText(t *testing.T) {
	assert.Equal(t, "disk=ssd, pool=, zone=a", LabelsText(map[string]string{"zone": "a", "pool": "", "disk": "ssd"}))
}
