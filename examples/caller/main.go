// Command caller charges each of four shops by an HTTP request, and retries requests that fail.
// Without arguments it calls a server of its own whose first answers are errors, and prints each attempt. With
// a URL and the address of an etcd it is one process of a fleet that calls
// URL/shops/0/charge to URL/shops/3/charge each minute.
//
//	go run ./examples/caller
//	go run ./examples/caller https://bank.internal 127.0.0.1:2379
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/handler"
	"github.com/rota-dev/rota/registry/etcd"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

const shops = 4

// chargeJob charges each shop. The server gets one Idempotency-Key for all attempts at a charge, so
// an attempt that follows a lost answer charges nothing again.
func chargeJob(url string, client *http.Client) executor.Job {
	return executor.Job{
		Name:     "charge",
		Schedule: schedule.Every(time.Minute),
		Shards:   shops,
		Handler: handler.HTTP(handler.Request{
			URL:     url + "/shops/{{.Shard}}/charge",
			Body:    `{"until": {{json .FireTime}}}`,
			Timeout: 10 * time.Second,
			Client:  client, // nil: the usual one
		}),
		Retry: executor.Retry{Max: 5, Initial: 100 * time.Millisecond},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	var err error
	switch len(os.Args) {
	case 1:
		err = serveAndDemo(ctx)
	case 3:
		err = call(ctx, os.Args[1], os.Args[2])
	default:
		err = errors.New("usage: caller [url address]")
	}
	if err != nil {
		log.Fatal(err)
	}
}

// call is a process of a fleet on etcd.
func call(ctx context.Context, url, address string) error {
	reg, err := etcd.Open(ctx, etcd.Options{Endpoints: []string{address}})
	if err != nil {
		return err
	}
	defer reg.Close(context.Background())
	ex, err := executor.New(reg, "caller", executor.Options{})
	if err != nil {
		return err
	}
	if err := ex.Register(chargeJob(url, nil)); err != nil {
		return err
	}
	return ex.Run(ctx)
}

// serveAndDemo runs the demo with a server on a free port.
func serveAndDemo(ctx context.Context) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	b := &bank{}
	server := &http.Server{Handler: b, ReadHeaderTimeout: time.Second}
	defer server.Close()
	go server.Serve(listener)
	return demo(ctx, os.Stdout, "http://"+listener.Addr().String(), nil, b)
}

// demo triggers the job once and returns when each shop is charged or has failed for good.
func demo(ctx context.Context, out io.Writer, url string, client *http.Client, b *bank) error {
	ended := make(chan struct{}, shops)
	reg := memory.New().Client("my-host")
	defer reg.Close(context.Background())
	ex, err := executor.New(reg, "caller", executor.Options{
		Logger: slog.New(slog.DiscardHandler), // a service logs
		Observer: executor.Observer{RunEnded: func(e executor.RunEnded) {
			fmt.Fprintf(out, "shop %d, attempt %d: %v", e.Run.Shard, e.Run.Attempt, e.Outcome)
			if e.Err != nil {
				fmt.Fprintf(out, ": %v", e.Err)
			}
			fmt.Fprintln(out)
			var permanent *executor.PermanentError
			if e.Err == nil || errors.As(e.Err, &permanent) {
				ended <- struct{}{}
			}
		}},
	})
	if err != nil {
		return err
	}
	job := chargeJob(url, client)
	job.Schedule = schedule.OnTrigger()
	if err := ex.Register(job); err != nil {
		return err
	}
	if err := ex.Start(ctx); err != nil {
		return err
	}
	if _, err := ex.Trigger(ctx, job.Name, executor.Trigger{}); err != nil {
		return err
	}
	for range shops {
		select {
		case <-ended:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), ex.Shutdown(context.Background()))
		}
	}
	if err := ex.Shutdown(context.Background()); err != nil { // also waits for the observer
		return err
	}
	requests, charges := b.counts()
	fmt.Fprintf(out, "%d requests, %d charges\n", requests, charges)
	return nil
}

// bank is a server that is overloaded at first, and then loses an answer.
type bank struct {
	mu       sync.Mutex
	requests map[string]int // by Idempotency-Key
	charged  map[string]bool
}

// ServeHTTP charges a shop. Requests with the same key are one charge.
func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/shops/3/charge" {
		http.Error(w, "no such shop", http.StatusNotFound)
		return
	}
	key := r.Header.Get("Idempotency-Key")
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.requests == nil {
		b.requests, b.charged = map[string]int{}, map[string]bool{}
	}
	b.requests[key]++
	if b.requests[key] == 1 {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return
	}
	b.charged[key] = true
	if b.requests[key] == 2 {
		http.Error(w, "the answer is lost", http.StatusBadGateway)
	}
}

// counts returns the numbers of requests for known shops and of charges.
func (b *bank) counts() (requests, charges int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.requests {
		requests += n
	}
	return requests, len(b.charged)
}
