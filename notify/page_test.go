package notify_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/notify"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// A document shows from here:

func startNotifier(ctx context.Context, reg registry.Registry) (*notify.Notifier, error) {
	chat, err := notify.Webhook(notify.WebhookOptions{URLFile: "/run/secrets/chat", Body: `{"text": {{json .Text}}}`})
	if err != nil {
		return nil, err
	}
	return notify.Start(ctx, reg, "billing", "", notify.Options{Receivers: map[string]notify.Receiver{"chat": chat}})
}

// To here.

func TestPage(t *testing.T) {
	reg := memory.New().Client("a")
	n, err := startNotifier(t.Context(), reg)
	require.NoError(t, err)
	require.NoError(t, n.Shutdown(t.Context()))
	require.NoError(t, reg.Close(t.Context()))
}
