package lock_test

import (
	"testing"

	"github.com/rota-dev/rota/internal/onecpu"
)

func TestMain(m *testing.M) {
	defer onecpu.Hold()()
	m.Run()
}
