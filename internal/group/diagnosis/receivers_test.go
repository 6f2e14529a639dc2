package diagnosis

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/snapshot"
	"github.com/rota-dev/rota/internal/record"
)

func TestDiagnose_Receivers(t *testing.T) {
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	now := coordtest.Start.Add(time.Hour)
	down := func(since time.Duration) *record.Receiver {
		return &record.Receiver{Name: "ops", DownSince: now.Add(-since), Error: "connection refused"}
	}
	for name, c := range map[string]struct {
		r    Receiver
		want []string
	}{
		"sound":             {Receiver{&record.Receiver{Name: "ops"}, nil, true}, nil},
		"down for a moment": {Receiver{down(time.Minute), nil, true}, nil},
		"down":              {Receiver{down(2 * time.Minute), nil, true}, []string{"receiver ops: nothing delivered since " + now.Add(-2*time.Minute).String() + ": connection refused"}},
		"without a sender":  {Receiver{&record.Receiver{Name: "ops"}, nil, false}, []string{"receiver ops has no sender, so it gets no message about jobs"}},
		"both": {Receiver{down(time.Hour), nil, false}, []string{
			"receiver ops has no sender, so it gets no message about jobs", "receiver ops: nothing delivered since " + now.Add(-time.Hour).String() + ": connection refused",
		}},
		"damaged": {Receiver{nil, errors.New("no JSON"), true}, []string{"the record cannot be read: no JSON"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Records{Snapshot: snapshot.New(keys), Now: now, Receivers: map[string]Receiver{"ops": c.r}}
			var got []string
			for _, f := range Diagnose(r) {
				assert.Equal(t, []any{Warning, keys.Receiver("ops")}, []any{f.Severity, f.Key})
				got = append(got, f.What)
			}
			assert.Equal(t, c.want, got)
		})
	}
}
