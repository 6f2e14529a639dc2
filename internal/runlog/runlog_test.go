package runlog_test

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/internal/runlog"
)

func textTo(b *bytes.Buffer, level slog.Level) slog.Handler {
	return slog.NewTextHandler(b, &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey && groups == nil {
			return slog.Attr{}
		}
		return a
	}})
}

func TestJoin_WritesToEachHandlerByItsLevel(t *testing.T) {
	var process, first, second bytes.Buffer
	plain := slog.New(textTo(&process, slog.LevelWarn))
	log := runlog.Join(plain, textTo(&first, slog.LevelInfo), textTo(&second, slog.LevelError))
	log.Debug("to none")
	log.With("a", 1).WithGroup("g").Info("to the first", "b", 2)
	log.Error("to all")
	assert.Equal(t, "level=ERROR msg=\"to all\"\n", process.String())
	assert.Equal(t, "level=INFO msg=\"to the first\" a=1 g.b=2\nlevel=ERROR msg=\"to all\"\n", first.String())
	assert.Equal(t, "level=ERROR msg=\"to all\"\n", second.String())
	assert.Same(t, plain, runlog.Join(plain))
}

func TestSplit_ReturnsTheParts(t *testing.T) {
	var process, kept bytes.Buffer
	plain, handlers := runlog.Split(runlog.Join(slog.New(textTo(&process, slog.LevelInfo)), textTo(&kept, slog.LevelInfo)))
	plain.Info("to the process")
	slog.New(handlers[0]).Info("kept")
	assert.Equal(t, "level=INFO msg=\"to the process\"\n", process.String())
	assert.Equal(t, "level=INFO msg=kept\n", kept.String())
	_, handlers = runlog.Split(plain)
	assert.Empty(t, handlers)
}
