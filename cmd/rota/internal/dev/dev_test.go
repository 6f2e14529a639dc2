package dev

import (
	"context"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/postgres"
	"github.com/rota-dev/rota/internal/registryurl"
)

// awaitURL returns the address that a command prints.
func awaitURL(t *testing.T, out io.Reader) string {
	t.Helper()
	var text []byte
	buf := make([]byte, 4096)
	for {
		n, err := out.Read(buf)
		require.NoError(t, err, string(text))
		text = append(text, buf[:n]...)
		if m := regexp.MustCompile(`--registry (\S+)\n`).FindSubmatch(text); m != nil {
			return strings.Trim(string(m[1]), "'") // quoted for a shell
		}
	}
}

var schemes = registryurl.Schemes{"postgres": postgres.Open}

func TestDev_KeepsAServerRunningUntilItIsInterrupted(t *testing.T) {
	for _, kind := range []string{"etcd", "zookeeper", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			out, in := io.Pipe()
			cmd := Command()
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			cmd.SetArgs([]string{kind})
			cmd.SetOut(in)
			cmd.SetErr(io.Discard)
			ended := make(chan error, 1)
			go func() {
				err := cmd.ExecuteContext(ctx)
				in.CloseWithError(io.ErrUnexpectedEOF)
				ended <- err
			}()
			url := awaitURL(t, out)
			go io.Copy(io.Discard, out)

			open := func() error {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				reg, err := schemes.Open(ctx, url, registryurl.Options{Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					return err
				}
				return reg.Close(ctx)
			}
			require.NoError(t, open())
			interrupt()
			require.NoError(t, <-ended)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := schemes.Open(ctx, url, registryurl.Options{Logger: slog.New(slog.DiscardHandler)})
			assert.Error(t, err, "the server has ended")
		})
	}
}

func TestDescribe_ShowsHowToUseTheServer(t *testing.T) {
	assert.Equal(t, `etcd is running at etcd://127.0.0.1:2379

  rota run jobs.yaml --registry etcd://127.0.0.1:2379
  export ROTA_REGISTRY=etcd://127.0.0.1:2379

Ctrl-C stops it and deletes its data.
`, describe("etcd", "etcd://127.0.0.1:2379"))
}
