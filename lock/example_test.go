package lock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/rota-dev/rota/lock"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// Guard makes a write conditional on the lock, so a late write of a process that was paused
// changes nothing.
func ExampleLock() {
	ctx := context.Background()
	reg := memory.New().Client("worker-1")
	defer reg.Close(ctx)
	session, err := reg.OpenSession(ctx, registry.SessionOptions{})
	if err != nil {
		panic(err)
	}
	lock := lock.New(reg, "locks/report")
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
	fmt.Println("while the lock is held:", write("reports/monday"))
	fmt.Println("release:", held.Release(ctx))
	fmt.Println("after the release, refused:", errors.Is(write("reports/tuesday"), registry.ErrConflict))
	// Output:
	// while the lock is held: <nil>
	// release: <nil>
	// after the release, refused: true
}

// A store of another kind compares fences: it refuses a write with a lower fence than the
// highest that it has received.
func ExampleHeld_Fence() {
	var (
		newest uint64
		ctx    = context.Background()
		server = memory.New()
	)
	save := func(worker string, fence uint64) {
		if fence < newest {
			fmt.Println(worker, "is refused")
			return
		}
		newest = fence
		fmt.Println(worker, "saves")
	}
	acquire := func(name string) *lock.Held {
		reg := server.Client(name)
		session, err := reg.OpenSession(ctx, registry.SessionOptions{})
		if err != nil {
			panic(err)
		}
		held, err := lock.New(reg, "locks/report").Acquire(ctx, session)
		if err != nil {
			panic(err)
		}
		return held
	}

	old := acquire("worker-1")
	save("worker-1", old.Fence())
	server.Expire("worker-1") // as if it had sent no renewal for the TTL
	save("worker-2", acquire("worker-2").Fence())
	save("worker-1", old.Fence())
	// Output:
	// worker-1 saves
	// worker-2 saves
	// worker-1 is refused
}
