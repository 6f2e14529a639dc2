package member

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/registry/memory"
)

func TestNewMember_Labels(t *testing.T) {
	_, err := New(memory.New().Client("a"), Options{Namespace: "test", Labels: map[string]string{"": "x", "zone": "\n"}})
	assert.ErrorContains(t, err, "labels: an empty key")
	assert.ErrorContains(t, err, `the value of "zone" has a control character`)
}
