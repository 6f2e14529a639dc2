package pgserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rota-dev/rota/conformance/child"
	"github.com/rota-dev/rota/conformance/freeport"
	"github.com/rota-dev/rota/internal/test/testserver/dbserver"
	"github.com/rota-dev/rota/internal/test/testserver/provision"
)

// Pooler is a pgbouncer in transaction mode before a server.
type Pooler struct {
	dir     string
	port    *freeport.Port
	process *child.Process
}

// Role is the role that clients of a pooler have. A test creates it.
const Role = "app"

// StartPooler starts a pooler with at most so many connections to a server, for each role and database.
func StartPooler(s *Server, connections int) (*Pooler, error) {
	p := &Pooler{}
	if err := p.start(s, connections); err != nil {
		p.Remove()
		return nil, fmt.Errorf("start pgbouncer: %w", err)
	}
	return p, nil
}

func (p *Pooler) start(s *Server, connections int) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	program, root, err := findPgbouncer(ctx)
	if err != nil {
		return err
	}
	if p.dir, err = os.MkdirTemp("", "rota-pgbouncer-"); err != nil {
		return err
	}
	if p.port, err = freeport.Reserve(); err != nil {
		return err
	}
	users := filepath.Join(p.dir, "users")
	if err := os.WriteFile(users, []byte(`"rota" ""`+"\n"+`"`+Role+`" ""`+"\n"), 0o600); err != nil {
		return err
	}
	config := fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%d
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = trust
auth_file = %s
pool_mode = transaction
max_client_conn = 1000
default_pool_size = %d
server_login_retry = 0.1
logfile = %s
`, s.port.Number, p.port.Number, users, connections, filepath.Join(p.dir, "log"))
	file := filepath.Join(p.dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return err
	}
	cmd := exec.Command(program, file)
	cmd.Env = provision.Environment(root)
	if os.Getuid() == 0 {
		cmd.SysProcAttr = dbserver.AsOtherUser() // it refuses root
	}
	log, err := os.Create(filepath.Join(p.dir, "stderr"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if p.process, err = child.Start(cmd); err != nil {
		return err
	}
	err = p.process.AwaitReady(ctx, func(ctx context.Context) error {
		c, err := pgconn.Connect(ctx, fmt.Sprintf("postgres://rota@%s/postgres?sslmode=disable", p.Addr()))
		if err == nil {
			err = c.Close(ctx)
		}
		return err
	})
	if err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%w\n%s", err, text)
	}
	return nil
}

// Addr returns the address of the pooler.
func (p *Pooler) Addr() string { return p.port.Addr() }

// Remove kills the pooler and removes its files.
func (p *Pooler) Remove() {
	if p.process != nil {
		p.process.Kill()
	}
	if p.port != nil {
		p.port.Release()
	}
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
}

func findPgbouncer(ctx context.Context) (program, root string, err error) {
	const path = "usr/sbin/pgbouncer"
	if _, err := os.Stat("/" + path); err == nil {
		return "/" + path, "", nil
	}
	root, err = provision.Packages(ctx, os.Stderr, "pgbouncer", "pgbouncer")
	return filepath.Join(root, path), root, err
}
