package postgres_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/postgres"
	"github.com/rota-dev/rota/cmd/rota/rotacmd"
	"github.com/rota-dev/rota/internal/registryurl"
	store "github.com/rota-dev/rota/registry/postgres"
)

func execute(t *testing.T, args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = rotacmd.Run(t.Context(), rotacmd.Options{}, args, rotacmd.Streams{In: strings.NewReader(""), Out: &o, Err: &e})
	return code, o.String(), e.String()
}

func TestMigrate(t *testing.T) {
	t.Setenv("ROTA_CONFIG", t.TempDir()+"/none.yaml")
	s, err := postgres.StartDevServer(t.Context())
	require.NoError(t, err)
	defer s.Stop()
	url := s.URL() + "&schema=team"
	open := func() error {
		reg, err := postgres.Open(t.Context(), url, registryurl.Options{Logger: slog.New(slog.DiscardHandler)})
		if err == nil {
			err = reg.Close(t.Context())
		}
		return err
	}
	require.ErrorIs(t, open(), store.ErrNoSchema)
	for _, missing := range []string{url, strings.Replace(url, "?", "none?", 1)} { // the schema, the database
		_, _, errs := execute(t, "jobs", "-n", "x", "--registry", missing)
		assert.Contains(t, errs, "rota postgres migrate", missing)
		assert.NotContains(t, errs, "firewall", missing)
	}
	for range 2 {
		code, out, errs := execute(t, "postgres", "migrate", "--registry", url)
		require.Zero(t, code, errs)
		assert.Equal(t, fmt.Sprintf("the schema has version %d\n", store.SchemaVersion()), out)
	}
	require.NoError(t, open())
	_, _, errs := execute(t, "jobs", "-n", "x", "--registry", url)
	assert.Contains(t, errs, "# x/default", "the registry answers, without a fleet")
}

func TestMigrate_Print(t *testing.T) {
	t.Setenv("ROTA_CONFIG", t.TempDir()+"/none.yaml")
	code, out, errs := execute(t, "postgres", "migrate", "--print")
	require.Zero(t, code, errs)
	assert.Contains(t, out, "CREATE SCHEMA rota;")
	_, out, _ = execute(t, "postgres", "migrate", "--print", "--registry", "postgres://db?schema=team")
	assert.Contains(t, out, "CREATE TABLE team.kv")
}

func TestMigrate_NamesTheProblem(t *testing.T) {
	t.Setenv("ROTA_CONFIG", t.TempDir()+"/none.yaml")
	for args, want := range map[string]string{
		"postgres migrate":                                   "postgres://HOST/DATABASE",
		"postgres migrate --registry etcd://a":               "postgres://HOST/DATABASE",
		"postgres migrate --registry postgres://a?colour=1":  "colour",
		"postgres migrate --registry postgres://127.0.0.1:1": "127.0.0.1:1",
		"jobs -n x --registry postgres://u:s3cret@a":         "which it must not have",
	} {
		code, _, errs := execute(t, strings.Fields(args)...)
		assert.NotZero(t, code, args)
		assert.Contains(t, errs, want, args)
		assert.NotContains(t, errs, "s3cret", args)
	}
}
