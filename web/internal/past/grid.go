package past

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/operator"
)

// MaxRows is how many rows a grid has. With more shards, a row is a range of shards.
const MaxRows = 64

// Range is the shards from First to Last.
type Range struct{ First, Last int }

// Len returns the number of shards.
func (r Range) Len() int { return r.Last - r.First + 1 }

// String returns "7" or "0-156".
func (r Range) String() string {
	if r.First == r.Last {
		return fmt.Sprint(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// Split splits a range into at most MaxRows ranges of one width; the last one may be shorter.
func Split(r Range) (rows []Range, width int) {
	width = max(1, (r.Len()+MaxRows-1)/MaxRows)
	for first := r.First; first <= r.Last; first += width {
		rows = append(rows, Range{first, min(first+width-1, r.Last)})
	}
	return rows, width
}

// Grid is the last fires of a job by ranges of shards.
type Grid struct {
	Job    string
	Shards int   // that the job has, or had for one of the fires
	Of     Range // the shards that the rows cover
	Rows   []Range
	Fires  []Fire // the columns, the oldest first
	Cells  [][]Cell
	// Notes has, for each fire, a text about the shards whose state the history cannot tell, "" if there are none.
	Notes []string
	// After is what is missing after the last of Fires, nil for nothing.
	After *Missing
	// Until is that of the query.
	Until time.Time
	// Older is set if the history may have fires before those of the grid: its last instant.
	Older time.Time
}

// Cell is a range of shards for a fire.
type Cell struct {
	State  State // the worst of Counts
	Counts Counts
}

// GridQuery selects a part of a grid.
type GridQuery struct {
	// Of is the shards. Last below First means all.
	Of Range
	// Until is the instant of the last fire. Zero means now.
	Until time.Time
}

// ReadGrid returns the grid of a job. r is nil if there is no history.
func ReadGrid(ctx context.Context, r history.Reader, st *operator.Status, q GridQuery) (Grid, error) {
	live := LiveOf(st)
	var known knownFires
	var err error
	if r != nil {
		if known.fires, err = r.Fires(ctx, history.FiresQuery{Job: st.Job, Until: q.Until, Limit: MaxFires}); err != nil {
			return Grid{}, err
		}
	}
	if !q.Until.IsZero() {
		live = Live{Shards: live.Shards, ownFires: live.ownFires, schedule: live.schedule} // current runs belong to the latest fires
	}
	shards := shardsOf(known.fires, live)
	q.Of = clip(q.Of, shards)
	_, width := Split(q.Of)
	if len(known.fires) > 0 {
		cells := history.CellsQuery{Job: st.Job, Since: known.fires[len(known.fires)-1].Fire, Until: known.fires[0].Fire, FirstShard: q.Of.First, EndShard: q.Of.Last + 1, Width: width}
		if known.cells, err = r.Cells(ctx, cells); err != nil {
			return Grid{}, err
		}
		known.all = known.cells
		if q.Of.Len() < shards {
			cells.FirstShard, cells.EndShard, cells.Width = 0, shards, shards
			if known.all, err = r.Cells(ctx, cells); err != nil {
				return Grid{}, err
			}
		}
	}
	g := gridOf(st.Job, known, live, q.Of, shards)
	g.Until = q.Until
	if r != nil {
		now := time.Now()
		if !q.Until.IsZero() {
			now = time.Time{}
		}
		g.After = live.findMissing(g.Fires, now)
	}
	if len(known.fires) == MaxFires {
		g.Older = known.fires[len(known.fires)-1].Fire.Add(-time.Microsecond) // histories have no finer times
	}
	return g, nil
}

// knownFires is the content of a history about fires: their records, counts of runs for the rows of a grid, and for all shards.
type knownFires struct {
	fires      []history.Fire
	cells, all []history.Cell
}

// shardsOf returns how many shards a job has or had.
func shardsOf(fires []history.Fire, live Live) int {
	n := live.Shards
	for i := range fires {
		n = max(n, fires[i].Shards)
	}
	return n
}

// clip returns the part of a range that exists, all shards if there is none.
func clip(r Range, shards int) Range {
	r.First, r.Last = max(0, r.First), min(r.Last, shards-1)
	if r.Last < r.First {
		return Range{0, shards - 1}
	}
	return r
}

type fireKey struct {
	fire    int64
	trigger uint64
}

func keyOf(at time.Time, trigger uint64) fireKey { return fireKey{at.UnixMicro(), trigger} }

// gridOf returns the grid of a part of the shards.
func gridOf(job string, known knownFires, live Live, of Range, shards int) Grid {
	g := Grid{Job: job, Shards: shards, Of: of, Fires: firesOf(known.fires, live)}
	rows, width := Split(of)
	g.Rows, g.Notes = rows, make([]string, len(g.Fires))
	g.Cells = make([][]Cell, len(rows))
	cells := make([]Cell, len(rows)*len(g.Fires))
	for i := range rows {
		g.Cells[i], cells = cells[:len(g.Fires):len(g.Fires)], cells[len(g.Fires):]
	}
	columns := make(map[fireKey]*column, len(g.Fires))
	for i := range g.Fires {
		columns[keyOf(g.Fires[i].Fire, g.Fires[i].Trigger)] = &column{fire: &g.Fires[i], rows: make([]rowState, len(rows)), of: of, width: width}
	}
	for _, c := range known.cells {
		if col := columns[keyOf(c.Fire, c.Trigger)]; col != nil {
			row := &col.rows[(c.FirstShard-of.First)/width]
			row.counts[stateOf(c.Outcome, c.Attempt)] += c.Shards
			row.attempt = c.Attempt
		}
	}
	for _, c := range known.all {
		if col := columns[keyOf(c.Fire, c.Trigger)]; col != nil {
			col.recorded += c.Shards
			if c.Outcome == history.Succeeded {
				col.recordedOK += int64(c.Shards)
			}
		}
	}
	live.addTo(columns)
	for i := range g.Fires {
		col := columns[keyOf(g.Fires[i].Fire, g.Fires[i].Trigger)]
		rest, note := col.concludeRest(shards, live.ownFires)
		g.Notes[i] = note
		for j := range rows {
			counts := col.fill(j, rows[j], rest, shards)
			g.Cells[j][i] = Cell{counts.Worst(), counts}
		}
	}
	return g
}

// column collects the known states of a fire.
type column struct {
	fire  *Fire
	of    Range
	width int
	rows  []rowState
	// Of all shards of the job, how many have a kept run, of how many it succeeded, and how many run or are due without one.
	recorded   int
	recordedOK int64
	live       int
}

// rowState collects the known states of the shards of a row.
type rowState struct {
	counts  Counts
	attempt int // of the recorded run, if the row has one shard
	live    int // how many of counts have no recorded run: they run their first attempt, or are due
}

// addTo adds the shards that run, are to run again, or are due.
func (v *Live) addTo(columns map[fireKey]*column) {
	for _, r := range v.runs {
		if col := columns[keyOf(r.Fire, r.Trigger)]; col != nil {
			col.add(r.Shards, r.Attempt, Running)
		}
	}
	for _, r := range v.again {
		if col := columns[keyOf(r.Fire, r.Trigger)]; col != nil {
			col.add(r.Shards, r.Attempt, Pending)
		}
	}
	for i := range v.failures {
		f := &v.failures[i]
		if col := columns[keyOf(f.Fire, f.Trigger)]; col != nil && col.fire.Recorded.Job == "" && !f.Again {
			col.add(f.Shards, f.Attempt, Failed)
		}
	}
	if len(v.claimedTo) == 0 || v.ownFires {
		return
	}
	first := slices.MinFunc(v.claimedTo, time.Time.Compare)
	for _, col := range columns {
		if col.fire.Trigger != 0 || !col.fire.Fire.After(first) {
			continue
		}
		for shard, at := range v.claimedTo {
			if at.Before(col.fire.Fire) {
				col.add([]int{shard}, 1, Due)
			}
		}
	}
}

// add adds shards whose next attempt runs or is to run.
func (c *column) add(shards []int, attempt int, state State) {
	for _, shard := range shards {
		first := attempt <= 1
		if first {
			c.live++
		}
		if shard < c.of.First || shard > c.of.Last {
			continue
		}
		row := &c.rows[(shard-c.of.First)/c.width]
		if c.width == 1 && row.counts.sum() > 0 {
			if row.attempt >= attempt { // it has ended since
				if first {
					c.live--
				}
				continue
			}
			row.counts = Counts{} // the current attempt replaces the last recorded one
		}
		row.counts[state]++
		if first {
			row.live++
		}
	}
}

// concludeRest returns the state of the shards that have neither a kept run nor a current one, and a note if the history cannot tell it.
func (c *column) concludeRest(shards int, ownFires bool) (State, string) {
	f := &c.fire.Recorded
	targets := cmp.Or(f.Shards, shards)
	rest := targets - c.recorded - c.live
	if f.Job == "" {
		if c.fire.Trigger != 0 {
			return Absent, ""
		}
		return Unknown, "" // the text of the fire says so
	}
	if rest <= 0 {
		return Absent, ""
	}
	uncounted := f.OK - c.recordedOK
	if ownFires && uncounted <= 0 {
		return Absent, ""
	}
	failed := f.Failed + f.Crashed + f.Unfinished
	switch {
	case ownFires || c.fire.Trigger != 0 && targets < shards:
		return Unknown, fmt.Sprintf("%d further of %d shards ran; the history does not have which", rest, shards)
	case uncounted >= int64(rest):
		return Unkept, ""
	case uncounted > 0 || failed > 0 && c.recorded == 0:
		return Unknown, fmt.Sprintf("%d shards have no record of their own: %d ok, %d failed, crashed or unfinished runs, %d skipped", rest, max(0, uncounted), failedWithout(failed, c.recorded), f.Skipped)
	case f.Skipped >= int64(rest):
		return Skipped, ""
	case f.Skipped > 0:
		return Unknown, fmt.Sprintf("%d shards have no record of their own; %d runs were skipped", rest, f.Skipped)
	}
	return Unknown, fmt.Sprintf("%d shards have no record", rest)
}

// failedWithout returns the failed runs that have no record of their own: all, if no run has.
func failedWithout(failed int64, recorded int) int64 {
	if recorded > 0 {
		return 0
	}
	return failed
}

// fill returns the counts of a row, with the shards that have no record.
func (c *column) fill(i int, row Range, rest State, shards int) Counts {
	counts := c.rows[i].counts
	exist := row.Len()
	if f := &c.fire.Recorded; f.Shards > 0 && c.fire.Trigger == 0 { // a shard that the job got later has no run
		exist = max(0, min(row.Last, f.Shards-1)-row.First+1)
	}
	if n := exist - counts.sum(); n > 0 {
		counts[rest] += n
	}
	if c.fire.Retried {
		for _, s := range []State{Unfinished, Crashed, Failed} {
			counts[Repeated] += counts[s]
			counts[s] = 0
		}
	}
	return counts
}
