package executor_test

import (
	"context"
	"fmt"
	"time"

	"github.com/rota-dev/rota/executor"
)

func ExampleCron() {
	settle := executor.Cron("30 2 * * *").In("America/New_York")
	fmt.Println(settle)

	// On 8 March 2026 the clocks of New York go from 02:00 to 03:00.
	after := time.Date(2026, 3, 7, 0, 0, 0, 0, time.UTC)
	fires, err := settle.Next(after, 3)
	if err != nil {
		fmt.Println(err)
	}
	for _, f := range fires {
		fmt.Println(f)
	}
	// Output:
	// cron 30 2 * * * in America/New_York
	// 2026-03-07 02:30:00 -0500 EST
	// 2026-03-08 03:00:00 -0400 EDT
	// 2026-03-09 02:30:00 -0400 EDT
}

func ExampleEvery() {
	// Two processes that ask at different moments get fires of the same set.
	for _, asked := range []int{3, 7} {
		fires, err := executor.Every(10*time.Second).Next(time.Date(2026, 5, 5, 12, 0, asked, 0, time.UTC), 2)
		fmt.Println(fires, err)
	}
	// Output:
	// [2026-05-05 12:00:10 +0000 UTC 2026-05-05 12:00:20 +0000 UTC] <nil>
	// [2026-05-05 12:00:10 +0000 UTC 2026-05-05 12:00:20 +0000 UTC] <nil>
}

func ExampleParseSchedule() {
	s, err := executor.ParseSchedule("cron 0 3 * * * in Asia/Shanghai")
	fmt.Println(s == executor.Cron("0 3 * * *").In("Asia/Shanghai"), err)

	_, err = executor.ParseSchedule("cron 0 3 30 feb *")
	fmt.Println(err)
	// Output:
	// true <nil>
	// schedule "cron 0 3 30 feb *": it never fires: no date matches the fields
}

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
	err := handler.Handle(context.Background(), &executor.Run{Shard: 2, Shards: 3})
	fmt.Println(err)
	// Output:
	// rows with id % 3 = 2
	// <nil>
}
