package acts

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/schedule"
)

// The form that is filled with a definition on record changes nothing of it, whatever defaults the kind has, and has no parameters.
func TestFormOf_ChangesNothing(t *testing.T) {
	full := operator.Definition{
		Name: "acme/report", Kind: "report", KindRevision: 2, Schedule: schedule.Cron("0 4 * * *").In("Asia/Shanghai"), Shards: 4, Param: "s3cret",
		ShardParams: map[int]string{1: "s3cret=1"}, Description: "a=b, c", StartPaused: true, DeleteAfter: -1,
		Policies: map[string]any{
			"timeout": nil, "on_misfire": "run all 10", "on_overlap": executor.SkipOverlapping, "on_crash": executor.CountAsFailed, "max_attempts": 5, "strategy": "balanced",
			"catchup_window": time.Hour, "pool": "db", "retry": map[string]any{"max": 3, "jitter": 0.5}, "run_on": map[string]any{"a.b/zone": "x"},
		},
	}
	for _, def := range []operator.Definition{full, {Name: "acme/report", Kind: "report"}, {Name: "acme/report", Kind: "report", DeleteAfter: 90 * time.Minute}} {
		onFleet(t, func(k *kit) {
			_, err := k.op.Define(k.Context(), def)
			require.NoError(k, err)
			j, err := k.op.Definition(k.Context(), def.Name)
			require.NoError(k, err)
			form := url.Values{}
			for name, value := range FormOf(&j) {
				assert.NotContains(k, value, "s3cret")
				form.Set(name, value)
			}
			v, _ := Find("define", OnJob)
			r, err := v.Parse(form, nil)
			require.NoError(k, err)
			r.Job = def.Name
			done, err := v.Do(k.Context(), k.op, r)
			require.NoError(k, err)
			assert.Equal(k, "acme/report is unchanged: revision 1", done.Text, "%+v", done.Change)
			assert.Equal(k, operator.DefineUnchanged, done.Change.Outcome)
		})
	}
}

// A parameter that a request leaves out is kept, and never that of another revision than the one that is changed.
func TestDefine_KeepsParameters(t *testing.T) {
	onFleet(t, func(k *kit) {
		params := func() (string, map[int]string) {
			j, err := k.op.Definition(k.Context(), "acme/report")
			require.NoError(k, err)
			return j.Definition.Param, j.Definition.ShardParams
		}
		k.did("define", OnJob, report(Request{}, "param", "old", "shards", 2, "shard_params", map[string]any{"1": "one"}))
		k.did("define", OnJob, report(Request{KeepParams: true}, "shards", 3))
		param, shards := params()
		assert.Equal(k, "old", param)
		assert.Equal(k, map[int]string{1: "one"}, shards)

		k.did("define", OnJob, report(Request{KeepParams: true, IfRevision: 2}, "shards", 3, "param", ""))
		param, shards = params()
		assert.Empty(k, param, "an empty one replaces it")
		assert.Equal(k, map[int]string{1: "one"}, shards)

		_, err := k.act("define", OnJob, report(Request{KeepParams: true, IfRevision: 2}))
		require.ErrorIs(k, err, operator.ErrOtherRevision)
		k.did("define", OnJob, report(Request{}))
		_, shards = params()
		assert.Empty(k, shards, "they are replaced without keep_params")

		k.did("delete", OnJob, Request{Job: "acme/report"})
		_, err = k.act("define", OnJob, report(Request{KeepParams: true}))
		require.ErrorIs(k, err, operator.ErrUnknownJob)
	})
}

// meddler is a store in which another writer is faster than the first write.
type meddler struct {
	registry.Registry
	meddle func()
}

func (m *meddler) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	if meddle := m.meddle; meddle != nil {
		m.meddle = nil
		meddle()
	}
	return m.Registry.Txn(ctx, t)
}

// A change never combines the parameters of one revision with the definition of another.
func TestDefine_KeepsParametersOfTheRevisionThatItChanges(t *testing.T) {
	onFleet(t, func(k *kit) {
		k.did("define", OnJob, report(Request{}, "param", "old"))
		op, err := operator.New(&meddler{k.fleet.Server().Client("meddler"), func() {
			k.did("define", OnJob, report(Request{}, "param", "new"))
		}}, rotatest.Namespace, "")
		require.NoError(k, err)
		v, _ := Find("define", OnJob)
		_, err = v.Do(k.Context(), op.WithCompiler(executor.Compile), report(Request{KeepParams: true}, "shards", 3))
		require.ErrorIs(k, err, operator.ErrOtherRevision)
		j, err := k.op.Definition(k.Context(), "acme/report")
		require.NoError(k, err)
		assert.Equal(k, "new", j.Definition.Param)
		assert.Equal(k, 1, j.Definition.Shards)
	})
}

// Each rule that a definition breaks is reported with its field, as the request names it.
func TestDefine_NamesFields(t *testing.T) {
	onFleet(t, func(k *kit) {
		for _, c := range []struct {
			r     Request
			field string
			also  string
		}{
			{report(Request{}, "timeout", "soon"), "fields.timeout", ""},
			{report(Request{}, "on_misfire", "never"), "fields.on_misfire", ""},
			{report(Request{}, "retry", map[string]any{"max": 3, "factor": 0.5}), "fields.retry", ""},
			{report(Request{}, "shards", 100_000), "fields.shards", ""},
			{report(Request{}, "shards", "many"), "fields.shards", ""},
			{report(Request{}, "schedule", "cron * * *"), "fields.schedule", ""},
			{report(Request{}, "schedule", "at 1999-01-01T00:00:00Z"), "fields.schedule", "no fire"},
			{report(Request{}, "on_overlap", "wait"), "fields.on_overlap", ""},
			{report(Request{}, "pool", "a/b", "shards", 100_000), "fields.shards", "fields.pool: "},
			{Request{Job: "a\x00b", Kind: "report", Fields: map[string]any{"schedule": "every 2h"}}, "job", ""},
			{Request{Job: "a", Kind: "no kind", Fields: map[string]any{"schedule": "every 2h"}}, "kind", ""},
		} {
			_, err := k.act("define", OnJob, c.r)
			var wrong *FieldError
			require.ErrorAs(k, err, &wrong, "%+v", c.r)
			assert.Equal(k, c.field, wrong.Field, err)
			assert.ErrorContains(k, err, c.also)
			assert.ErrorIs(k, err, operator.ErrInvalidArgument)
		}
		for _, c := range []struct {
			r    Request
			want error
		}{
			{Request{Job: "settle", Kind: "report", Fields: map[string]any{"schedule": "every 2h"}}, operator.ErrRegistered},
			{Request{Job: "a", Kind: "unknown", Fields: map[string]any{"schedule": "every 2h"}}, operator.ErrUnknownKind},
		} {
			_, err := k.act("define", OnJob, c.r)
			assert.ErrorIs(k, err, c.want)
			assert.NotErrorIs(k, err, operator.ErrInvalidArgument)
		}
	})
}

// A deletion is done once it is stored, and its note names the risk if no leader confirms it in time.
func TestDelete_WithoutALeader(t *testing.T) {
	onFleet(t, func(k *kit) {
		k.did("define", OnJob, report(Request{}, "schedule", "every 1m"))
		k.fleet.Sleep(time.Minute)
		k.fleet.Stop("a")
		k.fleet.Stop("b")
		ctx, cancel := context.WithTimeout(k.Context(), 5*time.Second)
		defer cancel()
		v, _ := Find("delete", OnJob)
		done, err := v.Do(ctx, k.op, Request{Job: "acme/report"})
		require.NoError(k, err)
		assert.Equal(k, "deletes acme/report", done.Text)
		assert.Contains(k, done.Note, "until one does, runs may begin")
		j, err := k.op.Definition(k.Context(), "acme/report")
		require.NoError(k, err)
		assert.Equal(k, operator.DefinedDeleting, j.State)
	})
}
