package zookeeper

import (
	"context"
	"fmt"
	"log/slog"
)

// libraryLogger logs the messages of the client library at DEBUG: errors and state changes
// already report everything that matters. The library logs no credentials.
type libraryLogger struct{ log *slog.Logger }

func (p libraryLogger) Printf(format string, args ...any) {
	if p.log.Enabled(context.Background(), slog.LevelDebug) {
		p.log.Debug("client library: " + fmt.Sprintf(format, args...))
	}
}
