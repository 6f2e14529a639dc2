package contain

import (
	"context"
	"log/slog"
)

// Logger returns log with a handler whose panics drop the line, or slog.Default() so if log is nil.
func Logger(log *slog.Logger) *slog.Logger {
	if log == nil {
		log = slog.Default()
	}
	if _, ok := log.Handler().(logHandler); ok {
		return log
	}
	return slog.New(logHandler{log.Handler()})
}

// logHandler is a slog.Handler in which a panic of another one drops a line. There is no place to report it.
type logHandler struct{ to slog.Handler }

func (h logHandler) Enabled(ctx context.Context, level slog.Level) (enabled bool) {
	_ = Call("slog.Handler", func() error { enabled = h.to.Enabled(ctx, level); return nil })
	return enabled
}

func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	return Call("slog.Handler", func() error { return h.to.Handle(ctx, r) })
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.with(func() slog.Handler { return h.to.WithAttrs(attrs) })
}

func (h logHandler) WithGroup(name string) slog.Handler {
	return h.with(func() slog.Handler { return h.to.WithGroup(name) })
}

// with returns the handler that derive makes, or h if it panics.
func (h logHandler) with(derive func() slog.Handler) slog.Handler {
	to := h.to
	_ = Call("slog.Handler", func() error { to = derive(); return nil })
	return logHandler{to}
}
