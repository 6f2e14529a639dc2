package etcd_test

import (
	"testing"

	"github.com/rota-dev/rota/internal/test/testserver/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }
