// Package port serves HTTP within bounds, so that the clients of a port cannot use up the descriptors and the memory of the process.
package port

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
)

// Timeout bounds the reading of a request.
const Timeout = 10 * time.Second

// The other bounds of a port.
const (
	idleTimeout      = time.Minute
	maxRequestHeader = 8 << 10
)

// New returns a server of handler within the bounds.
func New(handler http.Handler, log *slog.Logger, writeTimeout time.Duration) *http.Server {
	return &http.Server{
		Handler: handler, ReadTimeout: Timeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxRequestHeader,
		ErrorLog: slog.NewLogLogger(problems{log.Handler()}, slog.LevelWarn),
	}
}

// CheckAddress returns an error for an address that no listener accepts, whatever the state of the host.
func CheckAddress(flag, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return exit.Usagef("%s is %q, not HOST:PORT or :PORT: %w", flag, address, err)
	}
	return nil
}

// IsLoopback reports whether only this host reaches an address.
func IsLoopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Limit returns a listener that closes the oldest connection when a further one would exceed a number. Refusing or delaying the
// new one would let a slow client keep the others out.
func Limit(l net.Listener, most int) net.Listener { return &boundedListener{Listener: l, most: most} }

// boundedListener is the listener of Limit.
type boundedListener struct {
	net.Listener
	most int

	mu   sync.Mutex
	open []*boundedConn // the oldest first
}

// boundedConn is a connection of a boundedListener.
type boundedConn struct {
	net.Conn
	listener *boundedListener
}

// Accept implements net.Listener.
func (l *boundedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &boundedConn{conn, l}
	var oldest *boundedConn
	l.mu.Lock()
	if len(l.open) >= l.most {
		oldest, l.open = l.open[0], l.open[1:]
	}
	l.open = append(l.open, c)
	l.mu.Unlock()
	if oldest != nil {
		_ = oldest.Conn.Close()
	}
	return c, nil
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	l := c.listener
	l.mu.Lock()
	if i := slices.Index(l.open, c); i >= 0 {
		l.open = slices.Delete(l.open, i, i+1)
	}
	l.mu.Unlock()
	return c.Conn.Close()
}

// problems gives the texts of net/http a constant message.
type problems struct{ slog.Handler }

// Handle implements slog.Handler.
func (h problems) Handle(ctx context.Context, r slog.Record) error {
	problem := slog.NewRecord(r.Time, slog.LevelWarn, "a port had a problem with a connection", r.PC)
	problem.AddAttrs(slog.String("problem", strings.TrimSpace(r.Message)))
	return h.Handler.Handle(ctx, problem)
}
