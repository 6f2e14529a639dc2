package zookeeper

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/conformance/tcpproxy"
	"github.com/rota-dev/rota/internal/test/testserver/servertest"
	"github.com/rota-dev/rota/registry"
)

func TestList_TakesLongerThanTheBoundWhileAnswersCome(t *testing.T) {
	const keys, size, bound = 60, 10 << 10, time.Second
	ns := newNamespace()
	w := open(t, ns)
	for i := range keys {
		mustCommit(t, w, registry.Create(registry.Key(fmt.Sprintf("d/k%02d", i)), make([]byte, size)))
	}
	p, err := tcpproxy.Listen(servertest.ZooKeeper(t).Addrs()[0])
	require.NoError(t, err)
	t.Cleanup(p.Close)
	c := open(t, ns, func(o *Options) { o.Endpoints, o.CallTimeout = []string{p.Addr()}, bound })
	defer p.Throttle(tcpproxy.ToClient, keys*size/3)()
	start := time.Now()
	l, err := c.List(t.Context(), "d", registry.ReadOptions{})
	require.NoError(t, err)
	require.Len(t, l.Entries, keys)
	require.Greater(t, time.Since(start), 2*bound)
}
