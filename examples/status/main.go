// Command status prints the status of a job as JSON, from outside the fleet.
//
//	go run ./examples/status 127.0.0.1:2379 billing settle
package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/etcd"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	if len(os.Args) != 4 {
		return errors.New("usage: status endpoint namespace job")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	reg, err := etcd.Open(ctx, etcd.Options{Endpoints: []string{os.Args[1]}})
	if err != nil {
		return err
	}
	defer reg.Close(context.Background())
	return printStatus(ctx, os.Stdout, reg, os.Args[2], os.Args[3])
}

func printStatus(ctx context.Context, out io.Writer, reg registry.Registry, namespace, job string) error {
	op, err := operator.New(reg, namespace, "") // "": the group "default"
	if err != nil {
		return err
	}
	st, err := op.WithCompiler(executor.Compile).Status(ctx, job) // with the compiler, NextFire is known
	if err != nil {
		return err
	}
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(st)
}
