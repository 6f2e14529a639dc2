package memory_test

import (
	"context"
	"fmt"
	"time"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// A client that is cut off loses its session before anyone can see that its keys are gone.
// Within a bubble this takes no time at all; a test would use synctest.Test.
func ExampleServer_Partition() {
	ctx := context.Background()
	s := memory.New()
	a, b := s.Client("a"), s.Client("b")
	session, _ := a.OpenSession(ctx, registry.SessionOptions{TTL: time.Second / 2})
	a.Txn(ctx, registry.Txn{Then: []registry.Op{
		registry.CreateOwned("workers/~a", nil, session.ID()),
	}})
	workers, _ := b.Watch(ctx, "workers", registry.WatchOptions{})
	workers.Next(ctx) // what there is

	heal := s.Partition("a")
	defer heal()
	batch, _ := workers.Next(ctx)
	fmt.Println("gone:", batch.Deletes)
	state, _ := session.State()
	fmt.Println("session:", state)
	// Output:
	// gone: [workers/~a]
	// session: lost
}
