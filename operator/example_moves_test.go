package operator_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry/memory"
)

// joinAndOwn joins a group and returns when all partitions are owned.
func joinAndOwn(ctx context.Context, server *memory.Server, shards int) (left chan error) {
	owned, left := make(chan struct{}), make(chan error, 1)
	go func() {
		left <- coordinator.Join(ctx, server.Client("a"), coordinator.Config{
			Namespace: "mail", Instance: "web-1", Shards: shards,
			Own: func(ctx context.Context, _ coordinator.Owned) error {
				owned <- struct{}{}
				<-ctx.Done()
				return nil
			},
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
	}()
	for range shards {
		<-owned
	}
	return left
}

// Before an instance is shut down, a program asks where its shards would go, without and with another
// instance in its place.
func ExampleOperator_Moves() {
	ctx, stop := context.WithCancel(context.Background())
	server := memory.New()
	left := joinAndOwn(ctx, server, 4)
	defer func() {
		stop()
		<-left
	}()

	op, err := operator.New(server.Client("console"), "mail", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, options := range [][]operator.MovesOption{
		{operator.Without("web-1")},
		{operator.With(1, nil)},
		{operator.With(2, nil), operator.Without("web-1")},
	} {
		preview, err := op.Moves(ctx, options...)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, job := range preview.Jobs {
			for _, m := range job.Moves {
				fmt.Printf("%v from %q to %q\n", m.Shards, m.From, m.To)
			}
			if job.Problem != "" {
				fmt.Println("problem:", job.Problem)
			}
		}
	}
	// Output:
	// [0 1 2 3] from "web-1" to ""
	// problem: no live instance offers the job
	// [2 3] from "web-1" to "new-1"
	// [0 1] from "web-1" to "new-1"
	// [2 3] from "web-1" to "new-2"
}
