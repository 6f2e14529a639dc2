// An example with a database, in a module of its own: its driver does not come into the module graph of those who use
// the library.
module github.com/rota-dev/rota/examples/sqlstore

go 1.26.0

require (
	github.com/jackc/pgx/v5 v5.11.0
	github.com/rota-dev/rota v0.0.0
)

require (
	github.com/anishathalye/porcupine v1.3.1 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.2 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/rota-dev/rota => ../../
