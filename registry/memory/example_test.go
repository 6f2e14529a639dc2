package memory_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// A test makes the server lose the reply to a commit: the client gets an error, though the
// transaction was applied.
func Example() {
	ctx := context.Background()
	s := memory.New()
	a, b := s.Client("a"), s.Client("b")

	s.LoseReply("a", 1)
	_, err := a.Txn(ctx, registry.Txn{Then: []registry.Op{
		registry.Create("jobs/bill", []byte("daily")),
	}})
	fmt.Println("outcome unknown:", errors.Is(err, registry.ErrUnknownOutcome))

	e, err := b.Get(ctx, "jobs/bill", registry.ReadOptions{})
	fmt.Printf("b reads: %s, %v\n", e.Value, err)
	fmt.Println("commits of a:", s.Counts("a").Commits)
	// Output:
	// outcome unknown: true
	// b reads: daily, <nil>
	// commits of a: 1
}

// A client without a connection loses its session before another client can observe that its
// keys were deleted. In the bubble of synctest.Test this takes no time.
func ExampleServer_Partition() {
	ctx := context.Background()
	s := memory.New()
	a, b := s.Client("a"), s.Client("b")
	session, _ := a.OpenSession(ctx, registry.SessionOptions{TTL: time.Second / 2})
	a.Txn(ctx, registry.Txn{Then: []registry.Op{
		registry.CreateOwned("workers/~a", nil, session.ID()),
	}})
	workers, _ := b.Watch(ctx, "workers", registry.WatchOptions{})
	workers.Next(ctx) // the Snapshot

	heal := s.Partition("a")
	defer heal()
	batch, _ := workers.Next(ctx)
	fmt.Println("deleted:", batch.Deletes)
	state, _ := session.State()
	fmt.Println("session:", state)
	// Output:
	// deleted: [workers/~a]
	// session: lost
}
