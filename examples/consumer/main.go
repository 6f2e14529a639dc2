// Command consumer consumes a log of four partitions: the files 0 to 3 of a directory, to
// which other programs append lines. If it is started several times, on one machine or on
// many with the same directory, its processes share the partitions. Each owner of a
// partition continues where the last one stopped, whether that one left or crashed.
//
//	go run ./examples/consumer /var/log/orders
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/etcd"
)

const partitions = 4

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return errors.New("usage: consumer directory")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	reg, err := etcd.Open(ctx, etcd.Options{Endpoints: []string{"127.0.0.1:2379"}})
	if err != nil {
		return err
	}
	defer reg.Close(context.Background())
	c := consumer{
		next: files(os.Args[1]).next,
		handle: func(s coordinator.Owned, offset int64, line string) ([]registry.Op, error) {
			log.Printf("partition %d at %d: %s", s.Shard, offset, line)
			return nil, nil
		},
	}
	return coordinator.Join(ctx, reg, coordinator.Config{Namespace: "orders", Shards: partitions, Own: c.own})
}

// consumer consumes the partitions that it owns.
type consumer struct {
	// next returns the line of a partition that begins at an offset, and the offset after
	// it. For a line that has not been written yet it waits.
	next func(ctx context.Context, partition int, offset int64) (line string, after int64, err error)
	// handle does the work for a line. A process may crash before it has saved the offset
	// after the line; then the work is done again. So handle gives s.Fence to a database that
	// compares fences, or returns operations on the registry: these are applied together with
	// the offset, and hence once.
	handle func(s coordinator.Owned, offset int64, line string) ([]registry.Op, error)
}

// own consumes a partition for as long as this process owns it.
func (c *consumer) own(ctx context.Context, s coordinator.Owned) error {
	state, err := s.State(ctx)
	if err != nil {
		return err
	}
	offset := int64(0)
	if state != nil {
		if offset, err = strconv.ParseInt(string(state), 10, 64); err != nil {
			return fmt.Errorf("offset of partition %d: %w", s.Shard, err)
		}
	}
	for {
		line, after, err := c.next(ctx, s.Shard, offset)
		if ctx.Err() != nil {
			return nil // the offset after the last handled line has been saved
		}
		if err != nil {
			return err
		}
		ops, err := c.handle(s, offset, line)
		if err != nil {
			return err
		}
		// The partition may be about to move, but stays until own has returned.
		if err := s.Save(context.WithoutCancel(ctx), strconv.AppendInt(nil, after, 10), ops...); err != nil {
			return err
		}
		offset = after
	}
}

// files is a directory in which each partition is a file.
type files string

// next is described in consumer.
func (dir files) next(ctx context.Context, partition int, offset int64) (string, int64, error) {
	for {
		line, err := dir.line(partition, offset)
		if err == nil {
			return line[:len(line)-1], offset + int64(len(line)), nil
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, fs.ErrNotExist) {
			return "", 0, err
		}
		select {
		case <-ctx.Done():
			return "", 0, context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// line returns the line at an offset with its end, or io.EOF if it is not there as a whole.
func (dir files) line(partition int, offset int64) (string, error) {
	f, err := os.Open(filepath.Join(string(dir), strconv.Itoa(partition)))
	if err != nil {
		return "", err
	}
	defer f.Close()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return "", err
	}
	return bufio.NewReader(f).ReadString('\n')
}
