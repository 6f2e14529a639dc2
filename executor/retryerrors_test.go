package executor_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/executor"
)

func TestRetryErrors(t *testing.T) {
	cause := fmt.Errorf("read input: %w", &fs.PathError{Op: "open", Path: "in.csv", Err: fs.ErrNotExist})

	t.Run("nil stays nil", func(t *testing.T) {
		assert.NoError(t, executor.Permanent(nil))
		assert.NoError(t, executor.RetryAfter(time.Second, nil))
	})
	t.Run("text and cause are those of the wrapped error", func(t *testing.T) {
		for _, err := range []error{
			executor.Permanent(cause), executor.RetryAfter(time.Second, cause),
			executor.Permanent(executor.RetryAfter(time.Second, cause)), executor.RetryAfter(time.Second, executor.Permanent(cause)),
		} {
			assert.EqualError(t, err, cause.Error())
			assert.ErrorIs(t, err, fs.ErrNotExist)
			var path *fs.PathError
			assert.ErrorAs(t, err, &path)
		}
	})
	t.Run("found below other errors", func(t *testing.T) {
		var permanent *executor.PermanentError
		assert.ErrorAs(t, fmt.Errorf("settle: %w", executor.Permanent(cause)), &permanent)
		assert.Equal(t, cause, permanent.Err)
		assert.ErrorAs(t, errors.Join(errors.New("other"), executor.RetryAfter(time.Second, executor.Permanent(cause))), &permanent)
		assert.False(t, errors.As(executor.RetryAfter(time.Second, cause), &permanent))

		var after *executor.RetryAfterError
		assert.ErrorAs(t, fmt.Errorf("settle: %w", executor.RetryAfter(time.Second, cause)), &after)
		assert.Equal(t, executor.RetryAfterError{After: time.Second, Err: cause}, *after)
		assert.False(t, errors.As(executor.Permanent(cause), &after))
	})
	t.Run("outermost delay is found first", func(t *testing.T) {
		var after *executor.RetryAfterError
		assert.ErrorAs(t, executor.RetryAfter(time.Minute, executor.RetryAfter(time.Second, cause)), &after)
		assert.Equal(t, time.Minute, after.After)
	})
	t.Run("negative delay counts as 0", func(t *testing.T) {
		var after *executor.RetryAfterError
		assert.ErrorAs(t, executor.RetryAfter(-time.Second, cause), &after)
		assert.Zero(t, after.After)
	})
}
