package coordinator_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/registry/memory"
)

// An owner saves its position, and the next owner of the shard continues from there.
func ExampleOwned_Save() {
	server := memory.New() // a program has a client of etcd or ZooKeeper here
	process := func(name, offset string) {
		ctx, stop := context.WithCancel(context.Background())
		err := coordinator.Join(ctx, server.Client(name), coordinator.Config{
			Namespace: "mail", Instance: name, Shards: 1, Logger: slog.New(slog.DiscardHandler),
			Own: func(ctx context.Context, s coordinator.Owned) error {
				from, err := s.State(ctx)
				if err != nil {
					return err
				}
				fmt.Printf("%s begins at %q\n", name, from)
				stop() // the process is asked to leave
				<-ctx.Done()
				// The shard does not move before this call has returned.
				return s.Save(context.WithoutCancel(ctx), []byte(offset))
			},
		})
		fmt.Println(name, "left:", err)
	}
	process("first", "4711")
	process("second", "4712")
	// Output:
	// first begins at ""
	// first left: <nil>
	// second begins at "4711"
	// second left: <nil>
}
