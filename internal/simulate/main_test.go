package simulate_test

import (
	"runtime/debug"
	"testing"

	"github.com/rota-dev/rota/internal/onecpu"
)

func TestMain(m *testing.M) {
	defer onecpu.Hold()()
	debug.SetGCPercent(400) // a fleet's day makes much garbage and keeps little
	m.Run()
}
