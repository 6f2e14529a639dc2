package schedule_test

import (
	"fmt"
	"time"

	"github.com/rota-dev/rota/schedule"
)

func ExampleCron() {
	settle := schedule.Cron("30 2 * * *").In("America/New_York")
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

func ExampleQuartz() {
	// The last working day of each month.
	report := schedule.Quartz("0 0 18 LW * ?").In("Asia/Shanghai")
	fires, err := report.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), 3)
	if err != nil {
		fmt.Println(err)
	}
	for _, f := range fires {
		fmt.Println(f)
	}
	// Output:
	// 2026-01-30 18:00:00 +0800 CST
	// 2026-02-27 18:00:00 +0800 CST
	// 2026-03-31 18:00:00 +0800 CST
}

func ExampleAt() {
	migrate := schedule.At(
		time.Date(2026, 7, 5, 3, 0, 0, 0, time.UTC),
		time.Date(2026, 7, 4, 3, 0, 0, 0, time.UTC),
	)
	fmt.Println(migrate)
	// Output:
	// at 2026-07-04T03:00:00Z, 2026-07-05T03:00:00Z
}

func ExampleSchedule_Until() {
	// A new schedule replaces the old one at an instant. The fire at the instant is of the new one only.
	change := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	old := schedule.Every(8 * time.Hour).Until(change)
	new := schedule.Every(12 * time.Hour).From(change)
	for _, s := range []schedule.Schedule{old, new} {
		fires, err := s.Next(change.Add(-9*time.Hour), 2)
		fmt.Println(s, fires, err)
	}
	// Output:
	// every 8h until 2026-07-01T00:00:00Z [2026-06-30 16:00:00 +0000 UTC] <nil>
	// every 12h from 2026-07-01T00:00:00Z [2026-07-01 00:00:00 +0000 UTC 2026-07-01 12:00:00 +0000 UTC] <nil>
}

func ExampleSchedule_Spread() {
	// The runs begin at fixed instants of each minute instead of together.
	poll := schedule.Every(time.Minute).Spread(30 * time.Second)
	for shard := range 3 {
		fmt.Println(poll, poll.Offset("poll", shard).Round(time.Millisecond))
	}
	// Output:
	// every 1m spread 30s 10.966s
	// every 1m spread 30s 4.11s
	// every 1m spread 30s 1.687s
}

func ExampleEvery() {
	// Two processes that ask at different moments get fires of the same set.
	for _, asked := range []int{3, 7} {
		fires, err := schedule.Every(10*time.Second).Next(time.Date(2026, 5, 5, 12, 0, asked, 0, time.UTC), 2)
		fmt.Println(fires, err)
	}
	// Output:
	// [2026-05-05 12:00:10 +0000 UTC 2026-05-05 12:00:20 +0000 UTC] <nil>
	// [2026-05-05 12:00:10 +0000 UTC 2026-05-05 12:00:20 +0000 UTC] <nil>
}

func ExampleParse() {
	s, err := schedule.Parse("cron 0 3 * * * in Asia/Shanghai")
	fmt.Println(s == schedule.Cron("0 3 * * *").In("Asia/Shanghai"), err)

	_, err = schedule.Parse("cron 0 3 30 feb *")
	fmt.Println(err)
	// Output:
	// true <nil>
	// schedule "cron 0 3 30 feb *": it never fires: no date matches the fields
}
