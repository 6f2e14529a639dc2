package registryurl

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestParseURL(t *testing.T) {
	for text, want := range map[string]parsed{
		"etcd://127.0.0.1:2379":        {"etcd", []string{"127.0.0.1:2379"}, ""},
		"etcd://a:1,b:2,c:3/some/team": {"etcd", []string{"a:1", "b:2", "c:3"}, "/some/team"},
		"zk://[::1]:2181/":             {"zk", []string{"[::1]:2181"}, ""},
		"zookeeper://a:1/chroot":       {"zk", []string{"a:1"}, "/chroot"},
		"etcd://a,b:1":                 {"etcd", []string{"a:2379", "b:1"}, ""},
		"zk://a":                       {"zk", []string{"a:2181"}, ""},
		"zookeeper://[::1]":            {"zk", []string{"[::1]:2181"}, ""},
	} {
		got, err := Schemes(nil).parseURL(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
}

func TestCheck_NamesTheProblem(t *testing.T) {
	for text, want := range map[string]string{
		"":               "the scheme must be etcd:// or zk://",
		"consul://a:1":   "the scheme must be etcd:// or zk://",
		"127.0.0.1:2379": "the scheme must be etcd:// or zk://",
		"etcd://":        `"" is not host:port`,
		"etcd://a:":      `"a:" is not host:port`,
		"zk://a:1,,b:2":  `"" is not host:port`,
	} {
		assert.ErrorContains(t, Schemes(nil).Check(text), want, text)
	}
}

func TestCheck_DoesNotRepeatAPassword(t *testing.T) {
	for _, text := range []string{"etcd://u:s3cret@a:1", "zk://a:1,u:s3cret@b", "consul://u:s3cret@a", "u:s3cret@a", "etcd://a:1/x@s3cret"} {
		err := Schemes(nil).Check(text)
		require.ErrorIs(t, err, ErrCredentials, text)
		assert.NotContains(t, err.Error(), "s3cret")
		_, err = Schemes(nil).Open(t.Context(), text, Options{})
		require.ErrorIs(t, err, ErrCredentials, text)
	}
}

func TestSchemes(t *testing.T) {
	var opened string
	own := func(_ context.Context, url string, _ Options) (registry.Registry, error) {
		opened = url
		return memory.New().Client("a"), nil
	}
	s := Schemes{"mine": own}
	require.NoError(t, s.Validate())
	require.NoError(t, s.Check("mine://a,b?c"), "what follows the scheme is up to the function")
	reg, err := s.Open(t.Context(), "mine://a,b?c", Options{})
	require.NoError(t, err)
	assert.NotNil(t, reg)
	assert.Equal(t, "mine://a,b?c", opened)

	for _, url := range []string{"mine", "mine:/a", "theirs://a"} {
		require.ErrorContains(t, s.Check(url), "the scheme must be etcd://, zk:// or mine://", url)
		_, err := s.Open(t.Context(), url, Options{})
		require.ErrorContains(t, err, "the scheme must be", url)
	}
	require.NoError(t, s.Check("etcd://a"))
	assert.ErrorContains(t, s.Check("etcd://a:"), "is not host:port")

	s = Schemes{"postgres": own}
	for _, url := range []string{"postgres://a/b", "postgresql://a/b"} {
		opened = ""
		require.NoError(t, s.Check(url))
		_, err := s.Open(t.Context(), url, Options{})
		require.NoError(t, err)
		assert.Equal(t, url, opened)
	}
	for _, url := range []string{"postgres://u:s3cret@a", "postgresql://u:s3cret@a"} {
		require.ErrorIs(t, s.Check(url), ErrCredentials)
	}

	err = Schemes{"etcd": own, "Mine": own, "": own, "none": nil, "memory": own}.Validate()
	for _, problem := range []string{
		`"etcd": has a meaning already`, `"Mine": must be lower-case`, `"": must be`, `"none": has no function`, `"memory": has a meaning`,
	} {
		assert.ErrorContains(t, err, problem)
	}
}
