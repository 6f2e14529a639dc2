package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/rota-dev/rota/conformance/child"
	"github.com/rota-dev/rota/conformance/freeport"
	"github.com/rota-dev/rota/internal/test/testserver/provision"
)

// startRedis starts a Redis that syncs each write to disk.
func startRedis(ctx context.Context) (*store, error) {
	program, root, err := findRedis(ctx)
	if err != nil {
		return nil, fmt.Errorf("provide Redis: %w", err)
	}
	return startServer(ctx, func(dir string, port *freeport.Port) (*exec.Cmd, error) {
		cmd := exec.Command(program, "--bind", "127.0.0.1", "--port", fmt.Sprint(port.Number), "--dir", dir,
			"--save", "", "--appendonly", "yes", "--appendfsync", "always")
		cmd.Env = provision.Environment(root)
		return cmd, nil
	}, openRedis)
}

// findRedis returns the program, and the root of its packages if it is not of the system.
func findRedis(ctx context.Context) (program, root string, err error) {
	if path, err := exec.LookPath("redis-server"); err == nil {
		return path, "", nil
	}
	root, err = provision.Packages(ctx, os.Stderr, "redis", "redis-server", "redis-tools")
	if err != nil {
		return "", "", err
	}
	return filepath.Join(root, "usr/bin/redis-server"), root, nil
}

// openRedis returns a counter of commands once the server answers.
func openRedis(ctx context.Context, addr string) (url string, count func(context.Context) (traffic, error), closeClient func(), err error) {
	client := goredis.NewClient(&goredis.Options{Addr: addr, MaxRetries: -1})
	count = func(ctx context.Context) (traffic, error) {
		text, err := client.Info(ctx, "stats").Result()
		return traffic{
			bytes:        infoNumber(text, "total_net_input_bytes"),
			transactions: infoNumber(text, "total_commands_processed"),
		}, err
	}
	return addr, count, func() { _ = client.Close() }, client.Ping(ctx).Err()
}

// infoNumber returns the value of a "name:value" line.
func infoNumber(text, name string) float64 {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			v, _ := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return v
		}
	}
	return 0
}

// startServer starts a server in a new directory, with a reserved port, and waits until it
// can be opened.
func startServer(
	ctx context.Context,
	command func(dir string, port *freeport.Port) (*exec.Cmd, error),
	open func(ctx context.Context, addr string) (url string, count func(context.Context) (traffic, error), closeClient func(), err error),
) (*store, error) {
	dir, remove, err := tempDir()
	if err != nil {
		return nil, err
	}
	port, err := freeport.Reserve()
	if err != nil {
		remove()
		return nil, err
	}
	release := func() {
		port.Release()
		remove()
	}
	cmd, err := command(dir, port)
	if err != nil {
		release()
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "server.log"))
	if err != nil {
		release()
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	proc, err := child.Start(cmd)
	if err != nil {
		release()
		return nil, err
	}
	stop := func() {
		proc.Kill()
		release()
	}
	for end := time.Now().Add(20 * time.Second); ; {
		url, count, closeClient, err := open(ctx, port.Addr())
		if err == nil {
			return &store{url: url, addr: port.Addr(), pid: proc.Pid(), traffic: count, stop: func() {
				closeClient()
				stop()
			}}, nil
		}
		closeClient()
		if time.Now().After(end) || proc.Err() != nil {
			text, _ := os.ReadFile(log.Name())
			stop()
			return nil, fmt.Errorf("start %s: %w\n%s", cmd.Path, err, text)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
