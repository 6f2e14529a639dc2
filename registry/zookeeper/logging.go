package zookeeper

import (
	"context"
	"fmt"
	"log/slog"
)

// printf takes what the client library has to say. None of it is news: what matters is
// told by errors and states. The library logs no credentials.
type printf struct{ logger *slog.Logger }

func (p printf) Printf(format string, args ...any) {
	if p.logger.Enabled(context.Background(), slog.LevelDebug) {
		p.logger.Debug("client library: " + fmt.Sprintf(format, args...))
	}
}
