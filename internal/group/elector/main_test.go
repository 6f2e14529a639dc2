package elector

import (
	"testing"

	"github.com/rota-dev/rota/internal/onecpu"
	"github.com/rota-dev/rota/internal/test/nice"
)

func TestMain(m *testing.M) {
	nice.Lower()
	defer onecpu.Hold()()
	m.Run()
}
