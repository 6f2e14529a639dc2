// Command backup archives two directories each night with a script, and keeps the archives of a week.
// Without arguments it archives two directories of its own once, and prints the archives. With
// the directory that has the two, the directory of the archives, which all processes share, and the address
// of an etcd, it is one process of a fleet.
//
//	go run ./examples/backup
//	go run ./examples/backup /srv/data /mnt/backup 127.0.0.1:2379
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/handler"
	"github.com/rota-dev/rota/registry/etcd"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// script archives the directory $1/$ROTA_SHARD_PARAM to $2. An archive gets its name when it is
// complete. Each attempt writes to a file of its own, so two attempts at once do no harm.
const script = `
set -eu
mkdir -p "$2/$ROTA_SHARD_PARAM"
cd "$2/$ROTA_SHARD_PARAM"
part="part-$ROTA_FENCE"
trap 'rm -f "$part"' EXIT
trap 'exit 1' TERM # the run has to end before the archive is complete

tar -C "$1" -czf "$part" -- "$ROTA_SHARD_PARAM"
mv "$part" "${ROTA_FIRE%T*}.tar.gz"
ls | grep '\.tar\.gz$' | sort -r | tail -n +8 | xargs rm -f --
`

func backupJob(from, to string) executor.Job {
	return executor.Job{
		Name:        "backup",
		Schedule:    schedule.Cron("0 1 * * *"),
		Shards:      2,
		ShardParams: map[int]string{0: "ledger", 1: "orders"},
		Handler:     handler.Shell(script, from, to),
		Retry:       executor.Retry{Max: 3, Initial: 10 * time.Minute},
		Timeout:     2 * time.Hour,
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	var err error
	switch len(os.Args) {
	case 1:
		err = demo(ctx, os.Stdout)
	case 4:
		err = serve(ctx, os.Args[1], os.Args[2], os.Args[3])
	default:
		err = errors.New("usage: backup [from to address]")
	}
	if err != nil {
		log.Fatal(err)
	}
}

// serve is a process of a fleet on etcd.
func serve(ctx context.Context, from, to, address string) error {
	reg, err := etcd.Open(ctx, etcd.Options{Endpoints: []string{address}})
	if err != nil {
		return err
	}
	defer reg.Close(context.Background())
	ex, err := executor.New(reg, "backup", executor.Options{})
	if err != nil {
		return err
	}
	if err := ex.Register(backupJob(from, to)); err != nil {
		return err
	}
	return ex.Run(ctx)
}

// demo triggers the job once, in a process of its own.
func demo(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "backup")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	from, to := filepath.Join(dir, "data"), filepath.Join(dir, "archives")
	job := backupJob(from, to)
	job.Schedule = schedule.OnTrigger()
	for _, name := range job.ShardParams {
		if err := writeData(from, name); err != nil {
			return err
		}
	}
	reg := memory.New().Client("my-host")
	defer reg.Close(context.Background())
	ended := make(chan error, job.Shards)
	ex, err := executor.New(reg, "backup", executor.Options{
		Logger:   slog.New(slog.DiscardHandler), // a service logs
		Observer: executor.Observer{RunEnded: func(e executor.RunEnded) { ended <- e.Err }},
	})
	if err != nil {
		return err
	}
	if err := ex.Register(job); err != nil {
		return err
	}
	if err := ex.Start(ctx); err != nil {
		return err
	}
	defer ex.Shutdown(context.Background())
	if _, err := ex.Trigger(ctx, job.Name, executor.Trigger{}); err != nil {
		return err
	}
	for range job.Shards {
		select {
		case err := <-ended:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	archives, err := filepath.Glob(filepath.Join(to, "*", "*"))
	for _, archive := range archives {
		name, _ := filepath.Rel(to, archive)
		fmt.Fprintln(out, name)
	}
	return err
}

// writeData makes a directory with a file.
func writeData(from, name string) error {
	if err := os.MkdirAll(filepath.Join(from, name), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(from, name, "data"), []byte("data of "+name+"\n"), 0o600)
}
