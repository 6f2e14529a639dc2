// Command chaos injects faults into fleets of processes on real servers, which it starts, and judges the
// behaviour of the fleets:
//
//	go run ./internal/test/fleet/chaos --store etcd --members 1 --faults kill,pause,cut --rounds 200
//
// See package command. The command registry/postgres/internal/chaos does the same on PostgreSQL.
package main

import (
	"github.com/rota-dev/rota/internal/test/fleet"
	"github.com/rota-dev/rota/internal/test/fleet/chaos/command"
)

func main() { command.Main(fleet.Stores(), nil) }
