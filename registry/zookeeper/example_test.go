package zookeeper_test

import (
	"context"
	"log"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/zookeeper"
)

func ExampleOpen() {
	ctx := context.Background()
	reg, err := zookeeper.Open(ctx, zookeeper.Options{
		Endpoints: []string{"zk1:2181", "zk2:2181", "zk3:2181"},
		Namespace: "/rota/billing",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer reg.Close(ctx)
	session, err := reg.OpenSession(ctx, registry.SessionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	_, err = reg.Txn(ctx, registry.Txn{Then: []registry.Op{
		registry.CreateOwned("workers/~me", []byte("here"), session.ID()),
	}})
	if err != nil {
		log.Fatal(err)
	}
}
