package executor_test

import (
	"context"
	"fmt"

	"github.com/rota-dev/rota/executor"
)

func ExampleParseShardParams() {
	params, err := executor.ParseShardParams("0=Beijing, 1=Shanghai")
	fmt.Println(params[0], params[1], err)

	_, err = executor.ParseShardParams("0=Beijing,Shanghai")
	fmt.Println(err)
	// Output:
	// Beijing Shanghai <nil>
	// parse shard params: "Shanghai": is not of the form shard=value
}

// A handler is tested with a Run written by hand.
func ExampleRun() {
	handler := executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
		fmt.Printf("rows with id %% %d = %d\n", r.Shards, r.Shard)
		_, err := r.Commit(ctx)
		return err
	})
	err := handler.Handle(context.Background(), &executor.Run{RunInfo: executor.RunInfo{Shard: 2, Shards: 3}})
	fmt.Println(err)
	// Output:
	// rows with id % 3 = 2
	// <nil>
}
