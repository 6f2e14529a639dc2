package coordtest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// Fire returns the run of the n-th minute in epoch 1.
func Fire(n, attempt int) record.Ref { return record.Ref{Epoch: 1, Fire: At(n), Attempt: attempt} }

// PlanOfOwnShards returns the plan of a job whose shards are owned by the incarnation "me".
func PlanOfOwnShards(t *testing.T, shards int) *record.Plan {
	t.Helper()
	return &record.Plan{
		Job: "job", Epochs: []record.Epoch{Epoch(t, 1, Start, shards)},
		Owners: map[string]shardset.Set{"me": shardset.Range(0, shards)},
	}
}

// Epoch returns an epoch of the job "job".
func Epoch(t *testing.T, number int, from record.Instant, shards int) record.Epoch {
	t.Helper()
	e, err := record.NewEpoch(number, from, json.RawMessage(fmt.Sprintf(`{"name":"job","shards":%d}`, shards)))
	require.NoError(t, err)
	return e
}

// Runs returns runs of shards for one fire and attempt.
func Runs(shards shardset.Set, r record.Ref) record.Runs { return record.Runs{}.With(shards, r) }

// Must returns v and panics unless ok.
func Must[T any](v T, ok bool) T {
	if !ok {
		panic("not there")
	}
	return v
}

// SpreadOf returns the difference between the largest and the smallest number.
func SpreadOf(ns []int) int {
	if len(ns) == 0 {
		return 0
	}
	return slices.Max(ns) - slices.Min(ns)
}

// Def returns a definition; more holds further JSON fields.
func Def(job string, revision, shards int, more string) string {
	return fmt.Sprintf(`{"name":%q,"revision":%d,"shards":%d%s}`, job, revision, shards, more)
}

// BubbleStart is the time at which a synctest bubble starts.
func BubbleStart() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }

// UnsupportedSchedule is a field of definitions that only later versions can compile.
const UnsupportedSchedule = `,"schedule":"lunar 3"`

// ClaimsOnly is a field of definitions that track only claims.
const ClaimsOnly = `,"tracking":"claims"`

// Start is the time at which tests of decisions start.
const Start = record.Instant(1_000_000_000_000_000_000)

// Minutely is a program with a fire each minute; of several due fires the latest runs.
type Minutely struct{}

// Due is described in due.Program.
func (Minutely) Due(last, until, now time.Time) due.Due {
	end := now
	if !until.IsZero() && !until.After(now) {
		end = until.Add(-1)
	}
	first := last.Truncate(time.Minute).Add(time.Minute)
	if first.After(end) {
		if !until.IsZero() && !first.Before(until) {
			return due.Due{}
		}
		return due.Due{Wake: first}
	}
	latest := end.Truncate(time.Minute)
	return due.Due{Fire: latest, Through: latest, Skipped: int(latest.Sub(first) / time.Minute), Wake: latest.Add(time.Minute)}
}

// SkipDue is described in due.Program.
func (p Minutely) SkipDue(last, until, now time.Time) due.Due {
	o := p.Due(last, until, now)
	if !o.Fire.IsZero() {
		o.Fire, o.Skipped = time.Time{}, o.Skipped+1
	}
	if !until.IsZero() && !o.Wake.Before(until) {
		o.Wake = time.Time{}
	}
	return o
}

// At returns the n-th minute after Start.
func At(n int) record.Instant {
	return record.InstantOf(Start.Time().Truncate(time.Minute).Add(time.Duration(n) * time.Minute))
}

// Following is the program of a job that follows others; of several released fires the latest runs.
type Following struct{ Minutely }

// FollowsJobs is described in due.Follower.
func (Following) FollowsJobs() bool { return true }

// DueReleased is described in due.Follower.
func (Following) DueReleased(released []due.Release, last, now time.Time) due.Due {
	var o due.Due
	for _, r := range released {
		switch {
		case !r.At.After(last):
		case r.Released.After(now):
			o.Wake = r.Released
			return o
		default:
			if !o.Fire.IsZero() {
				o.Skipped++
			}
			o.Fire, o.Through = r.At, r.At
		}
	}
	return o
}

// SkipReleased is described in due.Follower.
func (p Following) SkipReleased(released []due.Release, last, now time.Time) due.Due {
	o := p.DueReleased(released, last, now)
	if !o.Fire.IsZero() {
		o.Fire, o.Skipped = time.Time{}, o.Skipped+1
	}
	return o
}
