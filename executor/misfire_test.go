package executor

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/firelist"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/schedule"
)

func TestMisfirePolicy_Text(t *testing.T) {
	for text, p := range map[string]MisfirePolicy{
		"run once":    RunOnce,
		"skip missed": SkipMissed,
		"run all 1":   RunAll(1),
		"run all 100": RunAll(100),
	} {
		assert.NoError(t, p.check())
		got, err := p.MarshalText()
		require.NoError(t, err)
		assert.Equal(t, text, string(got))
		var loaded MisfirePolicy
		require.NoError(t, loaded.UnmarshalText([]byte(text)))
		assert.True(t, loaded == p, text)
	}
	assert.True(t, RunOnce == *new(MisfirePolicy), "the zero value")
}

func TestMisfirePolicy_Refuses(t *testing.T) {
	for _, limit := range []int{0, -1, -2, -5, math.MinInt} {
		assert.Error(t, RunAll(limit).check(), limit)
	}
	assert.ErrorContains(t, RunAll(0).check(), `"run all 0"`)
	assert.ErrorContains(t, RunAll(-5).check(), `"run all -5"`)
	var p MisfirePolicy
	for _, text := range []string{"run all 0", "run all -1", "run all many", "run all "} {
		err := p.UnmarshalText([]byte(text))
		assert.ErrorContains(t, err, text)
		assert.NotErrorIs(t, err, ErrNewerFormat)
	}
	for _, text := range []string{"", "run", "run twice"} {
		assert.ErrorIs(t, p.UnmarshalText([]byte(text)), ErrNewerFormat, text)
	}
}

// A fire each minute at :00. The fires that are due at an instant of the hour from 12:00 on.
func TestDecideDue(t *testing.T) {
	at := func(text string) time.Time {
		if text == "" {
			return time.Time{}
		}
		return date("2026-05-05T12:" + text + "Z")
	}
	for _, c := range []struct {
		name             string
		policy           MisfirePolicy
		last, until, now string
		fire             string
		missed           bool
		skipped          int
		through, next    string
	}{
		{"nothing is due", RunOnce, "05:00", "", "05:59.999", "", false, 0, "", "06:00"},
		{"the fire of the watermark is not due again", RunOnce, "05:00", "", "05:00", "", false, 0, "", "06:00"},
		{"a fire is due at its instant", RunOnce, "05:00", "", "06:00", "06:00", false, 0, "06:00", "07:00"},
		{"on time within the grace", RunOnce, "05:00", "", "06:01", "06:00", false, 0, "06:00", "07:00"},
		{"missed after the grace", RunOnce, "05:00", "", "06:01.001", "06:00", true, 0, "06:00", "07:00"},
		{"the clock was put back", RunOnce, "05:00", "", "03:00", "", false, 0, "", "06:00"},
		{"fires count from an instant between two", RunOnce, "05:30", "", "06:00", "06:00", false, 0, "06:00", "07:00"},

		{"once: the latest of several, even on time", RunOnce, "05:00", "", "09:00", "09:00", true, 3, "09:00", "10:00"},
		{"once: the latest of several, late", RunOnce, "05:00", "", "09:30", "09:00", true, 3, "09:00", "10:00"},

		{"skip: one on time", SkipMissed, "05:00", "", "06:01", "06:00", false, 0, "06:00", "07:00"},
		{"skip: one late", SkipMissed, "05:00", "", "06:01.001", "", false, 1, "06:00", "07:00"},
		{"skip: the latest is on time", SkipMissed, "05:00", "", "09:01", "09:00", false, 3, "09:00", "10:00"},
		{"skip: the latest is late", SkipMissed, "05:00", "", "09:02", "", false, 4, "09:00", "10:00"},

		{"all: one on time", RunAll(3), "05:00", "", "06:01", "06:00", false, 0, "06:00", "07:00"},
		{"all: one late", RunAll(3), "05:00", "", "06:02", "06:00", true, 0, "06:00", "07:00"},
		{"all: the oldest of several", RunAll(3), "05:00", "", "08:00", "06:00", true, 0, "06:00", "07:00"},
		{"all: as many as the limit", RunAll(3), "05:00", "", "08:30", "06:00", true, 0, "06:00", "07:00"},
		{"all: more than the limit", RunAll(3), "05:00", "", "10:30", "08:00", true, 2, "08:00", "09:00"},
		{"all: of a limit of one", RunAll(1), "05:00", "", "10:00", "10:00", true, 4, "10:00", "11:00"},

		{"until: a fire before it", RunOnce, "05:00", "06:00.001", "06:00.5", "06:00", false, 0, "06:00", ""},
		{"until: the fire at it is the later definition's", RunOnce, "05:00", "06:00", "06:00", "", false, 0, "", ""},
		{"until: nothing is due yet", RunOnce, "05:00", "07:30", "05:30", "", false, 0, "", "06:00"},
		{"until: ahead, and the last fire before it is taken", RunOnce, "06:00", "07:00", "06:10", "", false, 0, "", ""},
		{"until: reached, and a fire is at it", RunOnce, "05:00", "08:00", "08:00", "07:00", true, 1, "07:00", ""},
		{"until: long past", RunOnce, "05:00", "08:00", "30:00", "07:00", true, 1, "07:00", ""},
		{"until: long past, skip", SkipMissed, "05:00", "08:00", "30:00", "", false, 2, "07:00", ""},
		{"until: long past, all", RunAll(10), "05:00", "08:00", "30:00", "06:00", true, 0, "06:00", "07:00"},
		{"until: long past, all within the limit", RunAll(1), "05:00", "08:00", "30:00", "07:00", true, 1, "07:00", ""},
		{"until: not after the watermark", RunOnce, "05:00", "04:00", "30:00", "", false, 0, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, s := range []schedule.Schedule{schedule.Cron("* * * * *"), schedule.Every(time.Minute)} {
				want := dueFires{fire: at(c.fire), missed: c.missed, skipped: c.skipped, through: at(c.through), next: at(c.next)}
				assert.Equal(t, want, decideDue(compile(t, s), c.policy, at(c.last), at(c.until), at(c.now)), s)
			}
		})
	}
}

func TestDecideDue_NothingWithoutASchedule(t *testing.T) {
	for _, p := range []MisfirePolicy{RunOnce, SkipMissed, RunAll(5)} {
		assert.Zero(t, decideDue(compile(t, schedule.OnTrigger()), p, time.Time{}, time.Time{}, time.Now()))
	}
}

// A twin that walks every fire says the same.
func TestDecideDue_AgreesWithWalking(t *testing.T) {
	const seed = 5
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	policies := []MisfirePolicy{RunOnce, SkipMissed, RunAll(1), RunAll(2), RunAll(7), RunAll(1000)}
	several, late := 0, 0
	for range 3000 {
		tt := compile(t, randomSchedule(r))
		last := date("2026-10-31T00:00:00Z").Add(time.Duration(r.Int64N(int64(48 * time.Hour))))
		now := last
		for range r.IntN(30) {
			now = tt.Next(now)
		}
		now = now.Add(time.Duration(r.Int64N(int64(3*time.Second)) - int64(time.Second)/2))
		var until time.Time
		if r.IntN(3) == 0 {
			until = last.Add(time.Duration(r.Int64N(int64(now.Sub(last).Abs()*2 + 1))))
		}
		p := policies[r.IntN(len(policies))]
		got := decideDue(tt, p, last, until, now)
		require.Equal(t, owesByWalking(tt, p, last, until, now), got, "%v, last %v, until %v, now %v", p, last, until, now)
		if got.skipped > 0 {
			several++
		}
		if got.missed {
			late++
		}
	}
	assert.Greater(t, several, 300)
	assert.Greater(t, late, 300)
}

func owesByWalking(tt timetable, p MisfirePolicy, last, until, now time.Time) dueFires {
	mine := func(f time.Time) bool { return !f.IsZero() && (until.IsZero() || f.Before(until)) }
	var due []time.Time
	f := tt.Next(last)
	for ; mine(f) && !f.After(now); f = tt.Next(f) {
		due = append(due, f)
	}
	var o dueFires
	run := func(i int) { o.fire, o.through, o.skipped, o.next = due[i], due[i], i, tt.Next(due[i]) }
	n := len(due)
	switch {
	case n == 0:
		o.next = f
	case p == RunOnce:
		run(n - 1)
		o.missed = n > 1 || now.Sub(o.fire) > time.Second
	case p == SkipMissed:
		run(n - 1)
		if now.Sub(o.fire) > time.Second {
			o.fire, o.skipped = time.Time{}, n
		}
	default:
		run(max(0, n-int(p)))
		o.missed = n > 1 || now.Sub(o.fire) > time.Second
	}
	if !mine(o.next) {
		o.next = time.Time{}
	}
	return o
}

// Under any policy, taking the due fires again and again settles every fire once: it is
// run or counted as skipped, in order, and none before its time.
func TestDecideDue_SettlesEveryFireOnce(t *testing.T) {
	const seed = 6
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		tt := compile(t, randomSchedule(r))
		p := []MisfirePolicy{RunOnce, SkipMissed, RunAll(3)}[r.IntN(3)]
		start := date("2026-10-31T12:00:00Z").Add(time.Duration(r.Int64N(int64(24 * time.Hour))))
		last, now := start, start
		settled := 0
		for range 50 {
			o := decideDue(tt, p, last, time.Time{}, now)
			settled += o.skipped
			if !o.fire.IsZero() {
				settled++
				require.False(t, o.fire.After(now))
				require.Equal(t, o.fire, o.through)
			}
			if !o.through.IsZero() {
				require.True(t, o.through.After(last))
				last = o.through
			}
			require.Equal(t, tt.Next(last), o.next)
			require.Equal(t, tt.Count(start, last), settled)
			// A run takes its time: none, some, or several fires long.
			now = o.next.Add(time.Duration(r.Int64N(int64(tt.Next(o.next).Sub(o.next)) * 4)))
		}
	}
}

// Whatever the policy, a disabled shard settles all that is due in one look.
func TestSkipDue_SkipsAllThatIsDueAtOnce(t *testing.T) {
	const seed = 7
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	some := 0
	for range 300 {
		p := program{times: compile(t, randomSchedule(r))}
		p.OnMisfire = []MisfirePolicy{RunOnce, SkipMissed, RunAll(3), RunAll(1000)}[r.IntN(4)]
		last := date("2026-10-31T12:00:00Z").Add(time.Duration(r.Int64N(int64(24 * time.Hour))))
		now := last
		for range r.IntN(30) {
			now = p.times.Next(now)
		}
		end, until := now, time.Time{}
		if r.IntN(2) == 0 {
			until = last.Add(now.Sub(last)*2/3 + time.Nanosecond)
			end = until.Add(-1)
		}
		o := p.SkipDue(last, until, now)
		require.Zero(t, o.Fire)
		require.Equal(t, p.times.Count(last, end), o.Skipped)
		if o.Skipped > 0 {
			some++
			last = o.Through
			require.Zero(t, p.times.Count(last, end))
		}
		require.Equal(t, firelist.Before(p.times.Next(last), until), o.Wake)
		require.Zero(t, p.SkipDue(last, until, now).Skipped, "once")
	}
	require.Greater(t, some, 100)
}

// Otherwise the due fires of the next epoch would wait for the delay.
func TestSkipDue_RaisesTheWatermarkNoFurtherThanTheEpoch(t *testing.T) {
	for _, s := range []schedule.Schedule{schedule.FixedDelay(15 * time.Second), schedule.Every(15 * time.Second), schedule.Cron("*/15 * * * * *")} {
		p := program{times: compile(t, s), countsEnds: s.CountsEnds()}
		last := date("2026-05-04T10:00:00Z")
		now := last.Add(time.Minute)
		for _, until := range []time.Time{now, now.Add(-20 * time.Second)} {
			o := p.SkipDue(last, until, now)
			require.Positive(t, o.Skipped, "%v", s)
			require.True(t, o.Through.Before(until), "%v: through %v", s, o.Through)
			require.Zero(t, o.Wake, "%v", s)
		}
	}
}

// 2.6 million fires of a month, and 315 billion of ten years by the millisecond: decided
// without walking them, and counted exactly.
func TestDecideDue_AfterALongOutage(t *testing.T) {
	last := date("2026-02-15T00:00:00Z")
	for _, c := range []struct {
		s      schedule.Schedule
		outage time.Duration
		fires  int
	}{
		{schedule.Cron("* * * * * *").In("America/New_York"), 30 * 24 * time.Hour, 2_592_000},
		{schedule.Every(time.Second), 30 * 24 * time.Hour, 2_592_000},
		{schedule.Cron("* * * * * *").In("America/New_York"), 3650 * 24 * time.Hour, 315_360_000},
		{schedule.Every(time.Millisecond), 3650 * 24 * time.Hour, 315_360_000_000},
	} {
		tt := compile(t, c.s)
		now := last.Add(c.outage)
		began := time.Now()
		once := decideDue(tt, RunOnce, last, time.Time{}, now)
		skip := decideDue(tt, SkipMissed, last, time.Time{}, now.Add(-time.Nanosecond))
		all := decideDue(tt, RunAll(1_000_000), last, time.Time{}, now)
		took := time.Since(began)

		assert.Equal(t, now, once.fire)
		assert.Equal(t, c.fires-1, once.skipped)
		assert.Equal(t, c.fires-2, skip.skipped)
		assert.Equal(t, c.fires-1_000_000, all.skipped)
		assert.Equal(t, 1_000_000, tt.Count(all.fire.Add(-1), now))
		assert.Less(t, took, time.Second, "%v, where walking takes minutes", c.s)
	}
}

func BenchmarkDecideDue_PerSecondCronAfterAMonth(b *testing.B) {
	tt := compile(b, schedule.Cron("* * * * * *").In("America/New_York"))
	last := date("2026-02-15T00:00:00Z")
	for _, p := range []MisfirePolicy{RunOnce, SkipMissed, RunAll(1000)} {
		b.Run(p.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				decideDue(tt, p, last, time.Time{}, last.Add(30*24*time.Hour))
			}
		})
	}
}

func BenchmarkDecideDue_OneFireOnTime(b *testing.B) {
	tt := compile(b, schedule.Cron("0 3 * * *").In("America/New_York"))
	last := date("2026-02-15T00:00:00Z")
	now := tt.Next(last)
	b.ReportAllocs()
	for b.Loop() {
		decideDue(tt, RunOnce, last, time.Time{}, now)
	}
}

func TestProgram_CountsFiresBeyondTheCatchupWindowOnce(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	schedule := schedule.Every(time.Hour)
	times := compile(t, schedule)
	p := newProgram(definitionOf(Job{Name: "job", Schedule: schedule, CatchupWindow: time.Minute}), times)
	now := begin.Add(150 * time.Minute)
	first := p.Due(begin, time.Time{}, now)
	assert.Equal(t, due.Due{Skipped: 2, Expired: 2, Through: begin.Add(2 * time.Hour), Wake: begin.Add(3 * time.Hour)}, first, "long before the next fire")
	again := p.Due(first.Through, time.Time{}, now.Add(time.Second))
	assert.Equal(t, due.Due{Wake: begin.Add(3 * time.Hour)}, again)
}

func TestFirstOfLast_IsTheFireWithWhichTheLastOnesBegin(t *testing.T) {
	const seed = 4
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		tt := compile(t, randomSchedule(r))
		after := date("2026-10-20T00:00:00Z").Add(time.Duration(r.Int64N(int64(20 * 24 * time.Hour))))
		last := after
		for range 1 + r.IntN(200) {
			last = tt.Next(last)
		}
		through := last.Add(tt.Next(last).Sub(last) / 2)
		var all []time.Time
		for fire := tt.Next(after); !fire.After(through); fire = tt.Next(fire) {
			all = append(all, fire)
		}
		for n := 1; n <= len(all); n += 1 + r.IntN(20) {
			require.Equal(t, all[len(all)-n], firstOfLast(tt, after, through, n))
		}
	}
}

// The first fire asked for by a shard that knows no earlier instant.
func TestFirstOfLast_FromTheZeroTime(t *testing.T) {
	now := date("2026-05-05T05:05:05Z")
	assert.Equal(t, date("2026-05-05T03:00:00Z"), firstOfLast(compile(t, schedule.Cron("0 3 * * *")), time.Time{}, now, 1))
	assert.Equal(t, date("2026-05-05T05:05:00Z"), firstOfLast(compile(t, schedule.Every(10*time.Second)), time.Time{}, now, 1))
}
