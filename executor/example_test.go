package executor_test

import (
	"context"
	"errors"
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

// The function of Together is tested with a Batch written by hand.
func ExampleBatch() {
	refuseOdd := func(_ context.Context, b *executor.Batch) (err error) {
		for _, r := range b.Runs {
			if r.Shard%2 == 1 {
				err = errors.Join(err, b.End(r.Shard, errors.New("odd")))
			}
		}
		return err
	}
	b := &executor.Batch{Runs: []*executor.Run{
		{RunInfo: executor.RunInfo{Shard: 0, Shards: 3}},
		{RunInfo: executor.RunInfo{Shard: 1, Shards: 3}},
	}}
	fmt.Println(refuseOdd(context.Background(), b), b.Ended())
	// Output:
	// <nil> map[1:odd]
}
