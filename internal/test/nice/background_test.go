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

func TestGiveWay_HoldsForThreadsThatComeLaterToo(t *testing.T) {
	Lower()
	var started, done sync.WaitGroup
	all := make(chan struct{})
	for range 20 {
		started.Add(1)
		done.Go(func() {
			runtime.LockOSThread() // a thread of its own, and never unlocked: the thread ends too
			started.Done()
			<-all
			stat, err := os.ReadFile("/proc/thread-self/stat")
			if !assert.NoError(t, err) {
				return
			}
			_, fields, _ := strings.Cut(string(stat), ") ") // after the name, which may have spaces
			assert.Equal(t, "10", strings.Fields(fields)[16])
		})
	}
	started.Wait()
	close(all)
	done.Wait()
}
