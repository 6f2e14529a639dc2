package executor_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry/memory"
)

// A document shows from here:

var settlement = executor.Job{
	Name: "settle", Shards: 3, ShardParams: map[int]string{0: "Beijing", 1: "Shanghai", 2: "Guangzhou"},
	Handler: executor.Together(func(ctx context.Context, b *executor.Batch) error {
		var regions []string
		for _, r := range b.Runs {
			regions = append(regions, r.ShardParam)
		}
		accounts, err := queryAccounts(ctx, regions)
		if err != nil {
			return err // the result of all runs
		}
		for _, r := range b.Runs {
			if accounts[r.ShardParam] == 0 {
				err = errors.Join(err, b.End(r.Shard, errors.New("no accounts"))) // the result of this one
			}
		}
		return err // the result of the others
	}),
}

// To here.

func queryAccounts(_ context.Context, regions []string) (map[string]int, error) {
	fmt.Println("query", regions)
	return map[string]int{"Beijing": 12, "Guangzhou": 7}, nil
}

// Accounts of three regions are settled with one query.
func ExampleTogether() {
	ended := make(chan executor.RunEnded, 3)
	ex, err := executor.New(memory.New().Client("my-host"), "shop", executor.Options{
		Logger: quiet, Observer: executor.Observer{RunEnded: func(e executor.RunEnded) { ended <- e }},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := ex.Register(settlement); err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	if err := ex.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := ex.Trigger(ctx, "settle", executor.Trigger{}); err != nil {
		fmt.Println(err)
	}
	for range 3 {
		if e := <-ended; e.Outcome != executor.Succeeded {
			fmt.Println(e.Run.ShardParam, e.Outcome, e.Err)
		}
	}
	if err := ex.Shutdown(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// query [Beijing Shanghai Guangzhou]
	// Shanghai failed no accounts
}
