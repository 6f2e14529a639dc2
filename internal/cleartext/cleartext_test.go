package cleartext

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWarnPassword_OnceAndForOtherHostsOnly(t *testing.T) {
	warned := func(endpoints ...string) string {
		var log bytes.Buffer
		WarnPassword(slog.New(slog.NewTextHandler(&log, nil)), endpoints)
		require.LessOrEqual(t, strings.Count(log.String(), "\n"), 1)
		return log.String()
	}
	require.Empty(t, warned("127.0.0.1:2379", "localhost:2379", "[::1]:2379", "http://127.0.0.1:1/", "http://LOCALHOST:1", "127.9.9.9", "unix:///run/etcd"))
	for _, e := range []string{"etcd-1:2379", "192.0.2.1:2379", "http://etcd-1:2379", "[2001:db8::1]:2379", "etcd-1", "localhost.example:1"} {
		require.Contains(t, warned("127.0.0.1:1", e, "another:2"), "endpoint="+e)
	}
}
