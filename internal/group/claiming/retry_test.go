package claiming

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestClaim_Retries(t *testing.T) {
	const delay = 500 * time.Millisecond
	// failed returns the input of the owner of shards 0 and 1 after a run of both has ended; that of
	// shard 0 failed and is to be retried.
	failed := func(t *testing.T) *Input {
		in := claimant(t, 2)
		in.Claims.Watermarks = in.Claims.Watermarks.Raise(shardset.Of(0, 1), coordtest.Fire(1, 1).Watermark())
		in.Claims.Running = in.Claims.Running.With(shardset.Of(0, 1), coordtest.Fire(1, 1))
		in.Ended = []EndedRun{{Shard: 0, Err: errors.New("out of order"), Retry: true, RetryIn: delay}, {Shard: 1}}
		return in
	}
	// pending returns the input after that end was committed.
	pending := func(t *testing.T) *Input {
		in := failed(t)
		in.Now = coordtest.At(1)
		in.Claims, in.Ended = in.Decide().Claims, nil
		return in
	}
	retry := func(in *Input) record.Ref {
		return coordtest.Fire(1, 1).RetryAt(retryTime(coordtest.At(1), delay), delay)
	}

	t.Run("are pending as the next attempt, counted apart, with the failure on record", func(t *testing.T) {
		in := failed(t)
		in.Now, in.MayClaim = coordtest.At(1), false
		out := in.Decide()
		assert.Empty(t, out.Claims.Running)
		assert.Equal(t, record.Runs{{Shards: shardset.Of(0), Ref: retry(in)}}, out.Claims.Reruns)
		assert.Equal(t, record.Counts{Succeeded: 1, Retried: 1}, out.Claims.Counts)
		require.Len(t, out.Claims.Failures, 1)
		assert.Equal(t, "out of order", out.Claims.Failures[0].Error)
	})
	t.Run("wait for their time, and newer fires of the shard wait for them", func(t *testing.T) {
		in := pending(t)
		in.Now = coordtest.At(1).Add(delay - 1)
		out := in.Decide()
		_, claimed := out.Starts.Of(0)
		assert.False(t, claimed)
		assert.Equal(t, retry(in).NotBefore, out.Wake)
		in.Now = coordtest.At(3)
		in.Claims.Reruns[0].NotBefore, in.Claims.Reruns[0].RetryDelay = coordtest.At(4), record.Duration(3*time.Second)
		out = in.Decide()
		_, claimed = out.Starts.Of(0)
		assert.False(t, claimed, "its fire of 3 s is due")
		ref, _ := out.Starts.Of(1)
		assert.Equal(t, coordtest.At(3), ref.Fire)
	})
	t.Run("are claimed when their time has come, before newer fires", func(t *testing.T) {
		in := pending(t)
		in.Now = coordtest.At(3)
		out := in.Decide()
		ref, _ := out.Starts.Of(0)
		assert.Equal(t, retry(in), ref)
		assert.Equal(t, 1, ref.CrashAttempts(), "failures do not count as crashes")
		assert.Empty(t, out.Claims.Reruns)
	})
	t.Run("of a disabled shard wait with its newer fires, and run first when it is enabled", func(t *testing.T) {
		in := pending(t)
		in.Plan.Disabled = shardset.Of(0)
		in.Now = coordtest.At(3)
		out := in.Decide()
		_, claimed := out.Starts.Of(0)
		assert.False(t, claimed)
		assert.Equal(t, coordtest.Fire(1, 1).Watermark(), out.Claims.Watermarks.Of(0))
		assert.Equal(t, record.Runs{{Shards: shardset.Of(0), Ref: retry(in)}}, out.Claims.Reruns)
		in.commit(out)
		in.Plan.Disabled = shardset.Set{}
		ref, _ := in.Decide().Starts.Of(0)
		assert.Equal(t, retry(in), ref)
	})
	t.Run("without a delay are claimed by the commit that records the failure", func(t *testing.T) {
		in := failed(t)
		in.Ended[0].RetryIn, in.Now = 0, coordtest.At(1)
		out := in.Decide()
		ref, claimed := out.Starts.Of(0)
		assert.True(t, claimed)
		assert.Equal(t, 2, ref.Attempt)
	})
	t.Run("wait for a long delay, whatever the allowed skew is", func(t *testing.T) {
		for _, delay := range []time.Duration{time.Minute, time.Hour, 24 * time.Hour} {
			in := failed(t)
			in.Now, in.AllowedSkew, in.Ended[0].RetryIn = coordtest.At(1).Add(time.Millisecond), 5*time.Second, delay
			out := in.Decide()
			assert.True(t, out.Starts.Shards().IsZero(), delay)
			require.Len(t, out.Claims.Reruns, 1)
			assert.GreaterOrEqual(t, out.Claims.Reruns[0].NotBefore, in.Now.Add(delay))
		}
	})
	t.Run("that a wrong clock put on record do not wait for its time", func(t *testing.T) {
		in := pending(t)
		in.Claims.Reruns[0].NotBefore = coordtest.At(3600)
		in.Now, in.AllowedSkew = coordtest.At(2), 5*time.Second
		_, claimed := in.Decide().Starts.Of(0)
		assert.True(t, claimed)
		in.AllowedSkew = 0
		_, claimed = in.Decide().Starts.Of(0)
		assert.False(t, claimed, "clocks are not compared")
	})
	t.Run("are kept if the newest definition does not want re-runs after a crash", func(t *testing.T) {
		in := pending(t)
		in.Plan = in.Plan.Clone()
		e, err := record.NewEpoch(2, coordtest.At(5), []byte(`{"name":"job","shards":2,"on_crash":"count as failed"}`))
		require.NoError(t, err)
		in.Plan.Epochs = append(in.Plan.Epochs, e)
		in.Now = coordtest.At(3)
		ref, _ := in.Decide().Starts.Of(0)
		assert.Equal(t, retry(in), ref)
		assert.Zero(t, in.Decide().Claims.Counts.Lost)
	})
	t.Run("are not made of runs of the same fire that are not to be retried", func(t *testing.T) {
		in := failed(t)
		in.Now, in.Ended[1].Err = coordtest.At(1), errors.New("no such account")
		out := in.Decide()
		assert.Equal(t, shardset.Of(0), out.Claims.Reruns.Shards())
		assert.Equal(t, record.Counts{Failed: 1, Retried: 1}, out.Claims.Counts)
	})
	t.Run("that fail are one failure, whenever they began", func(t *testing.T) {
		in := failed(t)
		for s := range 2 {
			r := coordtest.Fire(1, 1).RetryAt(coordtest.At(1)+record.Instant(s), time.Second)
			in.Claims.Running = in.Claims.Running.With(shardset.Of(s), r)
			in.Ended[s] = EndedRun{Shard: s, Err: errors.New("out of order")}
		}
		out := in.Decide()
		require.Len(t, out.Claims.Failures, 1)
		assert.Equal(t, shardset.Of(0, 1), out.Claims.Failures[0].Shards)
	})
	t.Run("that a clock within the limit put on record wait also by a clock that is behind", func(t *testing.T) {
		in := pending(t)
		in.Now, in.AllowedSkew = coordtest.At(1).Add(-5*time.Second), 5*time.Second
		assert.True(t, in.Decide().Starts.Shards().IsZero())
	})
	t.Run("leave the record with the first claim after their shard has moved", func(t *testing.T) {
		in := pending(t)
		in.Now, in.Plan.Owners = coordtest.At(3), map[string]shardset.Set{in.Me: shardset.Of(1)}
		assert.Empty(t, in.Decide().Claims.Reruns)
	})
	t.Run("of many shards that fail one after the other share few instants", func(t *testing.T) {
		instants := map[record.Instant]bool{}
		for i := range 1000 {
			failed := coordtest.At(1).Add(time.Duration(i) * time.Millisecond)
			at := retryTime(failed, time.Second)
			require.GreaterOrEqual(t, at, failed.Add(time.Second))
			require.Less(t, at, failed.Add(time.Second+time.Second/16))
			instants[at] = true
		}
		assert.LessOrEqual(t, len(instants), 17)
	})
}
