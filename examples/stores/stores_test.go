package main

import (
	"bytes"
	"fmt"
	"regexp"
	"testing"

	"github.com/rota-dev/rota/rotatest"
)

func TestAnOutageStopsOnlyTheJobsOfItsStore(t *testing.T) {
	rotatest.Run(t, func(f *rotatest.Fleet) {
		var out bytes.Buffer
		if err := run(f.T().Context(), &out); err != nil {
			t.Fatal(err)
		}
		all := regexp.MustCompile(`(?s)^store 0: (report-\d+ )+
store 1: (report-\d+ )+
both stores answer: store 0: (\d+) runs of (\d+) jobs; store 1: (\d+) runs of (\d+) jobs;
store 1 fails: store 0: (\d+) runs of (\d+) jobs; store 1: 0 runs of 0 jobs;
both stores answer: store 0: (\d+) runs of (\d+) jobs; store 1: (\d+) runs of (\d+) jobs;
$`).FindStringSubmatch(out.String())
		if all == nil {
			t.Fatalf("printed:\n%s", out.String())
		}
		if all[3] != all[7] || all[3] != all[9] || all[5] != all[11] {
			t.Errorf("the runs of the phases differ:\n%s", out.String())
		}
	})
}

func TestStoreOfSpreadsJobsAndMovesFew(t *testing.T) {
	const jobs = 10_000
	count := make([]int, 4)
	for i := range jobs {
		job := fmt.Sprint("report-", i)
		four, five := storeOf(job, 4), storeOf(job, 5)
		count[four]++
		if five != four && five != 4 {
			t.Fatalf("with a fifth store, %s moves from %d to %d", job, four, five)
		}
	}
	for i, n := range count {
		if n < jobs/4-jobs/40 || n > jobs/4+jobs/40 {
			t.Errorf("store %d has %d of %d jobs", i, n, jobs)
		}
	}
}
