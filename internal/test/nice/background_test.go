//go:build linux

package nice

import (
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLower_AffectsLaterThreads(t *testing.T) {
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
			assert.Equal(t, "10", strings.Fields(fields)[16])
		})
	}
	started.Wait()
	close(all)
	done.Wait()
}
