package registryurl

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
		got, err := parseURL(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
}

func TestCheck_NamesTheProblem(t *testing.T) {
	for text, want := range map[string]string{
		"":                   "the scheme must be etcd:// or zk://",
		"consul://a:1":       "the scheme must be etcd:// or zk://",
		"127.0.0.1:2379":     "the scheme must be etcd:// or zk://",
		"etcd://":            `"" is not host:port`,
		"etcd://a:":          `"a:" is not host:port`,
		"zk://a:1,,b:2":      `"" is not host:port`,
		"zk://user:pass@a:1": `"user:pass@a:1" is not host:port`,
	} {
		assert.ErrorContains(t, Check(text), want, text)
	}
}
