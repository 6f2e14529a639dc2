package coordinator_test

import (
	"context"
	"fmt"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// A leader does work for the whole fleet, and makes each write conditional on its term.
func ExampleCampaign() {
	ctx := context.Background()
	reg := memory.New().Client("web-1")
	defer reg.Close(ctx)

	err := coordinator.Campaign(ctx, reg, "billing/leader", func(ctx context.Context, term uint64) error {
		_, err := reg.Txn(ctx, registry.Txn{
			If:   []registry.Cond{coordinator.TermGuard(ctx)},
			Then: []registry.Op{registry.Create("billing/month", []byte("2026-02"))},
		})
		fmt.Println("in office:", term > 0, err)
		return err // nil: the work is done, resign and end the campaign
	})
	fmt.Println("afterwards:", err)
	// Output:
	// in office: true <nil>
	// afterwards: <nil>
}
