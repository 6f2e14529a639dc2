package secret

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newMasker(t *testing.T, values ...string) *Masker {
	t.Helper()
	m := &Masker{}
	for _, v := range values {
		require.True(t, m.Add(v))
	}
	return m
}

func TestMask_ReplacesWholeValues(t *testing.T) {
	m := newMasker(t, "token-12345", "token-12345-and-more", "token-12345")
	assert.Equal(t, "a *** b *** c", m.Mask("a token-12345 b token-12345-and-more c"))
	assert.Equal(t, "token-1234", m.Mask("token-1234"))
	assert.False(t, m.Add("short"), "it is too short to replace")
	assert.Equal(t, "short", m.Mask("short"))
	assert.Equal(t, "a", (*Masker)(nil).Mask("a"))
	assert.Equal(t, "a", (&Masker{}).Mask("a"))
}

func TestFilter_ReplacesValuesAcrossWrites(t *testing.T) {
	m := newMasker(t, "token-12345", "line one\nline two")
	const text = "xtoken-12345y\ntoken-1 token-token-12345\nline one\nline two\ntoken-"
	const want = "x***y\ntoken-1 token-***\n***\ntoken-"
	for size := 1; size <= len(text); size++ {
		var out strings.Builder
		f := m.Filter(&out)
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			written, err := f.Write([]byte(rest[:n]))
			require.NoError(t, err)
			require.Equal(t, n, written)
			rest = rest[n:]
		}
		require.NoError(t, f.Close())
		require.Equal(t, want, out.String(), "in parts of %d bytes", size)
	}
}

func TestFilter_ReplacesValuesThatOverlap(t *testing.T) {
	m := newMasker(t, "token-12345", "token-12345-and-more", "45-other-value")
	for text, want := range map[string]string{
		"token-12345-and-more.": "***.", "token-12345": "***", "token-12345 ": "*** ", "token-12345-other-value": "***-other-value", "45-other-value": "***",
	} {
		var out strings.Builder
		f := m.Filter(&out)
		for i := range len(text) {
			_, err := f.Write([]byte{text[i]})
			require.NoError(t, err)
		}
		require.NoError(t, f.Close())
		assert.Equal(t, want, out.String())
	}
}

func TestFilter_HoldsBackOnlyWhatMayBeAValue(t *testing.T) {
	var out strings.Builder
	f := newMasker(t, "token-12345").Filter(&out)
	_, err := io.WriteString(f, "a line\n")
	require.NoError(t, err)
	assert.Equal(t, "a line\n", out.String())
	_, err = io.WriteString(f, "a tok")
	require.NoError(t, err)
	assert.Equal(t, "a line\na ", out.String())
}

func TestHandler_MasksMessagesAndAttributes(t *testing.T) {
	var out strings.Builder
	log := slog.New(newMasker(t, "token-12345").Handler(slog.NewTextHandler(&out, nil)))
	log.With("with", "token-12345").WithGroup("g").Info("message token-12345", "text", "token-12345",
		"error", errors.New("no token-12345"), slog.Group("group", "inner", "token-12345"), "n", 1)
	assert.NotContains(t, out.String(), "token-12345")
	for _, part := range []string{`msg="message ***"`, "with=***", "g.text=***", `g.error="no ***"`, "g.group.inner=***", "g.n=1"} {
		assert.Contains(t, out.String(), part)
	}
}

func TestMasker_Error(t *testing.T) {
	var m Masker
	m.Add("hunter2-hunter2")
	cause := &os.PathError{Op: "open", Path: "/hunter2-hunter2", Err: os.ErrNotExist}
	err := m.Error(cause)
	assert.Equal(t, "open /***: file does not exist", err.Error())
	assert.ErrorIs(t, err, os.ErrNotExist)
	assert.Equal(t, os.ErrNotExist, m.Error(os.ErrNotExist), "an error without a value is itself")
	assert.NoError(t, m.Error(nil))
}
