package registry_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// If the reply to a commit is lost, Apply determines that it was applied, and does not
// commit again.
func ExampleApply() {
	ctx := context.Background()
	server := memory.New()
	reg := server.Client("a")
	defer reg.Close(ctx)

	server.LoseReply("a", 1)
	rev, err := registry.Apply(ctx, reg, registry.Txn{
		Then: []registry.Op{registry.Create("counter", []byte("1"))},
	})
	fmt.Println("error:", err)

	e, err := reg.Get(ctx, "counter", registry.ReadOptions{})
	fmt.Println("error:", err)
	fmt.Println("ours:", e.Modified == rev)
	fmt.Println("commits:", server.Counts("a").Commits)
	// Output:
	// error: <nil>
	// error: <nil>
	// ours: true
	// commits: 1
}

// The function creates its owned key again in each new session.
func ExampleKeepSession() {
	ctx := context.Background()
	server := memory.New()
	reg := server.Client("a")
	defer reg.Close(ctx)

	announce := func(ctx context.Context, s registry.Session) error {
		_, err := registry.Apply(ctx, reg, registry.Txn{
			Then: []registry.Op{registry.CreateOwned("~worker-1", nil, s.ID())},
		})
		fmt.Println("announced:", err == nil)
		return err
	}
	calls := 0
	err := registry.KeepSession(ctx, reg, registry.SessionOptions{}, func(ctx context.Context, s registry.Session) error {
		if err := announce(ctx, s); err != nil {
			return err
		}
		if calls++; calls == 2 {
			return nil // done: the session is closed
		}
		server.Expire("a") // as if the store had received no renewal for the TTL
		<-ctx.Done()
		fmt.Println("lost:", errors.Is(context.Cause(ctx), registry.ErrSessionLost))
		return context.Cause(ctx)
	})
	fmt.Println("error:", err)
	fmt.Println("sessions:", server.Counts("a").Sessions)
	// Output:
	// announced: true
	// lost: true
	// announced: true
	// error: <nil>
	// sessions: 0
}
