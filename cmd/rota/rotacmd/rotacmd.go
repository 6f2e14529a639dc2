// Package rotacmd is the command rota for programs that add registries to it. Such a program is a
// main package of its own that calls Main:
//
//	func main() {
//		rotacmd.Main(rotacmd.Options{Schemes: map[string]rotacmd.OpenFunc{"mine": open}})
//	}
//
// It has all commands of rota, and accepts URLs of its schemes wherever rota accepts those of etcd,
// ZooKeeper and PostgreSQL: in --registry, ROTA_REGISTRY, contexts and files of jobs.
package rotacmd

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rota-dev/rota/cmd/rota/internal/cli"
	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/postgres"
	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/registry"
)

// Options configure the command. The zero value is the command rota.
type Options struct {
	// Schemes are registries besides those on etcd, ZooKeeper and PostgreSQL, by the scheme of their URLs: the
	// part before "://", in lower case. The schemes etcd, zk, zookeeper, memory and postgresql cannot be
	// replaced; postgres can.
	Schemes map[string]OpenFunc
}

// OpenFunc opens the registry at a URL, which has the scheme of the function; the function checks
// the rest. ctx bounds the call, not the registry, which the command closes. An error should name
// the address: users see it.
type OpenFunc func(ctx context.Context, url string, c Connection) (registry.Registry, error)

// Connection is how to connect to a registry. A URL holds no secrets.
type Connection struct {
	TLS                *tls.Config // nil: no TLS is configured
	Username, Password string      // empty: none is configured
	Logger             *slog.Logger
	CallTimeout        time.Duration // bound of each call, such as a list of all jobs; zero: the registry's default
	// ReadOnly: the command only reads. The registry may then do without the right to write, and
	// refuse writes with registry.ErrReadOnly.
	ReadOnly bool
}

// Streams are the standard streams of a command.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Main executes the command line of this process, and ends the process with the exit code. SIGINT and
// SIGTERM end the command; a second signal ends the process at once.
func Main(o Options) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(Run(ctx, o, os.Args[1:], Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

// Run executes a command line, without the name of the program, until ctx ends, and returns its exit
// code: 2 if the Options or the command line are invalid. "rota --help" lists the codes.
func Run(ctx context.Context, o Options, args []string, s Streams) int {
	schemes := registryurl.Schemes{"postgres": postgres.Open}
	for scheme, open := range o.Schemes {
		schemes[scheme] = nil
		if open != nil {
			schemes[scheme] = func(ctx context.Context, url string, o registryurl.Options) (registry.Registry, error) {
				return open(ctx, url, Connection(o))
			}
		}
	}
	if err := schemes.Validate(); err != nil {
		fmt.Fprintln(s.Err, "rotacmd:", err)
		return exit.Usage
	}
	return cli.Run(ctx, schemes, args, cli.Streams(s))
}
