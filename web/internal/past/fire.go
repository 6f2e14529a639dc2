package past

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/operator"
)

// Bounds of the page of a fire. The page of a run has all attempts and whole texts.
const (
	// ShardsOnPage is how many shards it shows.
	ShardsOnPage = 50
	// TriesOfShard is how many attempts of each shard it shows: the first and the last ones.
	TriesOfShard = 3
	// TextsOnPage is how many bytes its errors and outputs have together.
	TextsOnPage = 40 << 10

	shortError  = 300     // bytes of an error
	shortOutput = 1 << 10 // bytes of the end of an output
)

// OneFire is a fire with its shards.
type OneFire struct {
	Job     string
	Fire    time.Time
	Trigger uint64 // zero for a scheduled fire, with what operators' retries made of it
	Whole   Fire
	Note    string // about the shards whose state the history cannot tell
	// Skipped are records of runs that were skipped, of this fire or of it and others at once.
	Skipped []history.Fire
	Counts  Counts // of all shards
	Rows    []ShardRuns
	// Number is how many shards there are in all, From the number of the first one of Rows, from 0, in the order of Rows.
	Number, From int
	// Begin and End bound the times of Rows. They are zero if there are none.
	Begin, End time.Time
}

// ShardRuns is the attempts of one shard for a fire.
type ShardRuns struct {
	Shard int
	State State
	Tries []Try // the first attempt first
	Gaps  []Gap
	// Left is how many attempts between the first and the second of Tries are left out.
	Left int
	// Late is how long after the fire the first attempt began. It is zero for triggers and for runs of the past.
	Late time.Duration
	Note string
}

// Try is an attempt.
type Try struct {
	history.Run
	State State
	// Hidden reports that there is an error or an output that the viewer may not see.
	Hidden bool
	// Cut reports that the page of the run has more of the error or the output.
	Cut bool
}

// Gap is the time between two attempts, in which no run of the shard was on record.
type Gap struct {
	From, To time.Time
	Failover bool // the attempt before did not end by itself
	Text     string
}

// FireQuery selects a fire and the shards to show.
type FireQuery struct {
	Job string
	// Fire is the instant, or Trigger the number of a trigger.
	Fire    time.Time
	Trigger uint64
	From    int  // as in OneFire
	Reveal  bool // the viewer may see errors and outputs
	Now     time.Time
}

// ReadFire returns a fire of a job. r is nil if there is no history. found is false if neither the history nor the records of the
// fleet know the fire.
func ReadFire(ctx context.Context, r history.Reader, st *operator.Status, q FireQuery) (f OneFire, found bool, err error) {
	live := LiveOf(st)
	if q.Trigger != 0 && q.Fire.IsZero() {
		if q.Fire, err = fireOfTrigger(ctx, r, live, q); err != nil || q.Fire.IsZero() {
			return OneFire{Job: q.Job, Trigger: q.Trigger}, false, err
		}
	}
	var known knownFires
	f = OneFire{Job: q.Job, Fire: q.Fire, Trigger: q.Trigger}
	if r != nil {
		if known.fires, err = r.Fires(ctx, history.FiresQuery{Job: q.Job, Since: q.Fire, Until: q.Fire}); err != nil {
			return f, false, err
		}
		covering, err := r.Fires(ctx, history.FiresQuery{Job: q.Job, Covering: q.Fire, Since: q.Fire, Limit: MaxFires})
		if err != nil {
			return f, false, err
		}
		f.Skipped = slices.DeleteFunc(covering, func(f history.Fire) bool { return f.Skipped == 0 })
		if known.cells, err = r.Cells(ctx, history.CellsQuery{Job: q.Job, Since: q.Fire, Until: q.Fire, EndShard: endOfShards}); err != nil {
			return f, false, err
		}
	}
	states, found := f.conclude(known, live)
	if !found {
		return f, len(f.Skipped) > 0, nil
	}
	f.choose(states, q.From)
	if r != nil && len(f.Rows) > 0 {
		runs, err := r.RunsOfShards(ctx, q.Job, q.Fire, f.shards())
		if err != nil {
			return f, true, err
		}
		f.addRuns(runs, q)
	}
	f.addLive(live, q)
	f.finish(q)
	return f, true, nil
}

// HasFailed reports whether a shard has failed or crashed, or its run has not finished, and nothing made it good.
func (f *OneFire) HasFailed() bool { return f.Counts.Worst() >= Unfinished }

// endOfShards is more than the number of any shard.
const endOfShards = 1 << 30

// fireOfTrigger returns the instant of the fire of a trigger, zero if nothing knows it.
func fireOfTrigger(ctx context.Context, r history.Reader, live Live, q FireQuery) (time.Time, error) {
	for _, run := range live.runs {
		if run.Trigger == q.Trigger {
			return run.Fire, nil
		}
	}
	for _, run := range live.again {
		if run.Trigger == q.Trigger {
			return run.Fire, nil
		}
	}
	for i := range live.failures {
		if live.failures[i].Trigger == q.Trigger {
			return live.failures[i].Fire, nil
		}
	}
	if r == nil {
		return time.Time{}, nil
	}
	fires, err := r.Fires(ctx, history.FiresQuery{Job: q.Job, Trigger: q.Trigger, Limit: 1})
	if err != nil || len(fires) == 0 {
		return time.Time{}, err
	}
	return fires[0].Fire, nil
}

// conclude returns the state of each shard, and sets Whole and Note. found is false if nothing knows the fire.
func (f *OneFire) conclude(known knownFires, live Live) (states []State, found bool) {
	shards := shardsOf(known.fires, live)
	for _, c := range known.cells {
		shards = max(shards, c.FirstShard+1)
	}
	states = make([]State, shards)
	for _, whole := range firesOf(known.fires, live) {
		if !isSame(whole.Fire, f.Fire) || f.Trigger != 0 && whole.Trigger != f.Trigger {
			continue
		}
		// A trigger at the instant of a scheduled fire is a retry of it by an operator.
		col := column{fire: &whole, of: Range{0, shards - 1}, width: 1, rows: make([]rowState, shards)}
		note := col.addKnown(known, live, shards)
		if !found || whole.Trigger == 0 {
			f.Whole, f.Note = whole, note
		}
		found = true
		for shard := range col.rows {
			state := col.rows[shard].counts.Worst()
			switch before := states[shard]; {
			case (before >= Unfinished || before == Repeated) && state == OK:
				states[shard] = Repeated // a retry made it good
			case before == Absent || state != Absent && state != Unknown && state != Unkept:
				states[shard] = state
			}
		}
	}
	if f.Whole.State >= Unfinished && !slices.ContainsFunc(states, func(s State) bool { return s > Repeated }) {
		f.Whole.State = Repeated
	}
	return states, found
}

// choose sets the rows of the page, those in the worst state first.
func (f *OneFire) choose(states []State, from int) {
	f.From = from
	var order []int
	for shard, state := range states {
		f.Counts[state]++
		if state != Absent {
			order = append(order, shard)
		}
	}
	f.Number = len(order)
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(states[b], states[a]) })
	for _, shard := range order[min(max(0, from), len(order)):min(max(0, from)+ShardsOnPage, len(order))] {
		f.Rows = append(f.Rows, ShardRuns{Shard: shard, State: states[shard]})
	}
}

// addKnown sets the states of all shards of a column with rows of one shard.
func (c *column) addKnown(known knownFires, live Live, shards int) (note string) {
	for _, cell := range known.cells {
		if !c.fire.isOf(cell.Fire, cell.Trigger) {
			continue
		}
		row := &c.rows[cell.FirstShard]
		row.counts[stateOf(cell.Outcome, cell.Attempt)] += cell.Shards
		row.attempt = cell.Attempt
		c.recorded++
		if cell.Outcome == history.Succeeded {
			c.recordedOK++
		}
	}
	live.addTo(map[fireKey]*column{keyOf(c.fire.Fire, c.fire.Trigger): c})
	rest, note := c.concludeRest(shards, live.ownFires)
	for shard := range c.rows {
		c.rows[shard].counts = c.fill(shard, Range{shard, shard}, rest, shards)
	}
	return note
}

func (f *OneFire) shards() (shards []int) {
	for i := range f.Rows {
		shards = append(shards, f.Rows[i].Shard)
	}
	return shards
}

// row returns the row of a shard, nil if it is not on the page.
func (f *OneFire) row(shard int) *ShardRuns {
	for i := range f.Rows {
		if f.Rows[i].Shard == shard {
			return &f.Rows[i]
		}
	}
	return nil
}

// addRuns adds recorded runs, with short texts.
func (f *OneFire) addRuns(runs []history.Run, q FireQuery) {
	left := TextsOnPage
	for _, run := range runs {
		row := f.row(run.Shard)
		if row == nil || q.Trigger != 0 && run.Trigger != q.Trigger {
			continue
		}
		row.Tries = append(row.Tries, tryOf(run, q.Reveal))
	}
	for i := range f.Rows {
		row := &f.Rows[i]
		if more := len(row.Tries) - TriesOfShard; more > 0 {
			row.Tries = slices.Delete(row.Tries, 1, 1+more)
			row.Left = more
		}
		for j := range row.Tries {
			row.Tries[j].shorten(&left)
		}
	}
}

// tryOf returns a recorded run. Texts that the viewer may not see are left out.
func tryOf(run history.Run, reveal bool) Try {
	try := Try{Run: run, State: stateOf(run.Outcome, run.Attempt)}
	if !reveal {
		try.Hidden = run.Error != "" || run.Output != ""
		try.Error, try.Output = "", ""
	}
	return try
}

// shorten cuts the texts. left is how many bytes of texts the page may still have.
func (t *Try) shorten(left *int) {
	if n := min(shortError, *left); len(t.Error) > n {
		for n > 0 && t.Error[n]&0xC0 == 0x80 { // within a character
			n--
		}
		t.Error, t.Cut = t.Error[:n], true
	}
	*left -= len(t.Error)
	if from := len(t.Output) - min(shortOutput, *left); from > 0 {
		for from < len(t.Output) && t.Output[from]&0xC0 == 0x80 {
			from++
		}
		t.Output, t.Cut = t.Output[from:], true
	}
	*left -= len(t.Output)
}

// addLive adds the attempts that run, and notes about those that are to.
func (f *OneFire) addLive(live Live, q FireQuery) {
	for _, r := range live.runs {
		if !isSame(r.Fire, f.Fire) || q.Trigger != 0 && r.Trigger != q.Trigger {
			continue
		}
		for _, shard := range r.Shards {
			if row := f.row(shard); row != nil && !row.has(r.Trigger, r.Attempt) {
				row.Tries = append(row.Tries, Try{State: Running, Run: history.Run{
					Job: f.Job, Fire: r.Fire, Trigger: r.Trigger, Shard: shard, Attempt: max(1, r.Attempt), Instance: r.instance,
				}})
			}
		}
	}
	for _, r := range live.again {
		if !isSame(r.Fire, f.Fire) || q.Trigger != 0 && r.Trigger != q.Trigger {
			continue
		}
		for _, shard := range r.Shards {
			row := f.row(shard)
			if row == nil {
				continue
			}
			row.Note = fmt.Sprintf("attempt %d is pending", r.Attempt)
			if r.NotBefore.After(q.Now) {
				row.Note += fmt.Sprintf(", not before %s", r.NotBefore.UTC().Format(time.RFC3339))
			}
		}
	}
}

func (s *ShardRuns) has(trigger uint64, attempt int) bool {
	return slices.ContainsFunc(s.Tries, func(t Try) bool { return t.Trigger == trigger && t.Attempt >= attempt })
}

// finish computes gaps, lateness and the bounds of the times.
func (f *OneFire) finish(q FireQuery) {
	observe := func(at time.Time) {
		if at.IsZero() {
			return
		}
		if f.Begin.IsZero() || at.Before(f.Begin) {
			f.Begin = at
		}
		if at.After(f.End) {
			f.End = at
		}
	}
	running := false
	for i := range f.Rows {
		row := &f.Rows[i]
		row.addGaps(f.Fire)
		for _, t := range row.Tries {
			observe(t.Started)
			observe(t.Ended)
			running = running || t.State == Running
		}
	}
	if running {
		observe(q.Now)
	}
	// The fire itself is shown, unless it is long before: then it is one of the past that somebody had run.
	if span := f.End.Sub(f.Begin); !f.Begin.IsZero() && f.Fire.Before(f.Begin) && f.Begin.Sub(f.Fire) <= 2*span+time.Minute {
		f.Begin = f.Fire
	}
}

// addGaps adds the times between attempts, and the lateness of the first.
func (s *ShardRuns) addGaps(fire time.Time) {
	for i := range s.Tries {
		t := &s.Tries[i]
		if i == 0 {
			if t.Attempt == 1 && t.Trigger == 0 && t.Started.After(fire) && t.Reason != executor.Backfill.String() {
				s.Late = t.Started.Sub(fire)
			}
			continue
		}
		before := &s.Tries[i-1]
		if i == 1 && s.Left > 0 {
			continue
		}
		if t.Started.IsZero() || before.Ended.IsZero() || !t.Started.After(before.Ended) {
			continue
		}
		gap := Gap{From: before.Ended, To: t.Started, Failover: before.State == Crashed || before.State == Unfinished}
		switch {
		case before.Trigger != t.Trigger:
			gap.Failover, gap.Text = false, fmt.Sprintf("until an operator's retry, trigger #%d", t.Trigger)
		case before.State == Crashed && before.Instance != t.Instance:
			gap.Text = fmt.Sprintf("%s crashed, %s took over", before.Instance, t.Instance)
		case gap.Failover && before.Instance != t.Instance:
			gap.Text = fmt.Sprintf("%s: %s, %s took over", before.Instance, before.Outcome, t.Instance)
		case gap.Failover:
			gap.Text = fmt.Sprintf("%s: %s, made again", before.Instance, before.Outcome)
		default:
			gap.Text = "wait before the next attempt"
		}
		s.Gaps = append(s.Gaps, gap)
	}
}

// Run is the attempts of one shard for a fire, with all texts.
type Run struct {
	Job     string
	Fire    time.Time
	Trigger uint64
	ShardRuns
	Begin, End time.Time
	Note       string // if the history has no run of the shard
}

// Runs reports whether an attempt runs.
func (r *Run) Runs() bool {
	return slices.ContainsFunc(r.Tries, func(t Try) bool { return t.State == Running })
}

// ReadRun returns the attempts of a shard for a fire. found is as that of ReadFire.
func ReadRun(ctx context.Context, r history.Reader, st *operator.Status, q FireQuery, shard int) (run Run, found bool, err error) {
	live := LiveOf(st)
	if q.Trigger != 0 && q.Fire.IsZero() {
		if q.Fire, err = fireOfTrigger(ctx, r, live, q); err != nil || q.Fire.IsZero() {
			return Run{Job: q.Job, Trigger: q.Trigger}, false, err
		}
	}
	var known knownFires
	var runs []history.Run
	if r != nil {
		if known.fires, err = r.Fires(ctx, history.FiresQuery{Job: q.Job, Since: q.Fire, Until: q.Fire}); err != nil {
			return Run{}, false, err
		}
		if known.cells, err = r.Cells(ctx, history.CellsQuery{Job: q.Job, Since: q.Fire, Until: q.Fire, EndShard: endOfShards}); err != nil {
			return Run{}, false, err
		}
		if runs, err = r.RunsOfShards(ctx, q.Job, q.Fire, []int{shard}); err != nil {
			return Run{}, false, err
		}
	}
	f := OneFire{Job: q.Job, Fire: q.Fire, Trigger: q.Trigger}
	states, found := f.conclude(known, live)
	if !found || shard < 0 || shard >= len(states) {
		return Run{Job: q.Job, Fire: q.Fire, Trigger: q.Trigger}, false, nil
	}
	f.Rows = []ShardRuns{{Shard: shard, State: states[shard]}}
	for _, one := range runs {
		if q.Trigger == 0 || one.Trigger == q.Trigger {
			f.Rows[0].Tries = append(f.Rows[0].Tries, tryOf(one, q.Reveal))
		}
	}
	f.addLive(live, q)
	f.finish(q)
	run = Run{Job: q.Job, Fire: f.Fire, Trigger: f.Trigger, ShardRuns: f.Rows[0], Begin: f.Begin, End: f.End}
	if len(run.Tries) == 0 {
		run.Note = noteWithoutRuns(run.State, f.Note)
	}
	return run, true, nil
}

// noteWithoutRuns returns why there are no attempts to show. Note is that of the fire.
func noteWithoutRuns(state State, note string) string {
	switch state {
	case Absent:
		return "The fire had no run of this shard."
	case Unkept:
		return "The run succeeded. The history has only counted it: by default it keeps runs that failed or were repeated, and the slowest ones of each fire."
	case Skipped:
		return "No run was made: the fire was skipped for this shard."
	case Due:
		return "The fire is due for this shard and not claimed yet."
	}
	return cmp.Or(note, "The history has no run of this shard for the fire.")
}
