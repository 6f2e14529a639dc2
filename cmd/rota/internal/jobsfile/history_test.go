package jobsfile

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func loadHistory(t *testing.T, text string) (History, error) {
	t.Helper()
	f, err := Load("f", []byte("history: "+text+"\njobs:\n  a: {every: 1m, command: [/bin/true]}\n"), Host{})
	if err != nil {
		return History{}, err
	}
	return f.History, nil
}

func TestHistory_HasAShortFormAndDefaults(t *testing.T) {
	for text, want := range map[string]History{
		"sqlite:runs.db":                         {URL: "sqlite:runs.db"},
		"jsonl:/var/log/runs.jsonl":              {URL: "jsonl:/var/log/runs.jsonl"},
		"postgres://rota@db/history":             {URL: "postgres://rota@db/history"},
		"postgres:///history?host=/run/postgres": {URL: "postgres:///history?host=/run/postgres"},
		"{url: 'mysql://db/history', retention: 720h, rows_per_job: 5, keep: notable, migrate: true, tls: {enabled: false}}": {
			URL: "mysql://db/history", Retention: 720 * time.Hour, RowsPerJob: 5,
		},
	} {
		got, err := loadHistory(t, text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got)
		assert.Equal(t, text == "jsonl:/var/log/runs.jsonl", got.JSONLines())
	}
}

func TestHistory_NeedsAFile(t *testing.T) {
	for _, url := range []string{"'jsonl:'", "'sqlite:'", "'sqlite://'"} {
		_, err := loadHistory(t, url)
		assert.ErrorContains(t, err, "f:1:10: history: names no file: write ")
	}
}

// Errors appear in logs, and must not contain the password.
func TestHistory_RefusesPasswords(t *testing.T) {
	for _, url := range []string{
		"postgres://kim:secret@db/x", "postgres://kim:se/secret@db/x", "postgres://db/x?password=secret", "postgresql://a,b/x?user=kim&password=secret",
		"mysql://kim:secret@db/x", "mysql://:secret@db/x", "mysql://kim:%zzsecret@db/x", "postgres://db/x?sslpassword=secret", "oracle://kim:secret@db",
		"postgres:kim:secret@db/x",
	} {
		_, err := loadHistory(t, url)
		require.Error(t, err, url)
		assert.NotContains(t, err.Error(), "secret")
	}
}

func TestHistory_ConnectsWithTheSecretsOfTheHost(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("p\n"), 0o600))
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, []byte("\n"), 0o600))
	host := Host{ReadFile: os.ReadFile, LookupEnv: func(name string) (string, bool) {
		text, ok := map[string]string{"U": "kim", "EMPTY": ""}[name]
		return text, ok
	}}
	o, err := History{UserEnv: "U", PasswordFile: file, TLS: TLSFiles{Enabled: true, ServerName: "db"}}.Connection(host)
	require.NoError(t, err)
	assert.Equal(t, "kim p db", o.User+" "+o.Password+" "+o.TLS.ServerName)
	o, err = History{}.Connection(host)
	require.NoError(t, err)
	assert.Zero(t, o)
	for want, h := range map[string]History{
		"credentials of the history: the environment variable NONE is not set": {PasswordEnv: "NONE"},
		"the environment variable EMPTY is empty":                              {UserEnv: "EMPTY"},
		empty + " is empty": {PasswordFile: empty},
		"no such file":      {UserFile: file + "2"},
		"read ca_file: ":    {TLS: TLSFiles{CAFile: file + "2"}},
	} {
		_, err := h.Connection(host)
		assert.ErrorContains(t, err, want)
	}
}

func TestLoad_ResolvesTheFileOfTheHistoryAgainstTheDirectoryOfTheJobsFile(t *testing.T) {
	for url, want := range map[string]string{
		"sqlite:runs.db": "sqlite:/etc/rota/runs.db", "sqlite://night/runs.db": "sqlite:/etc/rota/night/runs.db", "jsonl:../runs": "jsonl:/etc/runs",
		"jsonl:/var/runs": "jsonl:/var/runs", "sqlite:///var/runs.db": "sqlite:///var/runs.db", "mysql://host/runs": "mysql://host/runs",
	} {
		f, err := Load("/etc/rota/jobs.yaml", []byte("history: "+url+"\njobs: {a: {every: 1m, command: [/bin/true]}}\n"), Host{})
		require.NoError(t, err)
		assert.Equal(t, want, f.History.URL)
	}
}
