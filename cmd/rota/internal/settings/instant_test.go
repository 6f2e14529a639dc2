package settings

import (
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestParseInstant_ResolvesTheZone has the zone of a time of day come from the environment.
func TestParseInstant_ResolvesTheZone(t *testing.T) {
	local := time.Local
	time.Local = time.FixedZone("here", 3*3600)
	defer func() { time.Local = local }()
	s := New(nil)
	s.Getenv = func(name string) string {
		return map[string]string{"ROTA_TIME": "local", "ROTA_CONFIG": t.TempDir() + "/none"}[name]
	}
	s.AddFlags(&cobra.Command{})
	at, err := s.ParseInstant("at", "2026-11-23 12:00", Past)
	require.NoError(t, err)
	assert.Equal(t, 9, at.UTC().Hour())
}
