package rotacmd_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/rotacmd"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// run executes a command line, whose words are separated by spaces, and returns the exit code with
// what was written.
func run(t *testing.T, o rotacmd.Options, line string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = rotacmd.Run(t.Context(), o, strings.Fields(line), rotacmd.Streams{In: strings.NewReader(""), Out: &stdout, Err: &stderr})
	return code, stdout.String(), stderr.String()
}

// mine returns Options with the scheme mine, whose URLs are clients of a server.
func mine(server *memory.Server) rotacmd.Options {
	open := func(_ context.Context, url string, _ rotacmd.Connection) (registry.Registry, error) {
		return server.Client(url), nil
	}
	return rotacmd.Options{Schemes: map[string]rotacmd.OpenFunc{"mine": open}}
}

// startFleet starts an instance with a job named nightly.
func startFleet(t *testing.T, server *memory.Server) {
	t.Helper()
	e, err := executor.New(server.Client("web-1"), "billing", executor.Options{Instance: "web-1"})
	require.NoError(t, err)
	require.NoError(t, e.Register(executor.Job{
		Name: "nightly", Schedule: schedule.Cron("0 3 * * *"),
		Handler: executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil }),
	}))
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() { assert.NoError(t, e.Shutdown(context.Background())) })
}

func TestRun_OpensRegistriesOfItsSchemes(t *testing.T) {
	t.Setenv("ROTA_CONFIG", filepath.Join(t.TempDir(), "config.yaml"))
	server := memory.New()
	startFleet(t, server)
	o := mine(server)

	code, out, errs := run(t, o, "jobs --registry mine://x --namespace billing -o name")
	assert.Equal(t, 0, code, errs)
	assert.Equal(t, "nightly\n", out)

	code, _, errs = run(t, o, "context set own --registry mine://x --namespace billing")
	assert.Equal(t, 0, code, errs)
	code, out, errs = run(t, o, "pause nightly --context own")
	assert.Equal(t, 0, code, errs)
	assert.Contains(t, out, "paused nightly")

	code, _, errs = run(t, o, "jobs --registry theirs://x --namespace billing")
	assert.Equal(t, 2, code)
	assert.Contains(t, errs, "the scheme must be etcd://, zk://, mine:// or postgres://")
	code, _, _ = run(t, rotacmd.Options{}, "jobs --registry mine://x --namespace billing")
	assert.Equal(t, 2, code, "the scheme is that of its Options alone")
}

func TestRun_AcceptsItsSchemesInFilesOfJobs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "jobs.yaml")
	text := "registry: {url: \"mine://x\"}\njobs: {a: {every: 1h, command: [/bin/true]}}\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	code, _, errs := run(t, mine(memory.New()), "validate --no-lookup "+file)
	assert.Equal(t, 0, code, errs)
	code, _, errs = run(t, rotacmd.Options{}, "validate --no-lookup "+file)
	assert.Equal(t, 2, code)
	assert.Contains(t, errs, "the scheme must be etcd://, zk:// or postgres://")
}

func TestRun_PassesCredentialsOfAContext(t *testing.T) {
	config := filepath.Join(t.TempDir(), "config.yaml")
	t.Setenv("ROTA_CONFIG", config)
	t.Setenv("SECRET", "s3cret")
	text := "current: own\ncontexts: {own: {registry: \"mine://x\", namespace: billing, user: kim, password_env: SECRET, tls: {server_name: store}}}\n"
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	var got rotacmd.Connection
	open := func(_ context.Context, _ string, c rotacmd.Connection) (registry.Registry, error) {
		got = c
		return memory.New().Client("a"), nil
	}
	code, _, errs := run(t, rotacmd.Options{Schemes: map[string]rotacmd.OpenFunc{"mine": open}}, "jobs")
	assert.Equal(t, 2, code, errs) // there is no fleet
	assert.Equal(t, "kim", got.Username)
	assert.Equal(t, "s3cret", got.Password)
	assert.Equal(t, "store", got.TLS.ServerName)
	assert.NotNil(t, got.Logger)
	assert.IsType(t, &tls.Config{}, got.TLS)
}

func TestRun_RefusesSchemesThatCannotBeUsed(t *testing.T) {
	o := rotacmd.Options{Schemes: map[string]rotacmd.OpenFunc{"etcd": open, "none": nil}}
	code, _, errs := run(t, o, "version")
	assert.Equal(t, 2, code)
	assert.Contains(t, errs, `scheme "etcd": has a meaning already`)
	assert.Contains(t, errs, `scheme "none": has no function`)
}
