package etcd_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"

	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/etcd"
)

func ExampleOpen() {
	ctx := context.Background()
	reg, err := etcd.Open(ctx, etcd.Options{
		Endpoints: []string{"10.0.0.1:2379", "10.0.0.2:2379", "10.0.0.3:2379"},
		Namespace: "/rota/production",
		Logger:    slog.Default(),
	})
	if err != nil {
		log.Fatal(err) // names the wrong address, credential or version
	}
	defer reg.Close(context.Background())

	session, err := reg.OpenSession(ctx, registry.SessionOptions{})
	if err != nil {
		log.Print(err)
		return
	}
	rev, err := reg.Txn(ctx, registry.Txn{Then: []registry.Op{
		registry.CreateOwned("workers/~a", []byte("host-1"), session.ID()), // deleted when the session ends
	}})
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Println("owned since revision", rev.Seq)
}
