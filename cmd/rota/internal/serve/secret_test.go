//go:build unix

package serve

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// No value that rota has read leaves the process: not in the log, nor in what the history, and as the store, keeps of errors.
func TestRun_MasksSecretsInAllSinks(t *testing.T) {
	const token, key = "token-0123456789", "key-from-a-file"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "not "+r.Header.Get("Authorization"), http.StatusTeapot)
	}))
	defer server.Close()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "key"), []byte(key+"\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pair"), []byte("first half of a key\nsecond half of a key\n"), 0o600))
	runs := filepath.Join(dir, "runs.jsonl")
	p := newProcess(writeFile(t, `history: {url: "jsonl:`+runs+`", keep: all, log: true}
jobs:
  program:
    every: 1s
    env: {API_TOKEN: {from_env: TOKEN}, API_KEY: {from_file: `+filepath.Join(dir, "key")+`}, PIN: {from_env: PIN}}
    shell: 'printf "%s" "$API_KEY" | cut -c1-5 | tr -d "\n"; printf "%s\n" "$API_KEY" | cut -c6-; echo "failed with $API_TOKEN $PIN" >&2; exit 1'
  request: {every: 1s, http: {url: "`+server.URL+`", header: {Authorization: {from_env: TOKEN}}}}
  flood: {every: 1s, output: 1KiB, env: {API_TOKEN: {from_env: TOKEN}}, shell: 'for i in 1 2 3 4 5 6 7 8 9; do echo "$API_TOKEN"; done'}
  pieces:
    every: 1s
    env: {PAIR: {from_file: `+filepath.Join(dir, "pair")+`}}
    shell: 'echo begun; echo "$PAIR" | head -n 1; sleep 1.2; echo "$PAIR" | tail -n 1; echo ended'
  private: {every: 1s, log: none, shell: 'echo for nobody; exit 1'}
  other: {every: 1s, shell: 'echo "inherited ${TOKEN-nothing}"'}
`))
	p.env = append(p.env, "TOKEN="+token, "PIN=1234")
	p.start(t.Context())
	ended := func(job string) bool {
		return len(p.find(t, "run failed")) > 0 && strings.Contains(p.text(), `"job":"`+job+`"`)
	}
	require.Eventually(t, func() bool {
		return ended("program") && ended("request") && ended("private") && len(p.lines(t, "pieces")) > 2 && len(p.lines(t, "other")) > 0 && strings.Contains(p.text(), "not ***") && len(p.find(t, "output cut")) > 0
	}, patience, tick)
	p.signals <- syscall.SIGTERM
	require.NoError(t, p.await(t))
	assert.Contains(t, p.lines(t, "program"), "failed with *** 1234")
	assert.Contains(t, p.lines(t, "program"), "***", "across writes")
	assert.Contains(t, p.lines(t, "other"), "inherited nothing")
	cut := p.find(t, "output cut")[0]
	assert.Equal(t, "flood", cut["job"])
	assert.Equal(t, strings.Repeat("***\n", 9), cut["end"])
	kept, err := os.ReadFile(runs)
	require.NoError(t, err)
	assert.Contains(t, string(kept), "failed with *** 1234")
	assert.Regexp(t, `"kind":"log",.*"job":"program",.* stdout \*\*\*\\n`, string(kept), "across writes, and pieces")
	assert.Regexp(t, `"kind":"log",.*"job":"program",.* stderr failed with \*\*\* 1234\\n`, string(kept))
	assert.Regexp(t, `"kind":"run",.*"job":"private",.*exit code 1: for nobody`, string(kept))
	assert.NotRegexp(t, `"kind":"log",.*"job":"private"`, string(kept))
	assert.NotRegexp(t, `"job":"private",.*"output":`, string(kept))
	info, err := os.Stat(runs)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	for _, sink := range []string{p.text(), string(kept)} {
		assert.NotContains(t, sink, token)
		assert.NotContains(t, sink, key)
		assert.NotContains(t, sink, "half of a key")
	}
	short := p.find(t, "a secret is not masked")
	require.Len(t, short, 1)
	assert.Equal(t, "jobs.program.env.PIN has a value of fewer than 8 bytes, which is not masked in logs and errors", short[0]["reason"])
}
