package due_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

func TestRecordsEnds(t *testing.T) {
	plan := func() *record.Plan {
		e, err := record.NewEpoch(1, coordtest.Start, []byte(coordtest.Def("job", 0, 2, coordtest.ClaimsOnly)))
		require.NoError(t, err)
		return &record.Plan{Job: "job", Epochs: []record.Epoch{e}}
	}
	require.False(t, due.RecordsEnds(plan()))
	for name, change := range map[string]func(*record.Plan){
		"a shard is frozen":           func(p *record.Plan) { p.Frozen = shardset.Of(1) },
		"an old epoch is not cleared": func(p *record.Plan) { p.Epochs = append(p.Epochs, plan().Epochs...) },
		"a trigger is not cleared":    func(p *record.Plan) { p.Triggers = []record.Trigger{{Number: 1, Epoch: 1}} },
		"the job is paused":           func(p *record.Plan) { p.Paused = true },
		"the schedule is stopped":     func(p *record.Plan) { p.Stopped, p.Last().Until = true, coordtest.At(1) },
		"other jobs follow the job":   func(p *record.Plan) { p.Fires = &record.Fires{} },
		"the job tracks runs":         func(p *record.Plan) { *p.Last() = coordtest.Epoch(t, 1, coordtest.Start, 2) },
	} {
		t.Run("when "+name, func(t *testing.T) {
			p := plan()
			change(p)
			assert.True(t, due.RecordsEnds(p))
		})
	}
	t.Run("without a plan", func(t *testing.T) { assert.True(t, due.RecordsEnds(nil)) })
}

func TestWantsReruns(t *testing.T) {
	for name, c := range map[string]struct {
		job  record.Job
		want bool
	}{
		"runs are tracked by default":        {record.Job{}, true},
		"runs are tracked":                   {record.Job{Tracking: record.TrackRuns}, true},
		"only claims are tracked":            {record.Job{Tracking: record.TrackClaims}, false},
		"a crash ends the run":               {record.Job{OnCrash: record.CrashFail}, false},
		"only claims, and a crash ends them": {record.Job{Tracking: record.TrackClaims, OnCrash: record.CrashFail}, false},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, due.WantsReruns(c.job)) })
	}
}

func TestIsLastFailure(t *testing.T) {
	for name, c := range map[string]struct {
		failed    int
		failure   string
		watermark int
		want      bool
	}{
		"of the last attempt":                                 {2, "no", 2, true},
		"of an attempt that another followed":                 {1, "no", 2, false},
		"of one whose next attempt was dropped after a crash": {1, due.CrashedRunError, 2, true},
		"of one whose next attempt was cancelled":             {1, due.CancelledRunError, 2, true},
		"of one whose next attempt nobody offered":            {1, due.UnofferedRetryError, 2, true},
		"of a crashed one that two attempts followed":         {1, due.CrashedRunError, 3, false},
		"of an attempt after the watermark":                   {3, due.CrashedRunError, 2, false},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, due.IsLastFailure(c.failed, c.failure, c.watermark)) })
	}
}
