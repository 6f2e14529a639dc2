package registry_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// What is written under a lock is written on the condition that it is still held, so a
// write that comes late, from a process that was paused, changes nothing.
func ExampleLock() {
	ctx := context.Background()
	reg := memory.New().Client("worker-1")
	defer reg.Close(ctx)
	session, err := reg.OpenSession(ctx, registry.SessionOptions{})
	if err != nil {
		panic(err)
	}
	lock := registry.NewLock(reg, "locks/report")
	defer lock.Close(ctx)

	held, err := lock.Acquire(ctx, session)
	if err != nil {
		panic(err)
	}
	write := func(key registry.Key) error {
		_, err := reg.Txn(ctx, registry.Txn{
			If:   []registry.Cond{held.Guard()},
			Then: []registry.Op{registry.Create(key, []byte("done"))},
		})
		return err
	}
	fmt.Println("while it is held:", write("reports/monday"))
	fmt.Println("release:", held.Release(ctx))
	fmt.Println("afterwards, refused:", errors.Is(write("reports/tuesday"), registry.ErrConflict))
	// Output:
	// while it is held: <nil>
	// release: <nil>
	// afterwards, refused: true
}

// A store of another kind is fenced by comparing: it refuses whoever comes with a lower
// number than it has seen.
func ExampleHeld_Fence() {
	var (
		newest uint64
		ctx    = context.Background()
		server = memory.New()
	)
	save := func(who string, fence uint64) {
		if fence < newest {
			fmt.Println(who, "is refused")
			return
		}
		newest = fence
		fmt.Println(who, "saves")
	}
	acquire := func(name string) *registry.Held {
		reg := server.Client(name)
		session, err := reg.OpenSession(ctx, registry.SessionOptions{})
		if err != nil {
			panic(err)
		}
		held, err := registry.NewLock(reg, "locks/report").Acquire(ctx, session)
		if err != nil {
			panic(err)
		}
		return held
	}

	old := acquire("worker-1")
	save("worker-1", old.Fence())
	server.Expire("worker-1") // it was silent for too long
	save("worker-2", acquire("worker-2").Fence())
	save("worker-1", old.Fence())
	// Output:
	// worker-1 saves
	// worker-2 saves
	// worker-1 is refused
}
