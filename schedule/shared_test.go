package schedule

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type large [1000]byte

func TestShared_HandsOutOneValueWhileItIsInUse(t *testing.T) {
	var s shared[large]
	var got [8]*large
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			got[i], _ = s.get("key", func(string) (*large, error) { return new(large), nil })
		})
	}
	wg.Wait()
	for _, v := range got {
		assert.Same(t, got[0], v)
	}
}

func TestShared_OfTwoParsedAtOnceTheFirstStoredIsKept(t *testing.T) {
	var s shared[large]
	var first *large
	v, err := s.get("key", func(string) (*large, error) {
		first, _ = s.get("key", func(string) (*large, error) { return new(large), nil })
		return new(large), nil
	})
	require.NoError(t, err)
	assert.Same(t, first, v)
}

func TestShared_ForgetsWhatNobodyHolds(t *testing.T) {
	var s shared[large]
	kept, err := s.get("kept", func(string) (*large, error) { return new(large), nil })
	require.NoError(t, err)
	for _, key := range []string{"a", "b", "c"} {
		_, err := s.get(key, func(string) (*large, error) { return new(large), nil })
		require.NoError(t, err)
	}
	held := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.byKey)
	}
	for range 1000 {
		if held() == 1 {
			break
		}
		runtime.GC() // cleanups run soon after, in a goroutine of the runtime
		runtime.Gosched()
	}
	assert.Equal(t, 1, held())
	again, err := s.get("kept", func(string) (*large, error) { return nil, errors.New("not parsed again") })
	require.NoError(t, err)
	assert.Same(t, kept, again)
}

func TestShared_KeepsNoError(t *testing.T) {
	var s shared[large]
	_, err := s.get("key", func(string) (*large, error) { return nil, errors.New("not yet") })
	require.ErrorContains(t, err, "not yet")
	v, err := s.get("key", func(string) (*large, error) { return new(large), nil })
	require.NoError(t, err)
	assert.NotNil(t, v)
}
