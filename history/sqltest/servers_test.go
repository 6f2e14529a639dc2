package sqltest

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/rota-dev/rota/internal/test/testserver/dbserver"
)

// servers are the database servers. Each starts when it is first used.
var servers = map[string]func() (*dbserver.Server, error){
	"PostgreSQL": sync.OnceValues(func() (*dbserver.Server, error) { return removedAtEnd(dbserver.StartPostgres()) }),
	"MariaDB":    sync.OnceValues(func() (*dbserver.Server, error) { return removedAtEnd(dbserver.StartMariaDB()) }),
}

var started []*dbserver.Server

func removedAtEnd(s *dbserver.Server, err error) (*dbserver.Server, error) {
	if err == nil {
		started = append(started, s)
	}
	return s, err
}

func TestMain(m *testing.M) {
	if setting := os.Getenv(migrateVariable); setting != "" {
		if err := migrateAsProcess(setting); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	for _, s := range started {
		s.Remove()
	}
	os.Exit(code)
}

// lower returns a name that each server accepts for a database.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(s))
}
