package historyurl

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/history"
)

func TestOpen_SelectsTheDialect(t *testing.T) {
	for url, dialect := range map[string]history.Dialect{
		"postgres://kim:secret@db:5433/x": history.Postgres, "postgresql://a,b/x": history.Postgres, "mysql://db/x": history.MySQL,
		"sqlite:" + filepath.Join(t.TempDir(), "a b?c%20.db"): history.SQLite,
	} {
		db, got, err := Open(url, Options{})
		require.NoError(t, err)
		assert.Equal(t, dialect, got)
		require.NoError(t, db.Close())
	}
}

func TestOpen_CreatesAFileOnlyForWriting(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a b?c%20.db")
	_, _, err := Open("sqlite:"+file, Options{ReadOnly: true})
	require.ErrorContains(t, err, "no such file")
	db, dialect, err := Open("sqlite://"+file, Options{})
	require.NoError(t, err)
	require.NoError(t, history.Migrate(t.Context(), db, dialect))
	require.NoError(t, db.Close())
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "it has the output of programs")
	db, dialect, err = Open("sqlite:"+file, Options{ReadOnly: true})
	require.NoError(t, err)
	_, err = db.Exec("CREATE TABLE a (b integer)")
	require.ErrorContains(t, err, "readonly")
	assert.Equal(t, history.SQLite, dialect)
	require.NoError(t, db.Close())
}

func TestOptions_ReplaceThoseOfTheURL(t *testing.T) {
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	o := Options{User: "kim", Password: "p:@/?", TLS: config}
	p, err := postgresConfig("postgres://rota:old@db1,db2:5433/x?sslmode=disable", o)
	require.NoError(t, err)
	assert.Equal(t, "kim p:@/? x", p.User+" "+p.Password+" "+p.Database)
	assert.Equal(t, "db1", p.TLSConfig.ServerName)
	require.NotEmpty(t, p.Fallbacks)
	for _, f := range p.Fallbacks {
		assert.Equal(t, f.Host, f.TLSConfig.ServerName)
		assert.Equal(t, uint16(tls.VersionTLS13), f.TLSConfig.MinVersion)
	}
	p, err = postgresConfig("postgres:///x?host=/run/postgres", o)
	require.NoError(t, err)
	assert.Nil(t, p.TLSConfig, "a Unix socket")
	config.ServerName = "db.internal"
	m, err := mysqlConfig("mysql://rota:old@db:3307/x?readTimeout=7s", o)
	require.NoError(t, err)
	assert.Equal(t, "kim p:@/? x db:3307 7s", m.User+" "+m.Passwd+" "+m.DBName+" "+m.Addr+" "+m.ReadTimeout.String())
	assert.Equal(t, "db.internal", m.TLS.ServerName)

	m, err = mysqlConfig("mysql://rota:p%40@db/x", Options{})
	require.NoError(t, err)
	assert.Equal(t, "rota p@ db:3306", m.User+" "+m.Passwd+" "+m.Addr)
	assert.Nil(t, m.TLS)
}

func TestOpen_ReportsErrorsWithoutThePassword(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://kim:secret@db:x/y":                                             "history postgres:...: not a URL of PostgreSQL",
		"postgres://kim:secret@db/y?sslmode=verify-full&sslrootcert=/no/such/file": "history postgres://kim:xxxxx@db/y: open /no/such/file: no such file or directory",
		"mysql://kim:secret@db":                                                    "history mysql://kim:xxxxx@db: not mysql://USER:PASSWORD@HOST[:PORT]/DATABASE",
		"mysql://kim:secret@db/y?readTimeout=secret":                               "history mysql://kim:xxxxx@db/y: ",
		"oracle://kim:secret@db":                                                   "history oracle://kim:xxxxx@db: the URL must begin with",
	} {
		_, _, err := Open(url, Options{})
		require.Error(t, err, url)
		assert.Contains(t, err.Error(), want)
		if url != "mysql://kim:secret@db/y?readTimeout=secret" { // a parameter, which is no password
			assert.NotContains(t, err.Error(), "secret")
		}
	}
}

func TestRedact_ShowsNoPasswordOfATextThatIsNoURL(t *testing.T) {
	for text, want := range map[string]string{
		"u:s3cret@tcp(db:3306)/d":                 "...",
		"host=db password=s3cret":                 "...",
		"s3cret":                                  "...",
		"postgres:u:s3cret@db/d":                  "postgres:...",
		"postgres://u:s3cret@[::1/d":              "postgres:...",
		"postgres://u:s3cret@db/d?password=12345": "postgres://u:xxxxx@db/d",
		"oracle://db/d":                           "oracle://db/d",
		"sqlite:/var/runs.db":                     "sqlite:/var/runs.db",
		"sqlite:runs.db":                          "sqlite:runs.db",
		"jsonl:runs.jsonl":                        "jsonl:runs.jsonl",
	} {
		assert.Equal(t, want, Redact(text), text)
	}
}
