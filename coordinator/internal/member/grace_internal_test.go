package member

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestNewMember_RestartGrace(t *testing.T) {
	for rule, o := range map[string]Options{
		"not between 0 and 1h0m0s": {Instance: "a", RestartGrace: -1},
		"is 1h0m1s, not between":   {Instance: "a", RestartGrace: time.Hour + time.Second},
		"requires a name":          {RestartGrace: time.Second},
	} {
		o.Namespace = "test"
		_, err := New(nil, o)
		assert.ErrorContains(t, err, rule)
	}
}
