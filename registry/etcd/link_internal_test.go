package etcd

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/connectivity"
)

// scriptedConn goes through the states and remains in the last one.
type scriptedConn struct{ states []connectivity.State }

func (c *scriptedConn) GetState() connectivity.State { return c.states[0] }

func (c *scriptedConn) WaitForStateChange(context.Context, connectivity.State) bool {
	if len(c.states) == 1 {
		return false // the context has ended
	}
	c.states = c.states[1:]
	return true
}

func TestWaitUntilBroken(t *testing.T) {
	const (
		idle, connecting, ready = connectivity.Idle, connectivity.Connecting, connectivity.Ready
		failure, shutdown       = connectivity.TransientFailure, connectivity.Shutdown
	)
	for name, c := range map[string]struct {
		states []connectivity.State
		breaks bool
	}{
		"keeps a connection that is reported as ready late": {[]connectivity.State{connecting, ready}, false},
		"keeps a ready connection":                          {[]connectivity.State{ready}, false},
		"detects one that is connecting again":              {[]connectivity.State{connecting, ready, connecting, ready}, true},
		"detects one that is idle after it was ready":       {[]connectivity.State{ready, idle, ready}, true},
		"detects one that is idle":                          {[]connectivity.State{idle, ready}, true},
		"detects one that fails to connect":                 {[]connectivity.State{connecting, failure, ready}, true},
		"detects one that is shut down":                     {[]connectivity.State{shutdown}, true},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.breaks, waitUntilBroken(t.Context(), &scriptedConn{c.states}))
		})
	}
}
