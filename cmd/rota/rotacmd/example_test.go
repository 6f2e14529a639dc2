package rotacmd_test

import (
	"context"
	"fmt"
	"os"

	"github.com/rota-dev/rota/cmd/rota/rotacmd"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// server stands for the servers of a store.
var server = memory.New()

// A document shows from here:

// open opens the registry at a URL such as "mine://host/namespace".
func open(ctx context.Context, url string, c rotacmd.Connection) (registry.Registry, error) {
	return server.Client(url), nil
}

// Example is the body of main in a command with a registry of its own.
func Example() {
	rotacmd.Main(rotacmd.Options{Schemes: map[string]rotacmd.OpenFunc{"mine": open}})
}

// To here.

func ExampleRun() {
	options := rotacmd.Options{Schemes: map[string]rotacmd.OpenFunc{"mine": open}}
	streams := rotacmd.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stdout}
	args := []string{"jobs", "--registry", "mine://host", "--namespace", "billing"}
	fmt.Println(rotacmd.Run(context.Background(), options, args, streams))
	// Output:
	// # billing/default
	// no jobs
	//
	// note  There is no fleet: mine://host has no records below billing/groups/default, nor the record
	//       billing/meta. Check -n, -g and the address of the registry.
	// 2
}
