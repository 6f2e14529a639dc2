package faults_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/faults"
	"github.com/rota-dev/rota/registry/memory"
)

// increment adds one to a counter. Sending a transaction again after an error, without Apply, would
// count twice if only the reply had been lost.
func increment(ctx context.Context, reg registry.Registry) error {
	for {
		e, err := reg.Get(ctx, "counter", registry.ReadOptions{Fresh: true})
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(e.Value))
		if err != nil {
			return err
		}
		next := registry.Txn{Then: []registry.Op{registry.Set("counter", e.Modified, []byte(strconv.Itoa(n+1)))}}
		if _, err = registry.Apply(ctx, reg, next); !errors.Is(err, registry.ErrConflict) {
			return err
		}
	}
}

// Example tests increment with a lost reply. The handle may be one of any store.
func Example() {
	ctx := context.Background()
	in := faults.New(1)
	reg := in.Wrap("web-1", memory.New().Client("web-1"))
	defer reg.Close(ctx)
	if _, err := reg.Txn(ctx, registry.Txn{Then: []registry.Op{registry.Create("counter", []byte("0"))}}); err != nil {
		fmt.Println(err)
		return
	}

	lost := in.Add(faults.Rule{Fault: faults.LoseReply, Ops: faults.Txn, Key: "counter", Times: 1})
	fmt.Println(increment(ctx, reg), lost.Injected())
	e, err := reg.Get(ctx, "counter", registry.ReadOptions{Fresh: true})
	fmt.Println(string(e.Value), err)
	// Output:
	// <nil> 1
	// 1 <nil>
}

// A test that injects random faults logs the recipe when it fails. Parse injects them again.
func ExampleParse() {
	in, err := faults.Parse("seed=7; lose-reply ops=txn chance=0.05; cut ops=txn chance=0.001 for=1s..20s")
	if err != nil {
		fmt.Println(err)
		return
	}
	in.Add(faults.Rule{Fault: faults.Stale, Client: "web-*", Key: "config/...", Chance: 0.5})
	fmt.Print(in)
	// Output:
	// seed=7
	// lose-reply ops=txn chance=0.05
	// cut ops=txn chance=0.001 for=1s..20s
	// stale client=web-* key=config/... chance=0.5
}
