package view

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPolicy(t *testing.T) {
	for definition, want := range map[string]string{
		`{}`: "",
		`{"on_misfire":"run latest","catchup_window":"6h","on_crash":"rerun elsewhere","max_attempts":3,"timeout":"1h30m"}`: "misfire: run latest | within 6h | crash: rerun elsewhere, 3 attempts | time-out 1h30m",
		`{"retry":{"max":-1,"initial":"30s","max_interval":"10m"},"on_overlap":"skip"}`:                                     "retry without end, 30s..10m | overlap: skip",
		`{"tracking":"claims","strategy":"single","run_on":{"zone":"a","gpu":"yes"}}`:                                       "tracks claims | strategy single | run on gpu=yes,zone=a",
		`{"retry":7,"strategy":"sticky"}`: "retry 0, .. | strategy sticky",
	} {
		p := policyOf(json.RawMessage(definition))
		assert.Equal(t, want, p.describe())
	}
}
