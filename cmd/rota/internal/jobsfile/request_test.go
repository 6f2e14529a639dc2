package jobsfile

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
)

// loadOne returns the only job of a file.
func loadOne(t *testing.T, content string, host Host) Job {
	t.Helper()
	f, err := Load("f", []byte(content), host)
	require.NoError(t, err)
	require.Len(t, f.Jobs, 1)
	return f.Jobs[0]
}

func TestRequest_ReadsSecretsForEachRequest(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization")+"|"+r.Header.Get("X-Key")+"|"+r.Header.Get("X-Shard"))
	}))
	defer server.Close()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("Bearer {{.Shard}}\r\n"), 0o600))
	host := testHost()
	host.LookupEnv = func(name string) (string, bool) { return "of " + name, true }
	j := loadOne(t, fmt.Sprintf(`jobs:
  a:
    every: 1m
    http: {url: %q, header: {Authorization: {from_file: %q}, X-Key: {from_env: KEY}, X-Shard: "{{.Shard}}"}}
`, server.URL, token), host)
	require.NoError(t, j.Handler.Handle(t.Context(), &executor.Run{RunInfo: executor.RunInfo{Shard: 3}}))
	require.NoError(t, os.WriteFile(token, []byte("Bearer second"), 0o600))
	require.NoError(t, j.Handler.Handle(t.Context(), &executor.Run{RunInfo: executor.RunInfo{Shard: 4}}))
	assert.Equal(t, []string{"Bearer {{.Shard}}|of KEY|3", "Bearer second|of KEY|4"}, got, "a secret is no template")

	require.NoError(t, os.Remove(token))
	err := j.Handler.Handle(t.Context(), &executor.Run{})
	require.ErrorContains(t, err, "header Authorization: open ")
	var permanent *executor.PermanentError
	assert.NotErrorAs(t, err, &permanent, "the file may come back")
	assert.Len(t, got, 2)
}

func TestRequest_TrustsTheAuthorityOfTheFile(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	authority := filepath.Join(t.TempDir(), "ca.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(authority, certificate, 0o600))
	const content = "jobs:\n  a: {every: 1m, http: {url: %q%s}}\n"
	trusting := loadOne(t, fmt.Sprintf(content, server.URL, fmt.Sprintf(", tls: {ca_file: %q}", authority)), testHost())
	require.NoError(t, trusting.Handler.Handle(t.Context(), &executor.Run{}))
	plain := loadOne(t, fmt.Sprintf(content, server.URL, ""), testHost())
	require.ErrorContains(t, plain.Handler.Handle(t.Context(), &executor.Run{}), "certificate")

	require.NoError(t, os.WriteFile(authority, []byte("no certificate"), 0o600))
	_, err := Load("f", fmt.Appendf(nil, content, server.URL, fmt.Sprintf(", tls: {ca_file: %q}", authority)), testHost())
	require.ErrorContains(t, err, "holds no certificate")
}

func TestCommand_GetsItsVariables(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("s3cret\n"), 0o600))
	list := filepath.Join(t.TempDir(), "list")
	host := testHost()
	host.LookupEnv = func(string) (string, bool) { return "of env", true }
	j := loadOne(t, fmt.Sprintf(`defaults: {env: {A: default, B: default}}
jobs:
  a:
    every: 1m
    env: {B: own, FILE: {from_file: %q}, VARIABLE: {from_env: V}, EMPTY: "", LIST: %q}
    shell: 'echo "$A $B $FILE $VARIABLE <$EMPTY> <$ROTA_PASSWORD>" > "$LIST"'
`, secret, list), host)
	require.NoError(t, j.Handler.Handle(t.Context(), &executor.Run{}))
	got, err := os.ReadFile(list)
	require.NoError(t, err)
	assert.Equal(t, "default own s3cret of env <> <>\n", string(got))
	assert.NotContains(t, j.Digest+j.Work, "s3cret")
}
