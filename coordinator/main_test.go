package coordinator

import (
	"testing"

	"github.com/rota-dev/rota/internal/background"
	"github.com/rota-dev/rota/internal/onecpu"
)

func TestMain(m *testing.M) {
	background.GiveWay()
	defer onecpu.Hold()()
	m.Run()
}
