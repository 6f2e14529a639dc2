package simulate_test

import (
	"os"
	"runtime/debug"
	"testing"

	"github.com/rota-dev/rota/internal/onecpu"
	"github.com/rota-dev/rota/internal/test/nice"
)

func TestMain(m *testing.M) {
	nice.Lower()
	defer onecpu.Hold()()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200) // a fleet makes much garbage and keeps little; with more the heap outgrows caches
	}
	m.Run()
}
