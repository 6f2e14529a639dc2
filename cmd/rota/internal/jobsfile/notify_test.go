package jobsfile

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/secret"
	"github.com/rota-dev/rota/notify"
)

func TestNotify_FillsEachOption(t *testing.T) {
	f := loadGood(t, "all-keys.yaml", Host{})
	o := f.Notify.Options
	assert.Len(t, o.Receivers, 4)
	for _, name := range []string{"chat", "mail", "relay", "direct"} {
		assert.NotNil(t, o.Receivers[name], name)
	}
	o.Receivers = nil
	assert.Equal(t, notify.Options{
		Default: []string{"chat"}, Jobs: map[string][]string{"settle": {"chat", "mail"}}, After: 2 * time.Minute, Quiet: 30 * time.Minute,
		LateAfter: 5 * time.Minute, HideErrors: true, Console: "https://rota.example.org/",
	}, o)
}

// load loads a file with the key notify, and with more.
func loadNotify(t *testing.T, text string, host Host) *File {
	t.Helper()
	f, err := Load("f", []byte("notify: "+text+"\njobs:\n  a: {every: 1m, command: [/bin/true]}\n"), host)
	require.NoError(t, err)
	return f
}

func TestNotify_TheDigestChangesWithTheSettings(t *testing.T) {
	const one = `{receivers: {ops: {webhook: {url: "https://example.org/x"}}}`
	plain := loadNotify(t, one+"}", Host{})
	assert.Equal(t, plain.Notify.Digest, loadNotify(t, one+"}", Host{}).Notify.Digest)
	for _, other := range []string{one + ", quiet: 1m}", one + ", default: []}", `{receivers: {ops: {webhook: {url: "https://example.org/y"}}}}`} {
		assert.NotEqual(t, plain.Notify.Digest, loadNotify(t, other, Host{}).Notify.Digest, other)
	}
	assert.Equal(t, plain.Digest(), loadNotify(t, one+", quiet: 1m}", Host{}).Digest(), "that of the jobs does not")
	none, err := Load("f", []byte("jobs:\n  a: {every: 1m, command: [/bin/true]}\n"), Host{})
	require.NoError(t, err)
	assert.Empty(t, none.Notify.Options.Receivers)
}

// The secrets of receivers are masked in the logs of the process, and read for each message.
func TestNotify_SecretsAreReadAndMasked(t *testing.T) {
	got := make(chan string, 2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- r.URL.Path + " " + r.Header.Get("Authorization") + " " + string(body)
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	hook, token, short := write("hook", server.URL+"/hook-9f8e7d\n"), write("token", "first-token"), write("short", "abc")
	masker := &secret.Masker{}
	f := loadNotify(t, `{receivers: {ops: {webhook: {url: {from_file: `+hook+`}, header: {Authorization: {from_file: `+token+`}, X-S: {from_file: `+short+`}}, body: "{{.Transition}}"}}}}`,
		Host{ReadFile: os.ReadFile, Secrets: masker})
	assert.Equal(t, []string{"notify.receivers.ops.webhook.header.X-S has a value of fewer than 8 bytes, which is not masked in logs and errors"}, f.Warnings)
	assert.Equal(t, "*** ***", masker.Mask(server.URL+"/hook-9f8e7d first-token"))
	write("token", "second-token")
	_, err := notify.SendTest(context.Background(), f.Notify.Options.Receivers["ops"], "n", "g")
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "hook-9f8e7d")
	assert.Equal(t, "/hook-9f8e7d second-token test", <-got)
	assert.Equal(t, "***", masker.Mask("second-token"))
}
