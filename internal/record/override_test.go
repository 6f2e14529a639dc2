package record

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMergeDefinition(t *testing.T) {
	def := json.RawMessage(`{"name":"settle","revision":3,"shards":2,"timeout":"9s","novelty":[1.50,"<a>"]}`)
	merged, err := MergeDefinition(def, json.RawMessage(`{"shards":4,"timeout":null,"param":"x"}`))
	require.NoError(t, err)
	assert.Equal(t, `{"name":"settle","novelty":[1.50,"<a>"],"param":"x","revision":3,"shards":4}`, string(merged))
	for text, want := range map[string]string{
		`{"name":"a"}`: `field "name" cannot be overridden`, `{"revision":4}`: `field "revision" cannot be overridden`,
		`{"start_paused":true}`: `field "start_paused" cannot be overridden`, `3`: "cannot unmarshal number",
	} {
		_, err := MergeDefinition(def, json.RawMessage(text))
		assert.ErrorContains(t, err, want, text)
	}
}

func TestDecodePlan_ChecksStoredDefinitions(t *testing.T) {
	text := `{"format":1,"job":"a","epochs":[{"number":1,"from":null,"definition":{"name":"a","shards":1},"stored_definition":{"name":"a","shards":0}}],"owners":{}}`
	_, err := DecodePlan([]byte(text))
	assert.ErrorContains(t, err, "epochs: number 1: stored_definition: shards is 0")
}
