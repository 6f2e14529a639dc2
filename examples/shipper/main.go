// Command shipper ships the lines of four log files to a receiver, once a second, with a data flow
// whose offset outlives crashes. Without arguments it runs a fleet of two instances in memory, cuts one
// of them off in the middle, and counts the received lines. With the directory of the logs
// and the address of an etcd it is one process of a fleet; end it as you like, or kill it.
//
//	go run ./examples/shipper
//	go run ./examples/shipper /var/log/orders 127.0.0.1:2379
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/handler"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/etcd"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

const (
	logs     = 4
	pageSize = 20
)

// shipJob ships the files 0 to 3 of a directory, of which each is a shard.
func shipJob(dir string) executor.Job {
	return executor.Job{
		Name:     "ship",
		Schedule: schedule.Every(time.Second),
		Shards:   logs,
		Handler: handler.Dataflow[line]{
			PageSize: pageSize,
			Fetch: func(ctx context.Context, p *handler.Page) ([]line, error) {
				offset, err := p.Offset(ctx)
				if err != nil {
					return nil, err
				}
				lines, next, err := readLines(dir, p.Shard, string(offset), p.Size)
				p.Next = []byte(next) // stored when the lines have been shipped
				return lines, err
			},
			Process: func(_ context.Context, _ *handler.Page, lines []line) error { return ship(dir, lines) },
		},
	}
}

// line is a line of a log. Its ID is the same each time that it is shipped, so the receiver recognizes
// the lines of a page that is shipped again after a crash.
type line struct{ id, text string }

// readLines returns up to n whole lines of a log from an offset on, and the offset after them.
func readLines(dir string, shard int, offset string, n int) (lines []line, next string, err error) {
	at, _ := strconv.ParseInt(offset, 10, 64) // 0 if there is no offset yet
	f, err := os.Open(filepath.Join(dir, strconv.Itoa(shard)))
	if err != nil {
		return nil, offset, err
	}
	defer f.Close()
	if _, err := f.Seek(at, io.SeekStart); err != nil {
		return nil, offset, err
	}
	for r := bufio.NewReader(f); len(lines) < n; {
		text, err := r.ReadString('\n')
		if errors.Is(err, io.EOF) { // perhaps with a line whose end is not written yet
			break
		}
		if err != nil {
			return nil, offset, err
		}
		lines = append(lines, line{fmt.Sprintf("%d/%d", shard, at), text})
		at += int64(len(text))
	}
	return lines, strconv.FormatInt(at, 10), nil
}

// ship sends lines to the receiver: a file to which all processes append.
func ship(dir string, lines []line) error {
	var text bytes.Buffer
	for _, l := range lines {
		fmt.Fprintf(&text, "%s %s", l.id, l.text)
	}
	f, err := os.OpenFile(filepath.Join(dir, "received"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	time.Sleep(50 * time.Millisecond) // a real receiver is not as fast as a file
	_, err = f.Write(text.Bytes())
	return err
}

// received returns how many different lines the receiver has, and how many of them twice or more.
func received(dir string) (lines, repeated int, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "received"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, 0, err
	}
	times := map[string]int{}
	for l := range strings.Lines(string(text)) {
		id, _, _ := strings.Cut(l, " ")
		if times[id]++; times[id] == 2 {
			repeated++
		}
	}
	return len(times), repeated, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	var err error
	switch len(os.Args) {
	case 1:
		err = demo(ctx, os.Stdout)
	case 3:
		err = serve(ctx, os.Args[1], os.Args[2])
	default:
		err = errors.New("usage: shipper [directory address]")
	}
	if err != nil {
		log.Fatal(err)
	}
}

// serve is a process of a fleet on etcd.
func serve(ctx context.Context, dir, address string) error {
	reg, err := etcd.Open(ctx, etcd.Options{Endpoints: []string{address}})
	if err != nil {
		return err
	}
	defer reg.Close(context.Background())
	ex, err := newExecutor(reg, dir, executor.Options{})
	if err != nil {
		return err
	}
	return ex.Run(ctx)
}

func newExecutor(reg registry.Registry, dir string, o executor.Options) (*executor.Executor, error) {
	o.SessionTTL = 2 * time.Second // so that other instances continue soon after a crash
	ex, err := executor.New(reg, "shipper", o)
	if err != nil {
		return nil, err
	}
	return ex, ex.Register(shipJob(dir))
}

// demo runs two instances, of which one is cut off from the registry and from its shards in the middle.
func demo(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "shipper")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	const total = 2000
	if err := writeLogs(dir, total); err != nil {
		return err
	}
	server := memory.New()
	for _, instance := range []string{"a", "b"} {
		ex, err := newExecutor(server.Client(instance), dir, executor.Options{
			Instance: instance,
			Logger:   slog.New(slog.DiscardHandler), // a service logs
		})
		if err != nil {
			return err
		}
		if err := ex.Start(ctx); err != nil {
			return err
		}
		defer ex.Shutdown(context.Background())
	}
	shipped, err := awaitLines(ctx, dir, total/4)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d of %d lines are received; instance a crashes\n", shipped, total)
	defer server.Partition("a")()
	if _, err := awaitLines(ctx, dir, total); err != nil {
		return err
	}
	lines, repeated, err := received(dir)
	fmt.Fprintf(out, "%d of %d lines are received, %d of them twice\n", lines, total, repeated)
	return err
}

// writeLogs writes a number of lines to the logs.
func writeLogs(dir string, lines int) error {
	for shard := range logs {
		var text bytes.Buffer
		for i := range lines / logs {
			fmt.Fprintf(&text, "order %d of shop %d\n", i, shard)
		}
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(shard)), text.Bytes(), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// awaitLines waits until the receiver has a number of different lines, and returns their number.
func awaitLines(ctx context.Context, dir string, want int) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		lines, _, err := received(dir)
		if err != nil || lines >= want {
			return lines, err
		}
		select {
		case <-ctx.Done():
			return lines, fmt.Errorf("%d of %d lines are received: %w", lines, want, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
