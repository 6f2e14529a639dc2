package cli

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/notify"
)

func TestNotifyForget(t *testing.T) {
	inFleet(t, func(t *testing.T, f *fleet) {
		f.start("web-1", nil)
		reg := f.server.Client("notifier")
		n, err := notify.Start(t.Context(), reg, "billing", "", notify.Options{Receivers: map[string]notify.Receiver{"ops": notify.Func(nil)}, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		assert.NotContains(t, f.run("doctor").out, "receiver ops")
		assert.Contains(t, f.run("notify forget ops").err, "a process sends to the receiver")
		require.NoError(t, n.Shutdown(t.Context()))
		require.NoError(t, reg.Close(t.Context()))
		r := f.run("doctor")
		assert.Contains(t, r.out, "receiver ops has no sender, so it gets no message about jobs")
		assert.Contains(t, r.out, "rota notify\n         forget ops")
		assert.Equal(t, "forgot receiver ops\n", f.run("notify forget ops").out)
		assert.NotContains(t, f.run("doctor").out, "receiver ops")
	})
}
