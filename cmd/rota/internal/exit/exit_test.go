package exit

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

func TestCodeOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
	}{
		{nil, OK},
		{errors.New("a"), Failed},
		{fmt.Errorf("pause: %w", operator.ErrRetiring), NotMet},
		{Usagef("a"), Usage},
		{fmt.Errorf("pause: %w", operator.ErrUnknownJob), NoJob},
		{NotMetf("a"), NotMet},
		{fmt.Errorf("trigger: %w", operator.ErrInvalidArgument), Usage},
		{fmt.Errorf("pause: %w", registry.ErrUnknownOutcome), Unknown},
		{errors.Join(errors.New("a"), Usagef("b")), Usage},
		{&Error{Code: 7}, 7},
	} {
		assert.Equal(t, c.code, CodeOf(c.err), c.err)
	}
	assert.Equal(t, "exit code 7", (&Error{Code: 7}).Error())
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	assert.False(t, Interrupted(ctx, context.Canceled))
	cancel()
	assert.True(t, Interrupted(ctx, fmt.Errorf("list: %w", context.Canceled)))
	assert.False(t, Interrupted(ctx, errors.New("a")))
}
