package handler

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestOutput_IsLoggedLineByLine(t *testing.T) {
	var log journal
	o := &output{log: log.logger()}
	stdout, stderr := o.stream("stdout"), o.stream("stderr")
	for _, w := range []struct {
		to   *stream
		text string
	}{
		{stdout, "first\nsec"},
		{stderr, "warning\r\n"},
		{stdout, "ond\n\n\r\nthird \xff line\nlast"},
		{stderr, "x"},
	} {
		n, err := w.to.Write([]byte(w.text))
		assert.NoError(t, err)
		assert.Equal(t, len(w.text), n)
	}
	stdout.flush()
	stderr.flush()
	assert.Equal(t, []string{
		"stdout: first", "stderr: warning", "stdout: second", "stdout: third \uFFFD line", "stdout: last", "stderr: x",
	}, log.lines())
	assert.Equal(t, "first\nsecwarning\r\nond\n\n\r\nthird  line\nlastx", o.tail())
}

func TestOutput_LinesAreBounded(t *testing.T) {
	var log journal
	o := &output{log: log.logger()}
	s := o.stream("stdout")
	long := strings.Repeat("x", maxLine)
	for _, text := range []string{long + "\n", long, "12345", "678\nshort\n"} {
		_, _ = s.Write([]byte(text))
	}
	assert.Equal(t, []string{"stdout: " + long, "stdout: " + long, "stdout: short"}, log.lines())
	var cut []string
	for _, r := range log.records {
		cut = append(cut, attr(r, "cut"))
	}
	assert.Equal(t, []string{"", "8", ""}, cut)
	assert.LessOrEqual(t, cap(s.line), 2*maxLine)
}

// The naive twin keeps everything.
func TestOutput_KeepsTheEnd(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	o := &output{log: slog.New(slog.DiscardHandler)}
	s := o.stream("stdout")
	var all strings.Builder
	for i := range 2000 {
		text := strings.Repeat(string(rune('a'+i%26)), rnd.IntN(3))
		if i%100 == 0 {
			text = strings.Repeat(text, rnd.IntN(2*maxTail))
		}
		_, _ = s.Write([]byte(text))
		all.WriteString(text)
		assert.Equal(t, all.String()[max(0, all.Len()-maxTail):], o.tail())
	}
	assert.LessOrEqual(t, cap(o.kept), 2*maxTail)
}

func TestOutput_TailBeginsWithAWholeCharacter(t *testing.T) {
	o := &output{log: slog.New(slog.DiscardHandler)}
	_, _ = o.stream("stdout").Write([]byte(strings.Repeat("é", maxTail) + "x"))
	assert.Equal(t, strings.Repeat("é", maxTail/2-1)+"x", o.tail())
}

func TestExcerpt(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "exit status 1"},
		{"progress 1%\rprogress 2%", "exit status 1: progress 2%"},
		{"\x1b[31mred\x07", "exit status 1:  [31mred"},
		{"\xffé", "exit status 1: ?é"},
		{strings.Repeat("é", 100), "exit status 1: " + strings.Repeat("é", 60) + "..."},
	} {
		got := (&ExitError{Code: 1, last: c.text}).Error()
		assert.Equal(t, strings.Join(strings.Fields(c.want), " "), strings.Join(strings.Fields(got), " "), fmt.Sprintf("%q", c.text))
	}
}
