package etcd

import (
	"context"
	"sync/atomic"
)

// delivery is the knowledge whether a request may have left this process. While not even
// its headers have been handed to a connection, the server cannot have heard of it.
type delivery struct{ begun atomic.Bool }

type deliveryKey struct{}

// withDelivery returns a context for one call, and what becomes known of it.
func withDelivery(ctx context.Context) (context.Context, *delivery) {
	d := &delivery{}
	return context.WithValue(ctx, deliveryKey{}, d), d
}
