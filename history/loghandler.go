package history

import (
	"context"
	"encoding"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// logHandler adds records to the log of a run: the message, and the attributes as KEY=VALUE. The executor recovers its panics.
type logHandler struct {
	log   *runLog
	attrs string // of With, each after a blank
	group string // the prefix of keys
}

// Enabled implements slog.Handler.
func (h *logHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.log.all.o.Level.Level()
}

// WithAttrs implements slog.Handler.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	for _, a := range attrs {
		next.attrs += attrText(h.group, a)
	}
	return &next
}

// WithGroup implements slog.Handler.
func (h *logHandler) WithGroup(name string) slog.Handler {
	next := *h
	if name != "" {
		next.group += name + "."
	}
	return &next
}

// Handle implements slog.Handler.
func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	if stream, line, cut, ok := outputOf(r); ok {
		h.log.add(r.Time, stream, line, cut)
		return nil
	}
	var b strings.Builder
	b.WriteString(r.Message)
	b.WriteString(h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		b.WriteString(attrText(h.group, a))
		return true
	})
	at := r.Time
	if at.IsZero() {
		at = time.Now()
	}
	h.log.add(at, kindOf(r.Level), b.String(), 0)
	return nil
}

// outputOf returns the line of a record of handler.Cmd.
func outputOf(r slog.Record) (stream, line string, cut int, ok bool) {
	if r.Message != "output" || r.NumAttrs() < 2 || r.NumAttrs() > 3 {
		return "", "", 0, false
	}
	r.Attrs(func(a slog.Attr) bool {
		switch {
		case a.Key == "stream" && a.Value.Kind() == slog.KindString:
			stream = a.Value.String()
		case a.Key == "line" && a.Value.Kind() == slog.KindString:
			line, ok = a.Value.String(), true
		case a.Key == "cut" && a.Value.Kind() == slog.KindInt64:
			cut = int(a.Value.Int64())
		}
		return true
	})
	return stream, line, cut, ok && (stream == LogStdout || stream == LogStderr)
}

// kindOf returns the kind of lines of a level.
func kindOf(level slog.Level) string {
	switch {
	case level < slog.LevelInfo:
		return "debug"
	case level < slog.LevelWarn:
		return "info"
	case level < slog.LevelError:
		return "warn"
	}
	return "error"
}

// attrText returns an attribute after a blank.
func attrText(group string, a slog.Attr) string {
	v := a.Value.Resolve()
	if a.Equal(slog.Attr{}) {
		return ""
	}
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			group += a.Key + "."
		}
		var all string
		for _, member := range v.Group() {
			all += attrText(group, member)
		}
		return all
	}
	return " " + quoteText(group+a.Key) + "=" + quoteText(valueText(v))
}

func valueText(v slog.Value) string {
	switch v.Kind() {
	case slog.KindTime:
		return v.Time().Format(time.RFC3339Nano)
	case slog.KindAny:
		switch v := v.Any().(type) {
		case error:
			return v.Error()
		case encoding.TextMarshaler:
			if text, err := v.MarshalText(); err == nil {
				return string(text)
			}
		case []byte:
			return string(v)
		}
		return fmt.Sprintf("%+v", v.Any())
	}
	return v.String()
}

// quoteText quotes a text that would not be one word.
func quoteText(s string) string {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool {
		return r == '"' || r == '=' || r == utf8.RuneError || unicode.IsSpace(r) || !unicode.IsPrint(r)
	}) {
		return strconv.Quote(s)
	}
	return s
}

// addLocked adds the lines of a text. It returns the sizes of lines that were dropped for lack of memory or of room for the fire.
func (l *runLog) addLocked(at time.Time, kind, text string, cut int) (lostLines, lostBytes int64) {
	if l.ended {
		return 0, 0
	}
	text = strings.TrimRight(text, "\n")
	for first := true; first || text != ""; first = false {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		missing := 0
		if text == "" {
			missing = cut
		}
		if most := l.buffer.maxLine(); len(line) > most {
			missing += len(line) - most
			line = line[:most]
		}
		line = cleanText(line)
		if missing > 0 {
			line += fmt.Sprintf(" [and %d bytes]", missing)
		}
		b := appendLogLine(nil, at, kind, line)
		if l.silent {
			l.buffer.lines++
			l.buffer.bytes += int64(len(b))
			lostLines, lostBytes = lostLines+1, lostBytes+int64(len(b))
			continue
		}
		lines, bytes := l.buffer.add(b)
		lostLines, lostBytes = lostLines+lines, lostBytes+bytes
	}
	return lostLines, lostBytes
}
