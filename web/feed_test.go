package web

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

// counted is a feed that counts how often it opens the watches.
func (k *kit) counted(opened *atomic.Int32) *feed {
	return newFeed(func(ctx context.Context) (*operator.GroupView, error) {
		opened.Add(1)
		return k.op.Watch(ctx)
	})
}

func TestFeed_ViewersShareTheWatches(t *testing.T) {
	onFleet(t, func(k *kit) {
		var opened atomic.Int32
		f := k.counted(&opened)
		defer f.close()
		for range 100 {
			go func() { _, _, _ = f.read(context.Background()) }()
		}
		synctest.Wait()
		assert.EqualValues(t, 1, opened.Load())
		st, _, err := f.read(context.Background())
		require.NoError(t, err)
		assert.Len(t, st.Jobs, 4)
	})
}

func TestFeed_ReadsAtMostOnceASecond(t *testing.T) {
	onFleet(t, func(k *kit) {
		f := newFeed(k.op.Watch)
		defer f.close()
		first, changed, err := f.read(context.Background())
		require.NoError(t, err)
		for range 5 {
			_, err := k.op.Trigger(context.Background(), "settle", "", nil)
			require.NoError(t, err)
		}
		<-changed
		second, _, err := f.read(context.Background())
		require.NoError(t, err)
		assert.GreaterOrEqual(t, second.At.Sub(first.At), readEvery)
	})
}

func TestFeed_TakesASnapshotThoughNothingChanges(t *testing.T) {
	onFleet(t, func(k *kit) {
		f := newFeed(k.op.Watch)
		defer f.close()
		first, changed, err := f.read(context.Background())
		require.NoError(t, err)
		<-changed
		second, _, err := f.read(context.Background())
		require.NoError(t, err)
		assert.LessOrEqual(t, second.At.Sub(first.At), readAtLeast)
	})
}

func TestFeed_EndsTheWatchesAfterTheLastViewer(t *testing.T) {
	onFleet(t, func(k *kit) {
		var opened atomic.Int32
		f := k.counted(&opened)
		defer f.close()
		isOpen := func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.view != nil
		}
		_, _, err := f.read(context.Background())
		require.NoError(t, err)
		require.True(t, f.addStream())
		k.fleet.Sleep(3 * keepFor)
		assert.True(t, isOpen(), "while a stream lasts")
		f.removeStream()
		k.fleet.Sleep(keepFor + 2*readAtLeast)
		assert.False(t, isOpen(), "after the last viewer")
		_, _, err = f.read(context.Background())
		require.NoError(t, err)
		assert.EqualValues(t, 2, opened.Load())
	})
}

func TestFeed_FailsFastWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		f := newFeed(func(context.Context) (*operator.GroupView, error) {
			calls.Add(1)
			return nil, registry.ErrUnavailable
		})
		defer f.close()
		for range 10 {
			_, _, err := f.read(context.Background())
			require.ErrorIs(t, err, registry.ErrUnavailable)
		}
		assert.EqualValues(t, 1, calls.Load())
		time.Sleep(retryAfter)
		_, _, err := f.read(context.Background())
		require.ErrorIs(t, err, registry.ErrUnavailable)
		assert.EqualValues(t, 2, calls.Load())
	})
}

func TestFeed_EndsWithTheConsole(t *testing.T) {
	onFleet(t, func(k *kit) {
		done := make(chan int)
		go func() { done <- k.get("/events").Code }()
		k.fleet.Sleep(3 * time.Second)
		k.console.Close()
		assert.Equal(t, http.StatusOK, <-done)
		assert.Equal(t, http.StatusServiceUnavailable, k.get("/").Code)
	})
}

func TestEvents(t *testing.T) {
	onFleet(t, func(k *kit) {
		ctx, cancel := context.WithCancel(context.Background())
		w := httptest.NewRecorder()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			k.console.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/events", nil).WithContext(ctx))
		}()
		k.fleet.Sleep(40 * time.Second)
		cancel()
		<-ended
		assert.Equal(t, "text/event-stream", w.Header().Get("Content-Type"))
		assert.Contains(t, w.Body.String(), "data: changed\n\n")
		assert.Contains(t, w.Body.String(), ": ping\n\n")
	})
}

func TestEvents_AreBounded(t *testing.T) {
	onFleet(t, func(k *kit) {
		for range maxStreams {
			require.True(t, k.console.feed.addStream())
		}
		assert.Equal(t, http.StatusServiceUnavailable, k.get("/events").Code)
		for range maxStreams {
			k.console.feed.removeStream()
		}
	})
}

func TestPages_WhileTheStoreIsAway(t *testing.T) {
	onFleet(t, func(k *kit) {
		stop := make(chan struct{})
		go func() { k.get("/events"); close(stop) }() // a viewer
		k.fleet.Sleep(3 * time.Second)
		resume := k.fleet.Server().Pause()
		k.fleet.Sleep(2 * (readAtLeast + probeWithin))
		for _, path := range []string{"/", "/instances"} {
			assert.Contains(t, k.page(path), "The store does not answer. This is what was on record at 2000-01-01T00:01:", path)
		}
		assert.Equal(t, http.StatusServiceUnavailable, k.get("/api/v1/jobs").Code)
		resume()
		k.fleet.Sleep(2 * (readAtLeast + probeWithin))
		assert.NotContains(t, k.page("/"), "The store does not answer")
		k.console.Close()
		<-stop
	})
}

func TestPages_ContainPanics(t *testing.T) {
	onFleet(t, func(k *kit) {
		k.console = k.newConsole(Options{Authorize: func(*http.Request) (User, error) { panic("of the user's code") }})
		defer k.console.Close()
		w := k.get("/")
		assert.Equal(t, http.StatusInternalServerError, w.Code)
		assert.NotContains(t, w.Body.String(), "of the user's code")
	})
}

func TestCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache[int](time.Second, 2)
		calls := 0
		call := func() (int, error) { calls++; return calls, nil }
		get := func(key string) int {
			v, err := c.get(key, call)
			require.NoError(t, err)
			return v
		}
		assert.Equal(t, 1, get("a"))
		assert.Equal(t, 1, get("a"), "within the time")
		time.Sleep(time.Second + time.Nanosecond)
		assert.Equal(t, 2, get("a"), "after it")
		c.dropAll()
		assert.Equal(t, 3, get("a"), "after dropAll")
		for _, key := range []string{"b", "c", "d"} {
			get(key)
		}
		assert.LessOrEqual(t, len(c.entries), 2)

		c.times = 3
		_, _ = c.get("long", func() (int, error) { time.Sleep(time.Minute); return 1, nil })
		time.Sleep(3 * time.Minute)
		assert.Equal(t, 1, get("long"), "within three times what the call took")
		time.Sleep(time.Nanosecond)
		assert.NotEqual(t, 1, get("long"))
		c.times = 0

		slow := make(chan struct{})
		go func() { _, _ = c.get("slow", func() (int, error) { <-slow; return 7, errors.New("failed") }) }()
		synctest.Wait()
		got := make(chan error)
		go func() { _, err := c.get("slow", call); got <- err }()
		synctest.Wait()
		close(slow)
		assert.EqualError(t, <-got, "failed", "callers share a call and its error")
	})
}
