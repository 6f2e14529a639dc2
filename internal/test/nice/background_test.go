//go:build linux

package nice

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLower_AffectsLaterThreads(t *testing.T) {
	want := strconv.Itoa(max(niceness, nicenessOf(0)))
	Lower()
	var started, done sync.WaitGroup
	all := make(chan struct{})
	for range 20 {
		started.Add(1)
		done.Go(func() {
			runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
			started.Done()
			<-all
			stat, err := os.ReadFile("/proc/thread-self/stat")
			if !assert.NoError(t, err) {
				return
			}
			_, fields, _ := strings.Cut(string(stat), ") ") // skips the name, which may contain spaces
			assert.Equal(t, want, strings.Fields(fields)[16])
		})
	}
	started.Wait()
	close(all)
	done.Wait()
}

func TestLower_DoesNotRaiseThePriority(t *testing.T) {
	runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
	const lowest = 19
	require.NoError(t, syscall.Setpriority(syscall.PRIO_PROCESS, 0, lowest))
	Lower()
	assert.Equal(t, lowest, nicenessOf(0))
}
