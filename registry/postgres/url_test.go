package postgres_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry/postgres"
)

func TestParseURL(t *testing.T) {
	for text, want := range map[string]postgres.Options{
		"postgres://db":      {Endpoints: []string{"db"}},
		"postgresql://db:1/": {Endpoints: []string{"db:1"}},
		"postgres://a:1,[::1]:2/jobs?schema=team&user=u": {Endpoints: []string{"a:1", "[::1]:2"}, Database: "jobs", Schema: "team", Username: "u"},
		"postgres://p/jobs?listen=a,b:1&poll=only&sslmode=disable&target_session_attrs=read-write": {
			Endpoints: []string{"p"}, Database: "jobs", ListenEndpoints: []string{"a", "b:1"}, PollOnly: true,
		},
	} {
		got, err := postgres.ParseURL(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	o, err := postgres.ParseURL("postgres://db?sslmode=verify-full")
	require.NoError(t, err)
	require.NotNil(t, o.TLS)
	assert.False(t, o.TLS.InsecureSkipVerify)
}

func TestParseURL_NamesTheProblem(t *testing.T) {
	for text, want := range map[string]string{
		"db":                           "the scheme must be",
		"mysql://db":                   "the scheme must be",
		"postgres://":                  "is not host:port",
		"postgres://a,,b":              "is not host:port",
		"postgres://a:port":            "is not host:port",
		"postgres://a?schema=Team":     "lower-case letters",
		"postgres://a?schema=pg_x":     "pg_",
		"postgres://a?sslmode=require": "not disable or verify-full",
		"postgres://a?target_session_attrs=standby": "only the primary",
		"postgres://a?poll=yes":                     "not only",
		"postgres://a?colour=red":                   `unknown parameter "colour"`,
		"postgres://a?user=a&user=b":                "user is named twice",
	} {
		_, err := postgres.ParseURL(text)
		assert.ErrorContains(t, err, want, text)
	}
	for _, text := range []string{"postgres://u:s3cret@a", "postgres://a?x=s3cret@"} {
		_, err := postgres.ParseURL(text)
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "s3cret")
	}
}

func TestOptions_DoNotRevealThePassword(t *testing.T) {
	o := postgres.Options{Endpoints: []string{"db"}, Password: "s3cret"}
	assert.NotContains(t, o.String()+o.GoString()+o.LogValue().String(), "s3cret")
	_, err := postgres.Open(t.Context(), postgres.Options{Password: "s3cret"})
	require.ErrorContains(t, err, "no endpoints")
	assert.NotContains(t, err.Error(), "s3cret")
}

func TestGuidePage_HasEverySetting(t *testing.T) {
	page, err := os.ReadFile("../../docs/guide/settings.md")
	require.NoError(t, err)
	rows := ""
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "| `postgres.Options.") {
			cell, _, _ := strings.Cut(line[2:], " |")
			rows += strings.ReplaceAll(cell, "postgres.Options.", "")
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[postgres.Options]()) {
		assert.Contains(t, rows, "`"+f.Name+"`")
	}
}
