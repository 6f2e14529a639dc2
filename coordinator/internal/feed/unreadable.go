package feed

import (
	"context"
	"log/slog"

	"github.com/rota-dev/rota/registry"
)

// LogUnreadable logs a record that cannot be decoded.
func LogUnreadable(log *slog.Logger, level slog.Level, key registry.Key, err error) {
	log.Log(context.Background(), level, "unreadable record left alone", "key", string(key), "error", err,
		"remedy", "write the record back as it was, or delete the key; docs/operating.md has what that costs")
}
