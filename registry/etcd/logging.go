package etcd

import "log/slog"

func cause(err error) slog.Attr { return slog.Any("cause", err) }
