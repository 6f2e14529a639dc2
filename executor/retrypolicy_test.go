package executor

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/schedule"
)

func TestRetry_Stored(t *testing.T) {
	t.Run("has its defaults filled in", func(t *testing.T) {
		assert.Equal(t, retryField{Max: 2, Initial: durationField(time.Second), MaxInterval: durationField(time.Minute), Factor: 2, Jitter: 0.2}, retryFieldOf(Retry{Max: 2}))
		assert.Zero(t, retryFieldOf(Retry{}))
	})
	t.Run("has Initial as MaxInterval if that is longer than the default", func(t *testing.T) {
		assert.Equal(t, durationField(time.Hour), retryFieldOf(Retry{Max: 2, Initial: time.Hour}).MaxInterval)
	})
	t.Run("has one form without a bound, and one without jitter", func(t *testing.T) {
		assert.Equal(t, retryFieldOf(Retry{Max: -1, Jitter: -1}), retryFieldOf(Retry{Max: -7, Jitter: -3}))
		assert.NoError(t, retryFieldOf(Retry{Max: -7, Jitter: -3}).check())
	})
	t.Run("has a finite Factor", func(t *testing.T) {
		for _, factor := range []float64{math.Inf(1), math.NaN(), math.MaxFloat64} {
			assert.Error(t, retryFieldOf(Retry{Max: 1, Factor: factor}).check(), factor)
		}
	})
}

func TestRetry_Delay(t *testing.T) {
	t.Run("is spread over both sides by a hash of the run", func(t *testing.T) {
		f := retryFieldOf(Retry{Max: 1, Initial: 16 * time.Second, Jitter: 0.25})
		least, most := time.Hour, time.Duration(0)
		distinct := map[time.Duration]bool{}
		for i := range 1000 {
			d := f.delay(fmt.Sprint("job/", i), 0)
			assert.Equal(t, d, f.delay(fmt.Sprint("job/", i), 0))
			least, most = min(least, d), max(most, d)
			distinct[d] = true
		}
		assert.Equal(t, 12*time.Second, least)
		assert.Equal(t, 20*time.Second, most)
		assert.Len(t, distinct, 16)
	})
	t.Run("has these values, which must not change between versions", func(t *testing.T) {
		f := retryFieldOf(Retry{Max: 1, Initial: 15 * time.Second, Jitter: 1})
		var got []time.Duration
		for retries := range 3 {
			got = append(got, f.delay("settle/0/2026-03-01T03:00:00Z", retries))
		}
		assert.Equal(t, []time.Duration{8 * time.Second, 24 * time.Second, 0}, got)
	})
	t.Run("does not grow beyond MaxInterval", func(t *testing.T) {
		f := retryFieldOf(Retry{Max: -1, MaxInterval: 10 * time.Second, Jitter: -1})
		for retries, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
			assert.Equal(t, want*time.Second, f.delay("", retries))
		}
		assert.Equal(t, 10*time.Second, f.delay("", 1_000_000))
	})
}

func TestRetry_Error(t *testing.T) {
	failed := errors.New("out of order")
	with := func(r Retry) *program {
		return &program{definition: definitionOf(Job{Name: "job", Retry: r})}
	}
	retryIn := func(t *testing.T, err error) time.Duration {
		var retry *claimer.RetryError
		require.ErrorAs(t, err, &retry)
		return retry.In
	}
	t.Run("retries without bound if Max is negative, and up to Max otherwise", func(t *testing.T) {
		assert.IsType(t, &claimer.RetryError{}, with(Retry{Max: -1}).retryError(t.Context(), &Run{RunInfo: RunInfo{Retries: 1 << 30}}, 0, failed))
		assert.IsType(t, &claimer.RetryError{}, with(Retry{Max: 3}).retryError(t.Context(), &Run{RunInfo: RunInfo{Retries: 2}}, 0, failed))
		assert.Equal(t, failed, with(Retry{Max: 3}).retryError(t.Context(), &Run{RunInfo: RunInfo{Retries: 3}}, 0, failed))
	})
	t.Run("leaves a run alone that is handed back", func(t *testing.T) {
		err := fmt.Errorf("%w: %w", claimer.ErrHandedBack, failed)
		assert.Equal(t, err, with(Retry{Max: -1}).retryError(t.Context(), &Run{}, 0, err))
	})
	t.Run("takes the longer of the job's delay and that of RetryAfter", func(t *testing.T) {
		p := with(Retry{Max: 1, Initial: 10 * time.Second, Jitter: -1})
		assert.Equal(t, 10*time.Second, retryIn(t, p.retryError(t.Context(), &Run{}, 0, RetryAfter(time.Second, failed))))
		assert.Equal(t, 20*time.Second, retryIn(t, p.retryError(t.Context(), &Run{}, 0, RetryAfter(20*time.Second, failed))))
		assert.Equal(t, 24*time.Hour, retryIn(t, p.retryError(t.Context(), &Run{}, 0, RetryAfter(48*time.Hour, failed))))
	})
	t.Run("begins the delays of a daemon anew after a long run", func(t *testing.T) {
		p := newProgram(definitionOf(Job{Name: "job", Schedule: schedule.Always(), Retry: Retry{Max: -1, Jitter: -1}}), nil)
		assert.Equal(t, 32*time.Second, retryIn(t, p.retryError(t.Context(), &Run{RunInfo: RunInfo{Retries: 5}}, time.Second, failed)))
		assert.Equal(t, time.Second, retryIn(t, p.retryError(t.Context(), &Run{RunInfo: RunInfo{Retries: 5}}, time.Minute, failed)))
	})
}

func TestCatchupWindow_AtTheEndOfAnEpoch(t *testing.T) {
	p := &program{definition: definition{CatchupWindow: durationField(10 * time.Second)}, times: compile(t, schedule.Every(time.Second))}
	at := func(s int) time.Time { return time.Unix(int64(s), 0).UTC() }
	t.Run("skips no fire of the next epoch", func(t *testing.T) {
		expired, last := p.findExpired(at(0), at(5), at(100))
		assert.Equal(t, 4, expired)
		assert.Equal(t, at(4), last)
	})
	t.Run("skips the fires that are older, in an epoch that goes on longer", func(t *testing.T) {
		expired, last := p.findExpired(at(0), at(95), at(100))
		assert.Equal(t, 89, expired)
		assert.Equal(t, at(89), last)
	})
	t.Run("skips nothing behind the watermark", func(t *testing.T) {
		expired, last := p.findExpired(at(95), time.Time{}, at(100))
		assert.Zero(t, expired)
		assert.Equal(t, at(95), last)
	})
}
