// Package runlog joins the logger of a process with the handlers that keep the logs of single runs.
package runlog

import (
	"context"
	"errors"
	"log/slog"
)

// Join returns a logger whose records go to log, and to the handlers in kept.
func Join(log *slog.Logger, kept ...slog.Handler) *slog.Logger {
	if len(kept) == 0 {
		return log
	}
	return slog.New(joined{log.Handler(), kept})
}

// Split returns the parts of a logger of Join to which no attributes were added since: handler.Cmd bounds the output in the log of
// the process only.
func Split(log *slog.Logger) (plain *slog.Logger, kept []slog.Handler) {
	if j, ok := log.Handler().(joined); ok {
		return slog.New(j.plain), j.kept
	}
	return log, nil
}

type joined struct {
	plain slog.Handler
	kept  []slog.Handler
}

// Enabled implements slog.Handler.
func (j joined) Enabled(ctx context.Context, level slog.Level) bool {
	for _, h := range j.kept {
		if h.Enabled(ctx, level) {
			return true
		}
	}
	return j.plain.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (j joined) Handle(ctx context.Context, r slog.Record) error {
	var errs []error
	for _, h := range j.kept {
		if h.Enabled(ctx, r.Level) {
			errs = append(errs, h.Handle(ctx, r.Clone()))
		}
	}
	if j.plain.Enabled(ctx, r.Level) {
		errs = append(errs, j.plain.Handle(ctx, r))
	}
	return errors.Join(errs...)
}

// WithAttrs implements slog.Handler.
func (j joined) WithAttrs(attrs []slog.Attr) slog.Handler {
	return j.derive(func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) })
}

// WithGroup implements slog.Handler.
func (j joined) WithGroup(name string) slog.Handler {
	return j.derive(func(h slog.Handler) slog.Handler { return h.WithGroup(name) })
}

func (j joined) derive(with func(slog.Handler) slog.Handler) slog.Handler {
	next := joined{with(j.plain), make([]slog.Handler, len(j.kept))}
	for i, h := range j.kept {
		next.kept[i] = with(h)
	}
	return next
}
