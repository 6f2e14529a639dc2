package registry_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// A commit whose reply is lost is found to have been made, and is not made again.
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

// A cache shows what is in a directory, and tells when to look again.
func ExampleCache() {
	ctx := context.Background()
	server := memory.New()
	reg, other := server.Client("a"), server.Client("b")
	defer reg.Close(ctx)
	defer other.Close(ctx)

	jobs, err := registry.NewCache(ctx, reg, "jobs")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer jobs.Close()

	changed := jobs.Changed() // before looking, so that nothing is missed
	fmt.Println(jobs.Len())
	_, err = registry.Apply(ctx, other, registry.Txn{Then: []registry.Op{
		registry.Create("jobs/settle", []byte("hourly")),
		registry.Create("jobs/bill", []byte("daily")),
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	<-changed
	for _, e := range jobs.Entries() {
		fmt.Printf("%s: %s\n", e.Key, e.Value)
	}
	// Output:
	// 0
	// jobs/bill: daily
	// jobs/settle: hourly
}

// What belongs to a session is made anew in the session that follows it.
func ExampleKeepSession() {
	ctx := context.Background()
	server := memory.New()
	reg := server.Client("a")
	defer reg.Close(ctx)

	present := func(ctx context.Context, s registry.Session) error {
		_, err := registry.Apply(ctx, reg, registry.Txn{
			Then: []registry.Op{registry.CreateOwned("~present", nil, s.ID())},
		})
		fmt.Println("present:", err == nil)
		return err
	}
	calls := 0
	err := registry.KeepSession(ctx, reg, registry.SessionOptions{}, func(ctx context.Context, s registry.Session) error {
		if err := present(ctx, s); err != nil {
			return err
		}
		if calls++; calls == 2 {
			return nil // done: the session is closed
		}
		server.Expire("a") // the store has not heard of us for too long
		<-ctx.Done()
		fmt.Println("lost:", errors.Is(context.Cause(ctx), registry.ErrSessionLost))
		return context.Cause(ctx)
	})
	fmt.Println("error:", err)
	fmt.Println("sessions:", server.Counts("a").Sessions)
	// Output:
	// present: true
	// lost: true
	// present: true
	// error: <nil>
	// sessions: 0
}
