package cost

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// failing is a test that records whether it failed, and ends no goroutine.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Helper()               {}
func (f *failing) Fatalf(string, ...any) { f.failed = true }

func isRefused(n int, f func()) bool {
	t := &failing{}
	Require(t, "call", n, f)
	return t.failed
}

var (
	keptBytes []byte
	keptCount int
)

func TestRequire_NoticesWhatGrowsWithTheSquareOfTheInput(t *testing.T) {
	const n = 100 << 10
	text := strings.Repeat("a", n)
	assert.False(t, isRefused(n, func() { keptCount += strings.Count(text, "ab") }), "one pass")
	assert.False(t, isRefused(n, func() { keptBytes = []byte(text) }), "one copy")
	assert.True(t, isRefused(n, func() {
		for i := 0; i < n; i += 10 {
			for _, c := range []byte(text[i:]) {
				if c == 'b' {
					keptCount++
				}
			}
		}
	}), "a pass for each tenth byte")
	assert.True(t, isRefused(n, func() {
		for i := 0; i < n; i += 100 {
			keptBytes = []byte(text)
		}
	}), "a copy for each hundredth byte")
}
