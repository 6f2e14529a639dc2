package postgres

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// A connection that was being made while its slot is closed ends: Close waits for its goroutines.
func TestSlot_EndsAConnectionThatComesAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		made, _ := newScript(t)
		answered := make(chan struct{})
		s := newSlot(ctx, time.Second, func(f func()) bool {
			if ctx.Err() != nil {
				return false
			}
			go f()
			return true
		}, func(context.Context, func(*conn)) (*conn, error) {
			<-answered // the server's answer is on its way
			return made, nil
		})
		go s.get(ctx)
		synctest.Wait()
		cancel()
		s.close()
		close(answered)
		synctest.Wait()
		select {
		case <-made.ended:
		default:
			assert.Fail(t, "the connection stays open")
		}
	})
}
