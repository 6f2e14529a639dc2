package coordinator_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/registry/memory"
)

// nilError is an error whose text needs a field.
type nilError struct{ err error }

func (e *nilError) Error() string { return e.err.Error() }

func TestJoin_APanicInOwnEndsTheCallOnly(t *testing.T) {
	for name, misbehave := range map[string]func() error{
		"a panic": func() error { panic("boom") },
		"an error whose text panics": func() error {
			var err *nilError
			return err
		},
		"an error": func() error { return errors.Join(io.EOF) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				var bad, good atomic.Int64
				done := make(chan error, 1)
				go func() {
					done <- coordinator.Join(ctx, memory.New().Client("a"), coordinator.Config{
						Namespace: "test", Instance: "a", Shards: 2,
						Own: func(ctx context.Context, s coordinator.Owned) error {
							if s.Shard == 0 {
								bad.Add(1)
								return misbehave()
							}
							good.Add(1)
							<-ctx.Done()
							return nil
						},
					})
				}()
				time.Sleep(5 * time.Second)
				assert.Greater(t, bad.Load(), int64(10), "calls for shard 0, one each 100 ms")
				assert.EqualValues(t, 1, good.Load(), "calls for shard 1")
				cancel()
				assert.NoError(t, <-done)
			})
		})
	}
}
