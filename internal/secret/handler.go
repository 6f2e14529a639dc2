package secret

import (
	"context"
	"fmt"
	"log/slog"
)

// Handler returns a handler whose records have no values of m, in the message and in attributes.
func (m *Masker) Handler(to slog.Handler) slog.Handler { return &logHandler{to, m} }

type logHandler struct {
	slog.Handler
	masker *Masker
}

// Handle implements slog.Handler.
func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	masked := slog.NewRecord(r.Time, r.Level, h.masker.Mask(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		masked.AddAttrs(h.mask(a))
		return true
	})
	return h.Handler.Handle(ctx, masked)
}

// WithAttrs implements slog.Handler.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	masked := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		masked[i] = h.mask(a)
	}
	return &logHandler{h.Handler.WithAttrs(masked), h.masker}
}

// WithGroup implements slog.Handler.
func (h *logHandler) WithGroup(name string) slog.Handler {
	return &logHandler{h.Handler.WithGroup(name), h.masker}
}

// mask returns an attribute as it is unless it has a value of the masker, which makes it a text.
func (h *logHandler) mask(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindGroup:
		var members []any
		for _, member := range v.Group() {
			members = append(members, h.mask(member))
		}
		return slog.Group(a.Key, members...)
	case slog.KindString, slog.KindAny:
		text := v.String()
		if err, ok := v.Any().(error); ok {
			text = fmt.Sprint(err) // which contains a panic of a nil pointer
		}
		if masked := h.masker.Mask(text); masked != text {
			return slog.String(a.Key, masked)
		}
	}
	return slog.Attr{Key: a.Key, Value: v}
}
