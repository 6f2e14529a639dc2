package simulate

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/rota-dev/rota/registry"
)

// warningLog is a slog.Handler that collects the warnings and errors of a fleet, and counts all lines from INFO on.
type warningLog struct {
	next  *slog.Logger // receives all lines too, if not nil
	attrs []slog.Attr
	to    *warningLog // the one that collects; nil: this one

	mu    sync.Mutex
	total int
	warns []loggedLine
}

type loggedLine struct {
	at   time.Time
	text string
}

func (l *warningLog) root() *warningLog {
	if l.to != nil {
		return l.to
	}
	return l
}

func (l *warningLog) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || l.next != nil && l.next.Enabled(ctx, level)
}

func (l *warningLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := &warningLog{attrs: append(l.attrs[:len(l.attrs):len(l.attrs)], attrs...), to: l.root()}
	if l.next != nil {
		c.next = slog.New(l.next.Handler().WithAttrs(attrs))
	}
	return c
}

func (l *warningLog) WithGroup(string) slog.Handler { return l }

func (l *warningLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		var b strings.Builder
		fmt.Fprintf(&b, "level=%s %s", r.Level, r.Message)
		write := func(a slog.Attr) bool {
			fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
			return true
		}
		for _, a := range l.attrs {
			write(a)
		}
		r.Attrs(write)
		l.root().keep(r.Level, b.String())
	}
	if l.next != nil && l.next.Enabled(ctx, r.Level) {
		return l.next.Handler().Handle(ctx, r)
	}
	return nil
}

func (l *warningLog) keep(level slog.Level, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total++
	if level >= slog.LevelWarn {
		l.warns = append(l.warns, loggedLine{time.Now(), text})
	}
}

// add adds a line at ERROR.
func (l *warningLog) add(text string) { l.keep(slog.LevelError, text) }

// lines returns how many lines were logged.
func (l *warningLog) lines() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// names reports whether a warning or an error has named the key since an instant.
func (l *warningLog) names(key registry.Key, since time.Time) bool {
	for _, line := range l.warned(since) {
		if strings.Contains(line, string(key)) {
			return true
		}
	}
	return false
}

// warned returns the warnings and errors since an instant.
func (l *warningLog) warned(since time.Time) (texts []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.warns {
		if !line.at.Before(since) {
			texts = append(texts, line.at.UTC().Format("15:04:05.000 ")+line.text)
		}
	}
	return texts
}
