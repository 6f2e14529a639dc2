package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/internal/onecpu"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

func TestMain(m *testing.M) {
	defer onecpu.Hold()()
	m.Run()
}

// The second process goes on where the first one stopped.
func Example() {
	server := memory.New()
	process := func(name string, lines ...string) {
		ctx, stop := context.WithCancel(context.Background())
		c := consumer{
			next: func(ctx context.Context, _ int, offset int64) (string, int64, error) {
				if int(offset) == len(lines) {
					stop() // that is all for now
					<-ctx.Done()
					return "", 0, context.Cause(ctx)
				}
				return lines[offset], offset + 1, nil
			},
			handle: func(_ coordinator.Owned, _ int64, line string) ([]registry.Op, error) {
				fmt.Println(name, "consumes", line)
				return nil, nil
			},
		}
		fmt.Println(name, "leaves:", coordinator.Join(ctx, server.Client(name), coordinator.Config{
			Namespace: "orders", Instance: name, Shards: 1, Own: c.own, Logger: slog.New(slog.DiscardHandler),
		}))
	}
	process("first", "apples", "pears")
	process("second", "apples", "pears", "plums", "figs")
	// Output:
	// first consumes apples
	// first consumes pears
	// first leaves: <nil>
	// second consumes plums
	// second consumes figs
	// second leaves: <nil>
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		f, err := os.OpenFile(filepath.Join(dir, "2"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		defer f.Close()
		_, err = f.WriteString(text)
		require.NoError(t, err)
	}
	t.Run("are waited for, and their lines for their ends", func(t *testing.T) {
		ended, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, _, err := files(dir).next(ended, 2, 0)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		write("apples\npea")
		line, after, err := files(dir).next(t.Context(), 2, 0)
		require.NoError(t, err)
		assert.Equal(t, "apples", line)
		_, _, err = files(dir).next(ended, 2, after)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		write("rs\n")
		line, after, err = files(dir).next(t.Context(), 2, after)
		require.NoError(t, err)
		assert.Equal(t, "pears", line)
		assert.EqualValues(t, len("apples\npears\n"), after)
	})
}
