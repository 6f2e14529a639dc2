package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProcess_EndsAtOnceOnASecondSignal(t *testing.T) {
	server, err := Etcd(t.Context(), 1)
	require.NoError(t, err)
	defer server.Stop()
	f, err := Start(t.Context(), server, Config{
		Instances: 1, Jobs: 1, Shards: 1, Every: time.Second, Takes: 10 * time.Minute,
		TTL: 2 * time.Second, Drain: 10 * time.Minute, Dir: t.TempDir(),
	})
	require.NoError(t, err)
	defer f.Close()
	running := func() bool { return !f.Judge.IsIdle() }
	require.NoError(t, f.Until(t.Context(), "a run begins", recovery, running))
	p := f.Process(0)
	p.Stop()
	draining := func() bool { return f.Judge.IsDraining(p.Instance) }
	require.NoError(t, f.Until(t.Context(), "the process drains", recovery, draining))
	assert.False(t, p.hasEnded(), "the process waits for the run")
	p.proc.Terminate()
	select {
	case <-p.proc.Done():
	case <-time.After(recovery):
		assert.Fail(t, "the process has not ended")
	}
}
