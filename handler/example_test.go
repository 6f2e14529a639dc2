package handler_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/handler"
	"github.com/rota-dev/rota/schedule"
)

// toStdout returns a logger without the time, the ID of the run and the attempt.
func toStdout() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "run" || a.Key == "attempt" {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// night is a run, as an executor would make it.
var night = &executor.Run{RunInfo: executor.RunInfo{
	Key: "settle/1/2026-05-05T03:00:00Z", Job: "settle", Shard: 1, Shards: 3, ShardParam: "Shanghai; rm -rf /",
	FireTime: time.Date(2026, 5, 5, 3, 0, 0, 0, time.UTC), Attempt: 1, Fence: 7,
}}

// A parameter is one argument, however it looks.
func ExampleCommand() {
	h := handler.Command("echo", "settle", "--region={{.ShardParam}}", `--day={{.FireTime.Format "2006-01-02"}}`)
	h.Logger = toStdout()
	fmt.Println(h.Handle(context.Background(), night))
	// Output:
	// level=INFO msg=output job=settle shard=1 stream=stdout line="settle --region=Shanghai; rm -rf / --day=2026-05-05"
	// <nil>
}

// A script finds the run in its environment. An exit code that is not retried wraps the
// *ExitError.
func ExampleShell() {
	h := handler.Shell(`echo "settle $ROTA_SHARD_PARAM"; echo "no such region" >&2; exit 64`)
	h.Permanent = []int{64} // EX_USAGE
	h.Logger = slog.New(slog.DiscardHandler)
	err := h.Handle(context.Background(), night)
	fmt.Println(err)

	var exit *handler.ExitError
	var permanent *executor.PermanentError
	fmt.Println(errors.As(err, &exit) && exit.Code == 64, errors.As(err, &permanent))
	// Output:
	// exit code 64: no such region
	// true true
}

// A value in the URL cannot leave its place.
func ExampleHTTP() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Println(r.Method, r.RequestURI, string(body))
		fmt.Println("Idempotency-Key:", r.Header.Get("Idempotency-Key"))
	}))
	defer server.Close()
	h := handler.HTTP(handler.Request{
		URL:  server.URL + "/settle/{{.Shard}}?region={{.ShardParam}}",
		Body: `{"region": {{json .ShardParam}}, "fence": {{.Fence}}}`,
		OK:   handler.Statuses{{200, 299}, {409, 409}}, // 409: settled before
	})
	fmt.Println(h.Handle(context.Background(), night))
	// Output:
	// POST /settle/1?region=Shanghai%3B%20rm%20-rf%20%2F {"region": "Shanghai; rm -rf /", "fence": 7}
	// Idempotency-Key: settle/1/2026-05-05T03:00:00Z
	// <nil>
}

type nightlyReport struct{ day string }

func (r nightlyReport) Run() { fmt.Println("report of", r.day) }

// A job of robfig/cron keeps its code. See the program examples/fromcron for a whole one.
func ExampleCron() {
	jobs := []executor.Job{
		// was: c.AddJob("0 3 * * *", nightlyReport{"today"})
		{Name: "report", Schedule: schedule.Cron("0 3 * * *"), Handler: handler.Cron(nightlyReport{"today"})},
		// was: c.AddJob("@hourly", cron.NewChain(...).Then(cron.FuncJob(sweep)))
		{Name: "sweep", Schedule: schedule.Cron("@hourly"), Handler: handler.Cron(cron.FuncJob(func() { fmt.Println("sweep") }))},
	}
	for _, job := range jobs {
		if err := job.Handler.Handle(context.Background(), &executor.Run{RunInfo: executor.RunInfo{Job: job.Name}}); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// report of today
	// sweep
}

func ExampleFunc() {
	h := handler.Func(func() { fmt.Println("sweep") })
	fmt.Println(h.Handle(context.Background(), &executor.Run{}))
	// Output:
	// sweep
	// <nil>
}

// The offset is the number of lines that were shipped. A run that follows a crash, a deployment or an
// error fetches from there.
func ExampleDataflow() {
	lines := []string{"first", "second", "third", "fourth", "fifth"}
	h := handler.Dataflow[string]{
		PageSize: 2,
		Fetch: func(ctx context.Context, p *handler.Page) ([]string, error) {
			offset, err := p.Offset(ctx)
			if err != nil {
				return nil, err
			}
			from, _ := strconv.Atoi(string(offset)) // 0 if there is no offset yet
			to := min(from+p.Size, len(lines))
			p.Next = []byte(strconv.Itoa(to))
			return lines[from:to], nil
		},
		Process: func(_ context.Context, p *handler.Page, lines []string) error {
			fmt.Println("shard", p.Shard, "ships", lines)
			return nil
		},
	}
	fmt.Println(h.Handle(context.Background(), &executor.Run{RunInfo: executor.RunInfo{Shard: 1, Shards: 3}}))
	// Output:
	// shard 1 ships [first second]
	// shard 1 ships [third fourth]
	// shard 1 ships [fifth]
	// <nil>
}

// A source that marks processed items needs no offset: each fetch returns those without a mark.
func ExampleDataflow_marked() {
	unpaid := map[int]string{1: "ana", 2: "ben", 3: "eva"}
	h := handler.Dataflow[int]{
		PageSize: 2,
		Fetch: func(_ context.Context, p *handler.Page) ([]int, error) { // SELECT id FROM bills WHERE NOT paid LIMIT p.Size
			ids := slices.Sorted(maps.Keys(unpaid))
			return ids[:min(p.Size, len(ids))], nil
		},
		Process: func(_ context.Context, _ *handler.Page, ids []int) error {
			for _, id := range ids {
				fmt.Println("pay", unpaid[id])
				delete(unpaid, id) // UPDATE bills SET paid = true WHERE id = $1
			}
			return nil
		},
	}
	fmt.Println(h.Handle(context.Background(), &executor.Run{}))
	// Output:
	// pay ana
	// pay ben
	// pay eva
	// <nil>
}
