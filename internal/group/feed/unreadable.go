package feed

import (
	"context"
	"log/slog"

	"github.com/rota-dev/rota/registry"
)

// LogUnreadable logs a record that cannot be decoded, with its remedy.
func LogUnreadable(log *slog.Logger, level slog.Level, key registry.Key, err error) {
	log.Log(context.Background(), level, "record cannot be read; rota leaves it as it is", "key", string(key), "error", err,
		"remedy", "restore the earlier value, or delete the key; docs/protocol/record-edits.md lists the consequences for each record")
}
