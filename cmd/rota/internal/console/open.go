package console

import "log/slog"

func openConsole(o options, log *slog.Logger) opener { return nil }
