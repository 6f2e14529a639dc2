package backend

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestJittered_IsWithinAFifth(t *testing.T) {
	const d = 1000 * time.Millisecond
	least, most := 2*d, time.Duration(0)
	for range 1000 {
		got := Jittered(d)
		least, most = min(least, got), max(most, got)
	}
	require.GreaterOrEqual(t, least, 800*time.Millisecond)
	require.Less(t, least, 850*time.Millisecond)
	require.LessOrEqual(t, most, 1200*time.Millisecond)
	require.Greater(t, most, 1150*time.Millisecond)
	require.Zero(t, Jittered(0))
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		require.True(t, Sleep(t.Context(), time.Second))
		require.Equal(t, time.Second, time.Since(start))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.False(t, Sleep(ctx, time.Minute))
		require.Equal(t, 2*time.Second, time.Since(start))
	})
}

func TestNextPause_DoublesWithinBounds(t *testing.T) {
	var got []time.Duration
	for pause := NextPause(0); len(got) < 7; pause = NextPause(pause) {
		got = append(got, pause/time.Millisecond)
	}
	require.Equal(t, []time.Duration{10, 20, 40, 80, 160, 250, 250}, got)
}
