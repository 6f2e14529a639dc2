// Package dbserver starts servers of PostgreSQL and MariaDB for tests. They are the system's or from its packages,
// which are extracted into a cache.
//
// The package imports no driver. A test imports those of pgx and go-sql-driver/mysql.
package dbserver

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/rota-dev/rota/conformance/child"
	"github.com/rota-dev/rota/conformance/freeport"
	"github.com/rota-dev/rota/internal/test/testserver/provision"
)

// Server is a database server in a process of its own.
type Server struct {
	name string
	// prepare returns the command that starts the server on a directory, which it initializes.
	prepare func(ctx context.Context, dir string, port *freeport.Port) (func() *exec.Cmd, error)
	open    func(addr, database string) (*sql.DB, error)
	root    string // the name of a database that always exists

	dir     string
	port    *freeport.Port
	command func() *exec.Cmd
	process *child.Process
}

// StartPostgres starts a server of PostgreSQL. The user rota has no password.
func StartPostgres() (*Server, error) {
	prepare := func(ctx context.Context, dir string, port *freeport.Port) (func() *exec.Cmd, error) {
		return PreparePostgres(ctx, dir, port)
	}
	return start(&Server{name: "postgres", prepare: prepare, open: openPostgres, root: "postgres"})
}

// StartMariaDB starts a server of MariaDB. The user root has no password.
func StartMariaDB() (*Server, error) {
	return start(&Server{name: "mariadb", prepare: prepareMariaDB, open: openMariaDB})
}

func start(s *Server) (*Server, error) {
	if err := s.start(); err != nil {
		s.Remove()
		return nil, fmt.Errorf("start %s: %w", s.name, err)
	}
	return s, nil
}

// Addr returns the address of the server, which does not change.
func (s *Server) Addr() string { return s.port.Addr() }

// Open returns a handle on a database at addr, which is that of the server or of a proxy.
func (s *Server) Open(addr, database string) (*sql.DB, error) { return s.open(addr, database) }

// CreateDatabase creates a database. The name has lower-case letters, digits and underscores.
func (s *Server) CreateDatabase(name string) error {
	db, err := s.open(s.Addr(), s.root)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.Exec("CREATE DATABASE " + name)
	return err
}

func (s *Server) start() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if s.dir, err = os.MkdirTemp("", "rota-"+s.name+"-"); err != nil {
		return err
	}
	if s.port, err = freeport.Reserve(); err != nil {
		return err
	}
	if s.command, err = s.prepare(ctx, s.dir, s.port); err != nil {
		return err
	}
	return s.Resume()
}

// Resume starts the process after Stop and waits until it answers.
func (s *Server) Resume() error {
	log, err := os.Create(filepath.Join(s.dir, "server.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := s.command()
	cmd.Stdout, cmd.Stderr = log, log
	if s.process, err = child.Start(cmd); err != nil {
		return err
	}
	db, err := s.open(s.port.Addr(), s.root)
	if err != nil {
		return err
	}
	defer db.Close()
	for end := time.Now().Add(time.Minute); ; <-time.After(20 * time.Millisecond) {
		err := db.Ping()
		if err == nil {
			return nil
		}
		select {
		case <-s.process.Done():
		default:
			if time.Now().Before(end) {
				continue
			}
		}
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("start %s: %w\n%s", cmd.Path, err, text)
	}
}

// Stop kills the process.
func (s *Server) Stop() { s.process.Kill() }

// Remove kills the process and removes its files.
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

// find returns the last file that matches a pattern, on the system or in packages, and the root of the packages.
func find(ctx context.Context, pattern, what, pkg string) (path, root string, err error) {
	if found, _ := filepath.Glob("/" + pattern); len(found) > 0 {
		return found[len(found)-1], "", nil
	}
	if root, err = provision.Packages(ctx, os.Stderr, what, pkg); err != nil {
		return "", "", err
	}
	found, _ := filepath.Glob(filepath.Join(root, pattern))
	if len(found) == 0 {
		return "", "", fmt.Errorf("nothing at %s", filepath.Join(root, pattern))
	}
	return found[len(found)-1], root, nil
}

// PreparePostgres initializes a directory, and returns the command that starts a server of PostgreSQL on it with
// settings such as fsync=on. The user rota has no password.
func PreparePostgres(ctx context.Context, dir string, port *freeport.Port, settings ...string) (func() *exec.Cmd, error) {
	return preparePostgres(ctx, dir, port, settings, "initdb", "-U", "rota", "-A", "trust", "-E", "UTF8", "--locale", "C")
}

// PreparePostgresStandby is PreparePostgres for a standby of the server at a port of this host.
func PreparePostgresStandby(ctx context.Context, dir string, port *freeport.Port, primary int, settings ...string) (func() *exec.Cmd, error) {
	source := fmt.Sprintf("host=127.0.0.1 port=%d user=rota", primary)
	return preparePostgres(ctx, dir, port, settings, "pg_basebackup", "--write-recovery-conf", "--checkpoint=fast", "-d", source)
}

// preparePostgres fills a directory by a program, and returns the command that starts a server on it.
func preparePostgres(ctx context.Context, dir string, port *freeport.Port, settings []string, fill string, fillArgs ...string) (func() *exec.Cmd, error) {
	initdb, root, err := find(ctx, "usr/lib/postgresql/*/bin/initdb", "postgresql", "postgresql")
	if err != nil {
		return nil, err
	}
	command := func(program string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(filepath.Dir(initdb), program), args...)
		cmd.Dir = dir // it refuses to start where the working directory was deleted
		cmd.Env = provision.Environment(root)
		if os.Getuid() == 0 {
			cmd.SysProcAttr = AsOtherUser() // PostgreSQL refuses root
		}
		return cmd
	}
	data := filepath.Join(dir, "data")
	if out, err := command(fill, append(fillArgs, "-D", data)...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", fill, err, out)
	}
	args := []string{"-D", data, "-p", fmt.Sprint(port.Number), "-k", dir}
	for _, setting := range append([]string{"listen_addresses=127.0.0.1"}, settings...) {
		args = append(args, "-c", setting)
	}
	return func() *exec.Cmd { return command("postgres", args...) }, nil
}

func prepareMariaDB(ctx context.Context, dir string, port *freeport.Port) (func() *exec.Cmd, error) {
	program, root, err := find(ctx, "usr/sbin/mariadbd", "mariadb", "mariadb-server-core")
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return nil, err
	}
	command := func(args ...string) *exec.Cmd {
		share := filepath.Join(root, "/usr/share/mysql")
		cmd := exec.Command(program, append([]string{
			"--no-defaults", "--datadir=" + data, "--basedir=" + filepath.Join(root, "/usr"), "--lc-messages-dir=" + share,
			"--character-sets-dir=" + filepath.Join(share, "charsets"), "--user=root", "--skip-grant-tables", "--innodb-log-file-size=64M",
		}, args...)...)
		cmd.Env = provision.Environment(root)
		return cmd
	}
	if out, err := command("--bootstrap").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mariadbd --bootstrap: %w\n%s", err, out)
	}
	return func() *exec.Cmd {
		return command("--bind-address=127.0.0.1", fmt.Sprint("--port=", port.Number), "--socket="+filepath.Join(dir, "socket"), "--pid-file="+filepath.Join(dir, "pid"))
	}, nil
}

func openPostgres(addr, database string) (*sql.DB, error) {
	return sql.Open("pgx", fmt.Sprintf("postgres://rota@%s/%s?sslmode=disable&connect_timeout=5", addr, database))
}

func openMariaDB(addr, database string) (*sql.DB, error) {
	return sql.Open("mysql", fmt.Sprintf("root@tcp(%s)/%s?timeout=5s", addr, database))
}
