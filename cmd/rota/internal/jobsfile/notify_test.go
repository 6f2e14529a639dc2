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

func TestLoadNotify_ReadsAJobsFileAndItsKeyAlone(t *testing.T) {
	text, err := os.ReadFile("testdata/good/all-keys.yaml")
	require.NoError(t, err)
	all := loadGood(t, "all-keys.yaml", Host{})
	f, err := LoadNotify("f", text, Host{})
	require.NoError(t, err)
	got, want := f.Notify.Options, all.Notify.Options
	assert.Len(t, got.Receivers, len(want.Receivers))
	got.Receivers, want.Receivers = nil, nil
	assert.Equal(t, want, got)
	assert.Equal(t, all.Namespace, f.Namespace)
	assert.Equal(t, all.Notify.Digest, f.Notify.Digest)

	f, err = LoadNotify("f", []byte("notify: {receivers: {ops: {webhook: {url: \"https://example.org/x\"}}}, default: []}\njobs:\n  settle: {notify: [ops]}\n"), Host{})
	require.NoError(t, err)
	assert.Equal(t, map[string][]string{"settle": {"ops"}}, f.Notify.Options.Jobs)
}

func TestLoadNotify_NamesEachProblem(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "the file is empty",
		"- a":                              "the file is a list, not a map with the key notify",
		"jobs: {a: {every: 1m}}":           "the file needs the key notify",
		"notify: {}":                       "receivers",
		"notify: {receivers: {ops: {}}}\n": "needs one of webhook and mail",
		"notify: {receivers: {ops: {webhook: {}}}}":                                                                "url",
		"notify: {receivers: {ops: {webhook: {url: \"https://example.org/\"}}}, quiet: soon}":                      "quiet",
		"notify: {receivers: {ops: {webhook: {url: \"https://example.org/\"}}}}\njobs: {settle: {notify: [opps]}}": "there is no receiver \"opps\" in notify.receivers: is it ops?",
		"notify: {receivers: {ops: {webhook: {url: \"https://example.org/\"}}}}\njobs: [settle]":                   "is a list, not a map from names to jobs",
		"notify: {receivers: {ops: {webhook: {url: {from_file: /nonexistent/file}}}}}":                             "/nonexistent/file",
		"notify: {receivers: {ops: {webhook: {url: \"https://example.org/\"}}}}\nnotify: {receivers: {}}":          "is given twice",
	} {
		_, err := LoadNotify("f", []byte(text), Host{ReadFile: os.ReadFile})
		assert.ErrorContains(t, err, want, text)
	}
}
