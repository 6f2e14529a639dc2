package postgres

import "log/slog"

func errorAttr(err error) slog.Attr { return slog.Any("error", err) }
