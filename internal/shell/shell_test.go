package shell

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestQuote_MakesOneWordForAShell(t *testing.T) {
	for _, s := range []string{"job-1", "a@b:1/c,d=e+f%g_h.i", "", "two words", "it's", "$HOME", "`id`", "a;b", "~", "*", "line\nbreak", `back\slash`, "ü"} {
		out, err := exec.Command("/bin/sh", "-c", "printf %s "+Quote(s)+" end").Output()
		require.NoError(t, err, s)
		assert.Equal(t, s+"end", string(out))
	}
	assert.Equal(t, "job-1:0/x", Quote("job-1:0/x"), "a plain name has no quotes")
}
