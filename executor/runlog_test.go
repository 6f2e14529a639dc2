package executor

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
)

func TestRunLog_LogsWhatEndsAfterItsFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		l := runLog{log: slog.New(slog.NewTextHandler(&text, nil))}
		l.logOrCount(&Run{RunInfo: RunInfo{Job: "j", ID: "first"}}, runFailed, nil)
		l.flush()
		l.logOrCount(&Run{RunInfo: RunInfo{Job: "j", ID: "late"}}, runFailed, nil)
		assert.Contains(t, text.String(), "run=late")
		l.flush()
	})
}
