package postgres

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/backend"
)

// Client is a handle on a registry in a PostgreSQL database. Open makes it.
//
// It has a connection for each purpose, so that none waits for the others: writes may wait for the lock, and renewals must not.
type Client struct {
	options  Options
	log      *slog.Logger
	handle   *backend.Handle
	ctx      context.Context // ends when the connections are closed, which is after that of handle
	cancel   context.CancelFunc
	linksMu  sync.Mutex     // held to begin a goroutine of links, and to cancel ctx
	links    sync.WaitGroup // of the goroutines of connections
	reads    *slot
	writes   *slot
	renewals *slot
	listener *slot
	fences   *slot  // without a connection until FenceRun is called
	id       string // of the registry
	commits  *batcher[encodedTxn, txnAnswer]
	changes  *batcher[changesSince, changesAnswer]
	fenced   *batcher[registry.RunEnd, fenceAnswer]
	watchers watchers
}

var _ registry.Registry = (*Client)(nil)

// The silence after which a connection is suspected. A write may wait for the lock for up to lock_timeout, which is no silence of the network;
// the replacement then waits too, and costs no more than a connection.
const (
	readSilence  = time.Second
	writeSilence = 1500 * time.Millisecond
)

// newClient returns a Client without connections. options are complete.
func newClient(o Options) *Client {
	c := &Client{
		options: o, log: o.Logger,
		handle: backend.NewHandle(backend.Config{CallTimeout: o.CallTimeout, ReadOnly: o.ReadOnly, Logger: o.Logger}),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.reads = c.newSlot(readSilence, o.Endpoints, func(string) {})
	c.writes = c.newSlot(writeSilence, o.Endpoints, func(string) {})
	c.renewals = c.newSlot(readSilence, o.Endpoints, func(string) {})
	c.renewals.up = func(*conn) { c.handle.Reconnected() }
	c.renewals.down = c.handle.Disconnected
	c.listener = c.newSlot(readSilence, o.ListenEndpoints, c.watchers.wakeDirs)
	c.listener.up = func(l *conn) { c.goLink(func() { c.listen(l) }) }
	c.fences = c.newSlot(readSilence, o.Endpoints, func(string) {})
	c.commits = newBatcher(c.goLink, 2, batchItems, batchBytes, func() { c.awaitLink(c.writes) }, c.sendTxns)
	c.changes = newBatcher(c.goLink, 1, batchWatches, 0, func() {
		c.awaitLink(c.reads)
		runtime.Gosched() // the watchers that were woken together ask together
	}, c.readChanges)
	c.fenced = newBatcher(c.goLink, 1, batchFences, 0, func() { c.awaitLink(c.fences) }, c.fenceRuns)
	return c
}

func (c *Client) newSlot(silence time.Duration, endpoints []string, onNotify func(string)) *slot {
	return newSlot(c.ctx, silence, c.goLink, func(ctx context.Context, onEnd func(*conn)) (*conn, error) {
		return c.dial(ctx, endpoints, onNotify, onEnd)
	})
}

// goLink runs f in a goroutine that Close waits for, after the sessions have ended. It returns false once the connections are closed.
func (c *Client) goLink(f func()) bool {
	c.linksMu.Lock()
	defer c.linksMu.Unlock()
	if c.ctx.Err() != nil {
		return false
	}
	c.links.Go(f)
	return true
}

// awaitLink waits for a connection, for as long as a call may take.
func (c *Client) awaitLink(s *slot) {
	ctx, cancel := context.WithTimeout(c.ctx, c.options.CallTimeout)
	defer cancel()
	_, _ = s.get(ctx) // the request that follows reports the error
}

// Limits returns registry.PortableLimits, so a transaction that is accepted here is accepted by every backend.
func (c *Client) Limits() registry.Limits { return c.handle.Limits() }

// Close implements registry.Registry. If ctx ends first, the remaining sessions are left to expire.
func (c *Client) Close(ctx context.Context) error {
	return c.handle.Close(ctx, func(context.Context) {
		c.linksMu.Lock()
		c.cancel()
		c.linksMu.Unlock()
		for _, s := range []*slot{c.reads, c.writes, c.renewals, c.listener, c.fences} {
			s.close()
		}
		c.links.Wait()
	})
}

// call makes a request that may be repeated, until it is answered or ctx ends.
func (c *Client) call(ctx context.Context, on *slot, s statement) ([]row, error) {
	for pause := backend.NextPause(0); ; pause = backend.NextPause(pause) {
		l, err := on.get(ctx)
		if err != nil {
			return nil, backend.CallError(ctx, translate(err))
		}
		rows, err := l.do(ctx, s)
		if err == nil {
			return rows, nil
		}
		l.endIfStandby(err)
		if ctx.Err() != nil || !worthRetrying(err) || !backend.Sleep(ctx, pause) {
			return nil, backend.CallError(ctx, translate(err))
		}
	}
}

// endIfStandby ends the connection if err shows that its server is a standby, so that the primary is looked for.
func (c *conn) endIfStandby(err error) {
	if isStandby(err) {
		c.end(err)
	}
}
