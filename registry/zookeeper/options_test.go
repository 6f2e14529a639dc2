package zookeeper

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOptions_DefaultLogger(t *testing.T) {
	o, err := Options{Endpoints: []string{"localhost:1"}}.complete()
	require.NoError(t, err)
	require.Same(t, slog.Default(), o.Logger)
}
