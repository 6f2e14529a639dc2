package coordinator_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry/memory"
)

// A process consumes the partitions that it owns. A single process owns all of them; a second
// one would be assigned half. For a consumer that continues where the previous owner stopped,
// see examples/consumer.
func ExampleJoin() {
	ctx, stop := context.WithCancel(context.Background())
	server := memory.New() // a program has a client of etcd or ZooKeeper here
	var consuming sync.WaitGroup
	consuming.Add(3)
	joined := make(chan error)
	go func() {
		joined <- coordinator.Join(ctx, server.Client("a"), coordinator.Config{
			Namespace: "mail",
			Shards:    3,
			Own: func(ctx context.Context, s coordinator.Owned) error {
				fmt.Printf("consuming partition %d of %d\n", s.Shard, s.Shards)
				consuming.Done()
				<-ctx.Done()
				return s.Save(context.WithoutCancel(ctx), []byte("4711")) // the next owner continues here
			},
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
	}()
	consuming.Wait()
	stop()
	fmt.Println("left:", <-joined)
	// Unordered output:
	// consuming partition 0 of 3
	// consuming partition 1 of 3
	// consuming partition 2 of 3
	// left: <nil>
}

// A program outside of the group takes a host out of service. The shards of its instances
// would move to other instances, of which there are none here. The shards of Join belong to a
// job named "shards".
func ExampleOperator() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	server := memory.New()
	owned, moving := make(chan struct{}), make(chan struct{})
	joined := make(chan error)
	go func() {
		joined <- coordinator.Join(ctx, server.Client("a"), coordinator.Config{
			Namespace: "mail",
			Host:      "rack-7",
			Shards:    1,
			Own: func(ctx context.Context, s coordinator.Owned) error {
				close(owned)
				<-ctx.Done()
				fmt.Println("partition", s.Shard, "ends:", context.Cause(ctx))
				close(moving)
				return nil
			},
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
	}()
	<-owned

	op, err := operator.New(server.Client("console"), "mail", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("disabled:", op.Disable(ctx, operator.Scope{Hosts: []string{"rack-7"}}))
	<-moving
	intent, err := op.Intent(ctx, "") // of all jobs
	fmt.Println(intent.Disabled.Hosts, err)

	stop()
	fmt.Println("left:", <-joined)
	// Unordered output:
	// disabled: <nil>
	// partition 0 ends: shard is to move
	// [rack-7] <nil>
	// left: <nil>
}

// A dashboard lists the jobs of a group without being in it. NextFire and Overdue need the compiler of the
// jobs: for those of package executor, that is op.WithCompiler(executor.Compile).
func ExampleOperator_Group() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	server := memory.New()
	owned := make(chan struct{})
	joined := make(chan error)
	go func() {
		joined <- coordinator.Join(ctx, server.Client("a"), coordinator.Config{
			Namespace: "mail",
			Instance:  "reader-1",
			Shards:    1,
			Own: func(ctx context.Context, _ coordinator.Owned) error {
				close(owned)
				<-ctx.Done()
				return nil
			},
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
	}()
	<-owned
	op, err := operator.New(server.Client("dashboard"), "mail", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	st, err := op.Group(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("leader:", st.Leader.Instance)
	for _, j := range st.Jobs {
		fmt.Printf("job %s: %d of %d shards owned\n", j.Job, j.Shards-j.Unowned, j.Shards)
	}
	for _, i := range st.Instances {
		fmt.Printf("instance %s: alive %t, %d shards\n", i.Instance, i.Alive, i.Shards)
	}
	stop()
	<-joined
	// Output:
	// leader: reader-1
	// job shards: 1 of 1 shards owned
	// instance reader-1: alive true, 1 shards
}
