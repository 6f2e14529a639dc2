// Command chaos injects faults into fleets on PostgreSQL, as internal/test/fleet/chaos does on other stores:
//
//	go run ./internal/chaos --store postgres --members 1 --faults kill,pause,cut,restart-servers --rounds 40
package main

import (
	"github.com/rota-dev/rota/internal/test/fleet/chaos/command"
	"github.com/rota-dev/rota/registry/postgres/internal/pgfleet"
)

func main() { command.Main(pgfleet.Stores(), pgfleet.Schemes()) }
