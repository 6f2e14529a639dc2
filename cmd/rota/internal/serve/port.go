package serve

import (
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/port"
)

// maxConnections bounds those of a port, whose clients need no rights.
const maxConnections = 64

// servePort serves an address until stop is called. What names the answers in the log.
func (s *server) servePort(what, address string, handler http.Handler, writeTimeout time.Duration) (stop func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	server := port.New(handler, s.log, writeTimeout)
	go func() {
		if err := server.Serve(port.Limit(listener, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("port is no longer served", "of", what, "error", err)
		}
	}()
	s.log.Info("serving a port", "of", what, "address", listener.Addr().String())
	return func() { _ = server.Close() }, nil
}

// checkPorts checks the flags of the ports before anything is opened.
func (o *options) checkPorts() error {
	if o.listen != "" {
		if err := port.CheckAddress("--listen", o.listen); err != nil {
			return err
		}
	}
	if o.pprof == "" {
		return nil
	}
	if err := port.CheckAddress("--pprof", o.pprof); err != nil {
		return err
	}
	if !o.pprofRemote && !port.IsLoopback(o.pprof) {
		return exit.Usagef("--pprof is %q, which other hosts reach, and profiles need no password; use a loopback address such as 127.0.0.1:6060, or --pprof-remote", o.pprof)
	}
	return nil
}
