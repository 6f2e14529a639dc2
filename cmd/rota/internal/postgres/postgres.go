// Package postgres has the registry on PostgreSQL for the command: its URLs, the command "rota postgres", and a server for development.
package postgres

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/conformance/child"
	"github.com/rota-dev/rota/conformance/freeport"
	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/internal/test/testserver/dbserver"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/postgres"
)

// Open opens the registry at a URL of postgres.ParseURL. It is a registryurl.OpenFunc.
func Open(ctx context.Context, url string, o registryurl.Options) (registry.Registry, error) {
	options, err := optionsOf(url, o)
	if err != nil {
		return nil, err
	}
	reg, err := postgres.Open(ctx, options)
	if err != nil { // not an interface that holds a nil pointer
		return nil, err
	}
	return reg, nil
}

// optionsOf returns the options of a URL with the credentials of a connection.
func optionsOf(url string, o registryurl.Options) (postgres.Options, error) {
	options, err := postgres.ParseURL(url)
	if err != nil {
		return options, err
	}
	if o.Username != "" {
		options.Username = o.Username
	}
	if o.TLS != nil {
		options.TLS = o.TLS
	}
	options.Password, options.Logger, options.CallTimeout, options.ReadOnly = o.Password, o.Logger, o.CallTimeout, o.ReadOnly
	return options, nil
}

// Command returns the command "rota postgres".
func Command(s *settings.Settings) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "postgres",
		Short: "Prepare a PostgreSQL database for a fleet",
		Long:  `Postgres prepares a PostgreSQL database as the store of a fleet.`,
	}
	cmd.AddCommand(migrateCommand(s))
	return settings.Limit(cmd)
}

func migrateCommand(s *settings.Settings) *cobra.Command {
	print := false
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Create or update the schema of a registry",
		Long: `Migrate creates the schema of a registry on PostgreSQL, or updates it; it does nothing if the schema is up to date. Each version
of the schema serves earlier programs too. The role needs the right to create schemas in the database, or, if the schema
exists, to create in that. The page on stores lists the rights of other roles.

With --print it prints the statements and connects to nothing. They find out by themselves what a schema lacks, and have to be one
transaction: psql -1 makes them one.`,
		Example: `  rota postgres migrate --registry "postgres://db:5432/jobs?schema=rota&user=owner"
  rota postgres migrate --print | psql -1 -v ON_ERROR_STOP=1 -d jobs`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if print {
				return printSchema(s, cmd.OutOrStdout())
			}
			return migrate(cmd.Context(), s, cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&print, "print", false, "print the statements")
	return settings.Limit(cmd, "registry", "context", "timeout")
}

// printSchema prints the statements that create or update the schema that the registry's URL names, or the default one.
func printSchema(s *settings.Settings, out io.Writer) error {
	if err := s.Resolve(); err != nil {
		return err
	}
	schema := ""
	if s.Registry != "" {
		o, err := postgres.ParseURL(s.Registry)
		if err != nil {
			return err
		}
		schema = o.Schema
	}
	text, err := postgres.MigrationSQL(schema)
	if err == nil {
		_, err = io.WriteString(out, text)
	}
	return err
}

func migrate(ctx context.Context, s *settings.Settings, out io.Writer) error {
	with, err := s.ConnectionOf("postgres")
	if err != nil {
		return err
	}
	o, err := optionsOf(s.Registry, with)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	if err := postgres.Migrate(ctx, o); err != nil {
		return err
	}
	fmt.Fprintf(out, "the schema has version %d\n", postgres.SchemaVersion())
	return nil
}

// DevServer is a server of PostgreSQL with a registry, for development. It keeps its data in a temporary directory.
type DevServer struct {
	dir     string
	port    *freeport.Port
	process *child.Process
}

// StartDevServer starts a server and creates a registry in it.
func StartDevServer(ctx context.Context) (*DevServer, error) {
	s := &DevServer{}
	if err := s.start(ctx); err != nil {
		s.Stop()
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	return s, nil
}

func (s *DevServer) start(ctx context.Context) (err error) {
	if s.dir, err = os.MkdirTemp("", "rota-postgres-"); err != nil {
		return err
	}
	if s.port, err = freeport.Reserve(); err != nil {
		return err
	}
	var command func() *exec.Cmd
	if command, err = dbserver.PreparePostgres(ctx, s.dir, s.port, "max_connections=300"); err != nil {
		return err
	}
	if s.process, err = child.Start(command()); err != nil {
		return err
	}
	o, err := postgres.ParseURL(s.URL())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return s.process.AwaitReady(ctx, func(ctx context.Context) error { return postgres.Migrate(ctx, o) })
}

// URL returns the address of the registry.
func (s *DevServer) URL() string { return "postgres://" + s.port.Addr() + "/postgres?user=rota" }

// Stop ends the server and deletes its data.
func (s *DevServer) Stop() {
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
