package record

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReceiver_LosesNothing(t *testing.T) {
	r := Receiver{
		Name: "ops", Jobs: []NotifiedJob{{"a", "failing", 1e18, 2e18}, {"b", "", 0, 2e18}}, Rest: 3,
		Flight: []json.RawMessage{json.RawMessage(`{"id":"x"}`)}, DownSince: 1e18, Error: "connection refused",
	}
	b, err := Encode(&r)
	require.NoError(t, err)
	assert.JSONEq(t, `{"name":"ops","jobs":[{"job":"a","state":"failing","since":"2001-09-09T01:46:40Z","at":"2033-05-18T03:33:20Z"},{"job":"b","at":"2033-05-18T03:33:20Z"}],
		"rest":3,"flight":[{"id":"x"}],"down_since":"2001-09-09T01:46:40Z","error":"connection refused"}`, string(b))
	got, err := DecodeReceiver(b)
	require.NoError(t, err)
	assert.Equal(t, r, *got)
}

func TestReceiver_RefusesWhatBreaksARule(t *testing.T) {
	many := make([]NotifiedJob, MaxNotified+1)
	for i := range many {
		many[i].Job = fmt.Sprintf("%05d", i)
	}
	for name, r := range map[string]Receiver{
		"no name":            {},
		"a name with slash":  {Name: "a/b"},
		"too many jobs":      {Name: "ops", Jobs: many},
		"too many in flight": {Name: "ops", Flight: make([]json.RawMessage, MaxFlight+1)},
		"a rest below zero":  {Name: "ops", Rest: -1},
		"a job twice":        {Name: "ops", Jobs: []NotifiedJob{{Job: "a"}, {Job: "a"}}},
		"a job without name": {Name: "ops", Jobs: []NotifiedJob{{}}},
		"a long message":     {Name: "ops", Flight: []json.RawMessage{json.RawMessage(`"` + strings.Repeat("x", maxMessageBytes) + `"`)}},
		"a long error":       {Name: "ops", Error: strings.Repeat("x", 4*MaxReceiverErrorBytes+1)},
	} {
		assert.Error(t, r.Check(), name)
	}
	r := Receiver{Name: "ops", Jobs: many[:MaxNotified]}
	assert.NoError(t, r.Check())
	_, err := DecodeReceiver([]byte("{"))
	assert.Error(t, err)
}
