package storelog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"time"
)

// zkLog reads the transaction log of a single server as it grows.
type zkLog struct {
	*zkHistory
	addr string
	stop context.CancelFunc
	done chan struct{}
}

// ZooKeeper reads the log below dir of the single server at addr. The server must run on this machine and have
// started empty. root is the namespace root of the registry.
func ZooKeeper(ctx context.Context, addr, dir, root string) (Log, error) {
	reading, stop := context.WithCancel(context.Background())
	l := &zkLog{zkHistory: newZKHistory(root), addr: addr, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.fail(l.follow(reading, &zkReader{dir: dir}))
	}()
	if err := l.Sync(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("read ZooKeeper's log: %w", err), l.Close())
	}
	return l, nil
}

// pollEvery is the interval between reads of the log.
const pollEvery = 2 * time.Millisecond

// follow reads the log of a single server, which commits what it logs.
func (l *zkLog) follow(ctx context.Context, r *zkReader) error {
	defer r.close()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if err := r.read(math.MaxUint64, func(_ uint64, t *zkTxn) { l.take(t) }); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Sync asks the server for its last executed transaction, and waits until it has been read.
func (l *zkLog) Sync(ctx context.Context) error {
	return l.reach(ctx, func(ctx context.Context) (uint64, error) { return lastZxid(ctx, l.addr) })
}

// lastZxid returns the last executed transaction, by a command that needs no session.
func lastZxid(ctx context.Context, addr string) (uint64, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return 0, err
	}
	if _, err := conn.Write([]byte("srvr")); err != nil {
		return 0, err
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(answer)) {
		if zxid, ok := strings.CutPrefix(strings.TrimSpace(line), "Zxid: 0x"); ok {
			return strconv.ParseUint(zxid, 16, 64)
		}
	}
	return 0, fmt.Errorf("%s does not tell its last transaction: %.100q", addr, answer)
}

// Close ends the reading.
func (l *zkLog) Close() error {
	l.stop()
	<-l.done
	return nil
}
