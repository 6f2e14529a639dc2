package settings

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/registry"
)

// resolve parses args and completes the settings from env and a configuration file.
func resolve(t *testing.T, config string, env map[string]string, args ...string) (*Settings, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if config != "" {
		require.NoError(t, os.WriteFile(path, []byte(config), 0o600))
	}
	s := New(nil)
	s.Getenv = func(name string) string {
		if name == "ROTA_CONFIG" {
			return path
		}
		return env[name]
	}
	root := &cobra.Command{Use: "rota", RunE: func(*cobra.Command, []string) error { return s.Resolve() }}
	s.AddFlags(root)
	root.SetArgs(slices.Concat([]string{}, args)) // of nil, cobra takes the arguments of the test
	root.SetIn(strings.NewReader(""))
	root.SilenceErrors, root.SilenceUsage = true, true
	return s, root.Execute()
}

const twoContexts = `
current: test
contexts:
  test: {registry: "etcd://t:1", namespace: nt, group: gt, time: utc, timeout: 3s}
  prod: {registry: "etcd://p:1", namespace: np, protected: true, user: kim, password_env: SECRET}
`

func TestSettings_FlagOverEnvironmentOverContext(t *testing.T) {
	env := map[string]string{"ROTA_NAMESPACE": "ne", "ROTA_GROUP": "ge"}
	s, err := resolve(t, twoContexts, env, "-g", "gf")
	require.NoError(t, err)
	assert.Equal(t, []string{"gf", "ne", "etcd://t:1", "utc", "table", "3s"},
		[]string{s.Group, s.Namespace, s.Registry, s.Time, s.Output, s.Timeout.String()}, "flag, environment, context, default")

	s, err = resolve(t, twoContexts, map[string]string{"ROTA_CONTEXT": "prod"})
	require.NoError(t, err)
	assert.Equal(t, []string{"etcd://p:1", "np", "default", "10s"}, []string{s.Registry, s.Namespace, s.Group, s.Timeout.String()})

	s, err = resolve(t, twoContexts, map[string]string{"ROTA_CONTEXT": "prod"}, "--context", "test")
	require.NoError(t, err)
	assert.Equal(t, "etcd://t:1", s.Registry)

	s, err = resolve(t, "", map[string]string{"ROTA_REGISTRY": "etcd://e:1"})
	require.NoError(t, err, "without a configuration file")
	assert.Equal(t, "etcd://e:1", s.Registry)
}

func TestSettings_CredentialsStayWithTheirRegistry(t *testing.T) {
	env := map[string]string{"SECRET": "hunter2", "ROTA_CONTEXT": "prod"}
	for _, c := range []struct {
		args     []string
		password string
	}{
		{nil, "hunter2"},
		{[]string{"--registry", "etcd://p:1"}, "hunter2"},
		{[]string{"--registry", "etcd://elsewhere:1"}, ""},
	} {
		s, err := resolve(t, twoContexts, env, c.args...)
		require.NoError(t, err)
		var sent registryurl.Options
		s.OpenRegistry = func(_ context.Context, _ string, o registryurl.Options) (registry.Registry, error) {
			sent = o
			return nil, errors.New("no")
		}
		_, err = s.Connect(t.Context())
		require.Error(t, err)
		assert.Equal(t, c.password, sent.Password, c.args)
		assert.Equal(t, c.password != "", s.Protected, c.args)
	}
}

func TestSettings_RefusesWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		config string
		env    map[string]string
		args   []string
		want   string
	}{
		"unknown output":        {args: []string{"-o", "xml"}, want: `--output is "xml", not one of table, wide`},
		"unknown time":          {env: map[string]string{"ROTA_TIME": "lunar"}, want: `--time is "lunar"`},
		"bad duration":          {env: map[string]string{"ROTA_TIMEOUT": "soon"}, want: `ROTA_TIMEOUT: "soon"`},
		"bad context duration":  {config: "current: a\ncontexts: {a: {timeout: soon}}", want: `context "a": timeout: "soon"`},
		"negative time-out":     {args: []string{"--timeout", "-1s"}, want: "--timeout is -1s"},
		"unknown context":       {config: twoContexts, args: []string{"--context", "x"}, want: `there is no context "x" in `},
		"unknown key":           {config: "current: a\nregistri: b", want: "line 2: field registri not found"},
		"password in the file":  {config: "contexts: {a: {password: b}}", want: "field password not found"},
		"file is not YAML":      {config: "a: [", want: "config.yaml"},
		"unknown current":       {config: "current: b", want: `there is no context "b"`},
		"duplicate context key": {config: "contexts: {a: {user: b, user: c}}", want: `"user" already defined`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := resolve(t, c.config, c.env, c.args...)
			require.ErrorContains(t, err, c.want)
			assert.Equal(t, exit.Usage, exit.CodeOf(err))
		})
	}
}

func TestSettings_WriteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "config.yaml")
	want := File{Current: "a", Contexts: map[string]ContextEntry{"a": {Registry: "etcd://a:1", Protected: true, TLS: TLS{CAFile: "ca"}}}}
	require.NoError(t, WriteFile(path, want))
	got, err := ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, want, got)
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

// TestSettings_Credentials has a row for each source of credentials.
func TestSettings_Credentials(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "password")
	require.NoError(t, os.WriteFile(file, []byte("from file\n"), 0o600))
	bad := filepath.Join(dir, "bad.pem")
	require.NoError(t, os.WriteFile(bad, []byte("no certificate"), 0o600))
	entry := func(fields string) string {
		return "current: c\ncontexts: {c: {registry: \"etcd://a:1\", namespace: n, user: kim, " + fields + "}}"
	}
	for name, c := range map[string]struct {
		config         string
		env            map[string]string
		user, password string
		tls            bool
		err            string
	}{
		"none":                      {config: entry(""), user: "kim"},
		"file of the context":       {config: entry("password_file: " + file), user: "kim", password: "from file"},
		"variable of the context":   {config: entry("password_env: P"), env: map[string]string{"P": "from P"}, user: "kim", password: "from P"},
		"empty variable":            {config: entry("password_env: P"), err: `the password of "kim" is to be in P, which is empty`},
		"missing file":              {config: entry("password_file: " + dir + "/no"), err: `password of "kim": open `},
		"environment over context":  {config: entry("password_file: " + file), env: map[string]string{"ROTA_USER": "lee", "ROTA_PASSWORD": "x"}, user: "lee", password: "x"},
		"file of the environment":   {config: entry(""), env: map[string]string{"ROTA_PASSWORD_FILE": file}, user: "kim", password: "from file"},
		"TLS of the context":        {config: entry("tls: {enabled: true}"), user: "kim", tls: true},
		"TLS of the environment":    {config: entry(""), env: map[string]string{"ROTA_TLS": "1"}, user: "kim", tls: true},
		"authorities that are none": {config: entry("tls: {ca_file: " + bad + "}"), err: "holds no certificate"},
		"certificate without a key": {config: entry("tls: {cert_file: " + bad + "}"), err: "TLS: read key_file: open : no such file"},
		"authorities that are gone": {config: entry("tls: {ca_file: " + dir + "/no}"), err: "TLS: read ca_file: open "},
		"misspelt field":            {config: entry("tsl: {}"), err: "field tsl not found"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := resolve(t, c.config, c.env)
			var sent registryurl.Options
			if err == nil {
				s.OpenRegistry = func(_ context.Context, _ string, o registryurl.Options) (registry.Registry, error) {
					sent = o
					return nil, errors.New("not opened")
				}
				_, err = s.Connect(t.Context())
			}
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				assert.Equal(t, exit.Usage, exit.CodeOf(err))
				return
			}
			require.ErrorContains(t, err, "not opened")
			assert.Equal(t, []string{c.user, c.password}, []string{sent.Username, sent.Password})
			assert.Equal(t, c.tls, sent.TLS != nil)
		})
	}
}

func TestSettings_CallTimeout(t *testing.T) {
	for timeout, want := range map[string]time.Duration{"1s": 0, "10s": 0, "12s": 6 * time.Second, "1m": 30 * time.Second} {
		s, err := resolve(t, "", map[string]string{"ROTA_REGISTRY": "zookeeper://zk", "ROTA_NAMESPACE": "billing", "ROTA_TIMEOUT": timeout})
		require.NoError(t, err)
		var sent registryurl.Options
		s.OpenRegistry = func(_ context.Context, _ string, o registryurl.Options) (registry.Registry, error) {
			sent = o
			return nil, errors.New("not opened")
		}
		_, err = s.Connect(t.Context())
		require.ErrorContains(t, err, "not opened")
		assert.Equal(t, want, sent.CallTimeout, "half of --timeout %s, but not less than the default of the backends", timeout)
	}
}

func TestResolve_RefusesAPasswordInAnArgument(t *testing.T) {
	for _, url := range []string{"postgres://kim:s3cret@db/runs", "mysql://kim:s3cret@db/runs", "postgres://db/runs?password=s3cret"} {
		err := checkHistoryFlag(url)
		require.ErrorContains(t, err, "ROTA_HISTORY", url)
		assert.NotContains(t, err.Error(), "s3cret")
	}
	for _, url := range []string{"postgres://kim@db/runs", "sqlite:runs.db"} {
		assert.NoError(t, checkHistoryFlag(url), url)
	}
}

func TestConnect_DoesNotRepeatAPassword(t *testing.T) {
	s, err := resolve(t, "", map[string]string{"ROTA_REGISTRY": "etcd://kim:s3cret@host", "ROTA_NAMESPACE": "billing"})
	require.NoError(t, err)
	_, err = s.Connect(t.Context())
	require.ErrorContains(t, err, "ROTA_PASSWORD_FILE")
	assert.NotContains(t, err.Error(), "s3cret")
}
