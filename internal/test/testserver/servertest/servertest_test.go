package servertest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/test/testserver"
)

// recorder is the testing.TB of a test that is expected to fail.
type recorder struct {
	testing.TB
	cleanups []func()
	logs     string
}

type failure string

func (r *recorder) Helper()                         {}
func (r *recorder) Failed() bool                    { return true }
func (r *recorder) Fatal(args ...any)               { panic(failure(fmt.Sprint(args...))) }
func (r *recorder) Logf(format string, args ...any) { r.logs += fmt.Sprintf(format, args...) }
func (r *recorder) Cleanup(f func())                { r.cleanups = append(r.cleanups, f) }

func TestEtcd_NeedsMain(t *testing.T) { // this package has no Main
	require.PanicsWithValue(t,
		failure("TestMain does not call servertest.Main, which stops the server"),
		func() { Etcd(&recorder{TB: t}) })
}

func TestStart_FailsTheTestWithTheReason(t *testing.T) {
	require.PanicsWithValue(t, failure("no server"),
		func() { stopWithTest(&recorder{TB: t}, nil, errors.New("no server")) })
}

func TestStartEtcd_ShowsTheOutputOfAFailedTest(t *testing.T) {
	r := &recorder{TB: t}
	c := StartEtcd(r, testserver.EtcdOptions{})
	defer c.Stop()
	require.Len(t, r.cleanups, 1)
	r.cleanups[0]()
	require.Contains(t, r.logs, c.Members()[0].Addr())
	require.Contains(t, r.logs, "level")
	require.Empty(t, c.Members()[0].Output(), "the server was not stopped")
}
