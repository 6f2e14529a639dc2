package memory_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// TestVirtualHour keeps 1,000 machines with a session each for an hour, then disconnects all,
// so that they expire. Since sessions rest, it takes little time, with or without latency.
func TestVirtualHour(t *testing.T) {
	for _, delay := range []time.Duration{0, 10 * time.Millisecond} {
		bubble(t, fmt.Sprintf("delay %v", delay), func(t *testing.T, s *memory.Server) {
			sessions := make([]registry.Session, 1000)
			for i := range sessions {
				name := fmt.Sprint(i)
				sessions[i] = open(t, s.Client(name), ttl)
				apply(t, s.Client(name), registry.CreateOwned(registry.Join("d", "~"+name), nil, sessions[i].ID()))
				s.Delay(name, delay, delay)
			}
			time.Sleep(time.Hour)
			for _, x := range sessions {
				require.True(t, memory.AtRest(x))
			}
			require.Equal(t, 1000, s.Counts("").Sessions)
			for i := range 1000 {
				s.Partition(fmt.Sprint(i))
			}
			time.Sleep(ttl)
			synctest.Wait()
			require.Empty(t, s.Dump())
		})
	}
}
