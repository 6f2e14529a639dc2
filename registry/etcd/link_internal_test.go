package etcd

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/connectivity"
)

// scriptedConn goes from state to state, and stays in the last one.
type scriptedConn struct{ states []connectivity.State }

func (c *scriptedConn) GetState() connectivity.State { return c.states[0] }

func (c *scriptedConn) WaitForStateChange(context.Context, connectivity.State) bool {
	if len(c.states) == 1 {
		return false // the context has ended
	}
	c.states = c.states[1:]
	return true
}

func TestBreaks(t *testing.T) {
	const (
		idle, connecting, ready = connectivity.Idle, connectivity.Connecting, connectivity.Ready
		failure, shutdown       = connectivity.TransientFailure, connectivity.Shutdown
	)
	for name, c := range map[string]struct {
		states []connectivity.State
		breaks bool
	}{
		"a connection that is reported as ready late is kept": {[]connectivity.State{connecting, ready}, false},
		"one that is ready is kept":                           {[]connectivity.State{ready}, false},
		"one that is connecting again has broken":             {[]connectivity.State{connecting, ready, connecting, ready}, true},
		"one that is idle after it was ready has broken":      {[]connectivity.State{ready, idle, ready}, true},
		"one that is idle has broken":                         {[]connectivity.State{idle, ready}, true},
		"one that fails to connect has broken":                {[]connectivity.State{connecting, failure, ready}, true},
		"one that is shut down has broken":                    {[]connectivity.State{shutdown}, true},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.breaks, breaks(t.Context(), &scriptedConn{c.states}))
		})
	}
}
