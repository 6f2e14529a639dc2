package serve

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
)

// The bounds of a port. Its clients need no rights, so they must not be able to use up the descriptors and the memory
// with which the process runs jobs.
const (
	portTimeout      = 10 * time.Second // of reading a request, and of writing its answer
	idleTimeout      = time.Minute
	maxConnections   = 64
	maxRequestHeader = 8 << 10
)

// newPort returns a server of handler within the bounds. Profiles are the only answers that take longer.
func newPort(handler http.Handler, log *slog.Logger, writeTimeout time.Duration) *http.Server {
	return &http.Server{
		Handler: handler, ReadTimeout: portTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxRequestHeader,
		ErrorLog: slog.NewLogLogger(portProblems{log.Handler()}, slog.LevelWarn),
	}
}

// servePort serves an address until stop is called. What names the answers in the log.
func (s *server) servePort(what, address string, handler http.Handler, writeTimeout time.Duration) (stop func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	server := newPort(handler, s.log, writeTimeout)
	go func() {
		if err := server.Serve(&boundedListener{Listener: listener, most: maxConnections}); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("port is no longer served", "of", what, "error", err)
		}
	}()
	s.log.Info("serving a port", "of", what, "address", listener.Addr().String())
	return func() { _ = server.Close() }, nil
}

// checkAddress returns an error for an address that no listener accepts, whatever the state of the host.
func checkAddress(flag, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return exit.Usagef("%s is %q, not HOST:PORT or :PORT: %w", flag, address, err)
	}
	return nil
}

// checkPorts checks the flags of the ports before anything is opened.
func (o *options) checkPorts() error {
	if o.listen != "" {
		if err := checkAddress("--listen", o.listen); err != nil {
			return err
		}
	}
	if o.pprof == "" {
		return nil
	}
	if err := checkAddress("--pprof", o.pprof); err != nil {
		return err
	}
	if !o.pprofRemote && !isLoopback(o.pprof) {
		return exit.Usagef("--pprof is %q, which other hosts reach, and profiles need no password; use a loopback address such as 127.0.0.1:6060, or --pprof-remote", o.pprof)
	}
	return nil
}

// isLoopback reports whether only this host reaches an address.
func isLoopback(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// boundedListener closes the oldest connection when a further one would exceed a number. Refusing or delaying the new one
// would let a slow client keep the probes of the host out.
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

// portProblems gives the texts of net/http a constant message.
type portProblems struct{ slog.Handler }

// Handle implements slog.Handler.
func (h portProblems) Handle(ctx context.Context, r slog.Record) error {
	problem := slog.NewRecord(r.Time, slog.LevelWarn, "a port had a problem with a connection", r.PC)
	problem.AddAttrs(slog.String("problem", strings.TrimSpace(r.Message)))
	return h.Handler.Handle(ctx, problem)
}
