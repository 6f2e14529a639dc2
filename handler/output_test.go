package handler

import (
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOutput_IsLoggedLineByLine(t *testing.T) {
	var log journal
	o := newOutput(log.logger(), nil, 0)
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
	assert.Equal(t, "first\nsecwarning\r\nond\n\n\r\nthird \ufffd line\nlastx", o.tail())
}

func TestOutput_LinesAreBounded(t *testing.T) {
	var log journal
	o := newOutput(log.logger(), nil, 0)
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

func TestOutput_IsBoundedInEachMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log journal
		o := newOutput(log.logger(), nil, 3*(lineCost+4))
		s := o.stream("stdout")
		write := func(text string) { _, _ = s.Write([]byte(text)) }
		write("aaaa\nbbbb\ncccc\n" + "dropped\n" + "x\n")
		assert.Equal(t, []string{"stdout: aaaa", "stdout: bbbb", "stdout: cccc"}, log.lines())
		time.Sleep(logWindow - time.Nanosecond)
		write("y\n")
		time.Sleep(time.Nanosecond)
		write("next\n")
		require.Len(t, log.records, 5)
		cut := log.records[3]
		assert.Equal(t, "output cut", cut.Message)
		assert.Equal(t, slog.LevelInfo, cut.Level)
		for key, want := range map[string]string{"lines": "3", "bytes": "9", "end": "aaaa\nbbbb\ncccc\ndropped\nx\ny\nnext\n"} {
			assert.Equal(t, want, attr(cut, key))
		}
		assert.Equal(t, "next", attr(log.records[4], "line"))
		o.reportCut()
		assert.Len(t, log.records, 5, "nothing was cut in the second minute")
	})
}

func TestOutput_OfASecondIsCutByDefault(t *testing.T) {
	var log journal
	o := newOutput(log.logger(), nil, 0)
	s := o.stream("stdout")
	line := []byte(strings.Repeat("x", 199) + "\n")
	for range 250_000 { // 50 MB
		_, _ = s.Write(line)
	}
	s.flush()
	o.reportCut()
	logged := len(log.records) - 1
	assert.Equal(t, defaultLogLimit/(199+lineCost), logged)
	assert.Equal(t, fmt.Sprint(250_000-logged), attr(log.records[logged], "lines"))
	assert.Equal(t, fmt.Sprint(199*(250_000-logged)), attr(log.records[logged], "bytes"))
}

func TestOutput_WithoutBoundAndWithoutLog(t *testing.T) {
	for limit, want := range map[int]int{math.MaxInt: 20_000, -1: 0} {
		var log journal
		o := newOutput(log.logger(), nil, limit)
		s := o.stream("stdout")
		for range 20_000 {
			_, _ = s.Write([]byte("a line of the output\n"))
		}
		o.reportCut()
		assert.Len(t, log.records, want)
		assert.NotEmpty(t, o.tail(), "kept for the error")
	}
}

// The naive twin keeps everything.
func TestOutput_KeepsTheEnd(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	o := newOutput(slog.New(slog.DiscardHandler), nil, 0)
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

func TestOutput_TailHasAMarkForBytesThatAreNotUTF8(t *testing.T) {
	o := newOutput(slog.New(slog.DiscardHandler), nil, 0)
	_, _ = o.stream("stdout").Write([]byte("caf\xe9 latin1"))
	assert.Equal(t, "caf\uFFFD latin1", o.tail())
}

func TestOutput_TailBeginsWithAWholeCharacter(t *testing.T) {
	o := newOutput(slog.New(slog.DiscardHandler), nil, 0)
	_, _ = o.stream("stdout").Write([]byte(strings.Repeat("é", maxTail) + "x"))
	assert.Equal(t, strings.Repeat("é", maxTail/2-1)+"x", o.tail())
}

func TestExcerpt(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "exit code 1"},
		{"progress 1%\rprogress 2%", "exit code 1: progress 2%"},
		{"\x1b[31mred\x07", "exit code 1:  [31mred"},
		{"\xffé", "exit code 1: ?é"},
		{strings.Repeat("é", 100), "exit code 1: " + strings.Repeat("é", 60) + "..."},
	} {
		got := (&ExitError{Code: 1, last: c.text}).Error()
		assert.Equal(t, strings.Join(strings.Fields(c.want), " "), strings.Join(strings.Fields(got), " "), fmt.Sprintf("%q", c.text))
	}
}
