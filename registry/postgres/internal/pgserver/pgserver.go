// Package pgserver starts servers of PostgreSQL, and poolers before them, for the tests of registry/postgres.
package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rota-dev/rota/conformance/child"
	"github.com/rota-dev/rota/conformance/freeport"
	"github.com/rota-dev/rota/internal/test/testserver/dbserver"
)

// Server is a server of PostgreSQL in a process of its own, on the loopback interface. The role rota is a superuser without a password.
type Server struct {
	dir     string
	port    *freeport.Port
	command func() *exec.Cmd
	process *child.Process
}

// Start starts a server with settings such as fsync=on. By default it does not sync its disk.
func Start(settings ...string) (*Server, error) {
	return startAt(nil, func(ctx context.Context, s *Server) (func() *exec.Cmd, error) {
		return dbserver.PreparePostgres(ctx, s.dir, s.port, append(defaults, settings...)...)
	})
}

// StartStandby starts a server that follows this one, until it is promoted.
func (s *Server) StartStandby() (*Server, error) { return s.startStandbyAt(nil) }

func (s *Server) startStandbyAt(port *freeport.Port) (*Server, error) {
	return startAt(port, func(ctx context.Context, standby *Server) (func() *exec.Cmd, error) {
		return dbserver.PreparePostgresStandby(ctx, standby.dir, standby.port, s.port.Number, defaults...)
	})
}

// FailOver kills the server, promotes its standby, and starts another standby of that at the address of the one that was killed.
func (s *Server) FailOver(ctx context.Context, standby *Server) (next *Server, err error) {
	s.Kill()
	if err := standby.Exec(ctx, "postgres", "SELECT pg_promote()"); err != nil {
		return nil, fmt.Errorf("promote: %w", err)
	}
	port := s.port
	s.port = nil
	s.Remove()
	return standby.startStandbyAt(port)
}

type prepareFunc func(ctx context.Context, s *Server) (func() *exec.Cmd, error)

// startAt starts a server at a port, or at a new one if that is nil.
func startAt(port *freeport.Port, prepare prepareFunc) (*Server, error) {
	s := &Server{port: port}
	if err := s.start(prepare); err != nil {
		s.Remove()
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	return s, nil
}

// defaults are the settings of a server, before those of Start.
var defaults = []string{"fsync=off", "max_connections=300", "log_min_messages=warning"}

const startTimeout = 5 * time.Minute

func (s *Server) start(prepare prepareFunc) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if s.dir, err = os.MkdirTemp("", "rota-postgres-"); err != nil {
		return err
	}
	if s.port == nil {
		if s.port, err = freeport.Reserve(); err != nil {
			return err
		}
	}
	if s.command, err = prepare(ctx, s); err != nil {
		return err
	}
	return s.Continue(ctx)
}

// Addr returns the address of the server, which does not change.
func (s *Server) Addr() string { return s.port.Addr() }

// Continue starts the process, on the data of the one before, and returns when it answers. After Kill, the server refuses to start until
// the processes of the one before have ended.
func (s *Server) Continue(ctx context.Context) error {
	for {
		err := s.startProcess(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-s.process.Done(): // it has refused to start
		default:
			return err
		}
	}
}

func (s *Server) startProcess(ctx context.Context) (err error) {
	log, err := os.OpenFile(filepath.Join(s.dir, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := s.command()
	cmd.Stdout, cmd.Stderr = log, log
	if s.process, err = child.Start(cmd); err != nil {
		return err
	}
	err = s.process.AwaitReady(ctx, func(ctx context.Context) error { return s.Exec(ctx, "postgres", "SELECT 1") })
	if err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%w\n%s", err, text[max(0, len(text)-2000):])
	}
	return nil
}

// Kill kills all processes of the server, as a crash of the host would.
func (s *Server) Kill() { s.process.Kill() }

// Pause suspends all processes of the server until Resume.
func (s *Server) Pause() error { return s.process.Pause() }

// Resume continues the processes of the server.
func (s *Server) Resume() error { return s.process.Resume() }

// Shutdown ends the server by a signal: SIGQUIT for an immediate shutdown, without a checkpoint; SIGINT for a fast one.
func (s *Server) Shutdown(signal syscall.Signal) error {
	if err := syscall.Kill(s.process.Pid(), signal); err != nil {
		return err
	}
	select {
	case <-s.process.Done():
		return nil
	case <-time.After(time.Minute):
		return errors.New("the server does not end")
	}
}

// Remove kills the server and removes its files.
func (s *Server) Remove() {
	if s.process != nil {
		s.process.Kill()
	}
	if s.port != nil {
		s.port.Release()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// Query executes statements as the superuser in a database, and returns the rows of the last one, in text form.
func (s *Server) Query(ctx context.Context, database, sql string) ([][]string, error) {
	c, err := pgconn.Connect(ctx, fmt.Sprintf("postgres://rota@%s/%s?sslmode=disable", s.Addr(), database))
	if err != nil {
		return nil, err
	}
	defer c.Close(context.WithoutCancel(ctx))
	results, err := c.Exec(ctx, sql).ReadAll()
	if err != nil || len(results) == 0 {
		return nil, err
	}
	var rows [][]string
	for _, r := range results[len(results)-1].Rows {
		var columns []string
		for _, v := range r {
			columns = append(columns, string(v))
		}
		rows = append(rows, columns)
	}
	return rows, nil
}

// Exec executes statements as the superuser in a database.
func (s *Server) Exec(ctx context.Context, database, sql string) error {
	_, err := s.Query(ctx, database, sql)
	return err
}
