package coordinator

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/record"
)

// There is no clock that all members can read. But nothing is heard before it was said: who
// hears of a reading that its own clock has not come to is behind the one that was read, at
// least by the difference. So the leader tells a reading of its clock in the record that all
// members watch, and a member whose own differs answers with one of its clock, in the record
// that the leader watches. Of two clocks that differ, one side can always show it. A message
// that is late hides a difference, and never makes one up.

// clockNotice is what a leader says of clocks.
type clockNotice struct {
	at  record.Instant             // the reading that it tells; zero: none
	off map[string]record.Duration // whose are off, by incarnation, and how far ahead
}

// names reports whether a notice names the same as off does. By how much they are off
// differs a little each time, and is not worth a commit.
func (n clockNotice) names(off map[string]record.Duration) bool {
	return maps.EqualFunc(n.off, off, func(record.Duration, record.Duration) bool { return true })
}

// comparing is a leader's comparison of clocks with a reading of its own: that it told last,
// or took when the term began.
type comparing struct {
	reading record.Instant
	told    time.Time                  // when that was, by time that nobody sets
	since   uint64                     // the commit that told it
	ahead   map[string]record.Duration // of those who have shown something since: how far at least they are ahead of it
	telling bool                       // a reading is to be told
	judging time.Time                  // when all have had the time to answer; zero: they have
	doubted time.Time                  // since when one that is not judged yet is known to be too far ahead; zero: none is
	differ  bool                       // of two clocks, which is said once
}

// newComparing begins a comparison that nobody has been told of.
func newComparing(now, clock time.Time, term uint64) comparing {
	return comparing{reading: record.InstantOf(clock), told: now, since: term, ahead: map[string]record.Duration{}, telling: true}
}

// hear takes in what the record of member inc, written by commit seq, says of its clock, at a
// time when the leader's says clock. mine: it is the leader's own, which may only have been
// set; off: the member's is known to be off.
func (c *comparing) hear(inc string, m record.Member, seq uint64, now, clock time.Time, limit time.Duration, mine, off bool) {
	if m.Clock == 0 {
		return
	}
	// What the clock would say by now if nobody had set it; after a machine has slept it says more.
	unset := c.reading.Time().Add(now.Sub(c.told))
	late := unset.Sub(m.Clock.Time())
	if mine {
		c.telling = c.telling || seq > c.since && late.Abs() > limit/2
		return
	}
	if clock.After(unset) {
		late = clock.Sub(m.Clock.Time())
	}
	if m.Answers == 0 {
		delete(c.ahead, inc) // it has been set, or has nothing to say
		c.telling = c.telling || seq > c.since && (off || late > limit/2)
	}
	answer := m.Answers == c.reading
	ahead, shown := c.ahead[inc]
	switch behind := record.Duration(c.reading - m.Clock); {
	case late < 0:
		if c.ahead[inc] = max(ahead, record.Duration(-late)); !off && -late > limit && c.doubted.IsZero() {
			c.doubted = now
		}
	case answer && behind > 0:
		c.ahead[inc] = min(ahead, -behind) // it goes on: what a later record shows is less
	case answer && !shown:
		c.ahead[inc] = 0
	}
}

// clocksDrift is how long clocks that have been found to agree, and have not been set, may go
// their ways until they are compared again. In that time one that nobody sets loses some
// seconds.
const clocksDrift = 6 * time.Hour

// compareAgain is for the slow tick.
func (l *leader) compareAgain() {
	l.telling = l.telling || l.m.clocks && (len(l.view.off) > 0 || time.Since(l.told) > clocksDrift)
}

// hear takes in what is new of a member's clock.
func (l *leader) hear(n news[record.Member]) {
	if !l.m.clocks || n.gone || n.broken {
		return
	}
	_, off := l.view.off[n.name]
	l.comparing.hear(n.name, n.value, n.rev.Seq, time.Now(), l.m.clock(), l.m.skew, n.name == l.me, off)
}

// answering is how long members are given to answer a reading: the first to answer a leader
// whose clock is wrong must not be taken for the only one that differs.
const answering = time.Second

// doubtful reports that shards should not be dealt before clocks are judged: who was dealt
// some with a clock that is ahead would claim fires before their time. That lasts for so long
// only, as others wait as well.
func (c *comparing) doubtful(now time.Time) bool {
	return !c.doubted.IsZero() && now.Sub(c.doubted) < 2*answering
}

// judgeClocks finds out whose clocks are off, unless answers may be on their way.
func (l *leader) judgeClocks() {
	if !l.m.clocks || l.telling || time.Now().Before(l.judging) {
		return
	}
	l.judging, l.doubted = time.Time{}, time.Time{}
	ahead := map[string]record.Duration{}
	for inc, m := range l.view.members {
		if !l.view.alive(inc) || m.Clock == 0 {
			continue // it tells nothing of its clock: an instance that does not look, say
		}
		d, shown := l.ahead[inc]
		if was, off := l.view.off[inc]; off && !shown && inc != l.me {
			d = was // until it has shown something else
		}
		ahead[inc] = d
	}
	l.view.off = tooFar(ahead, l.view.off, l.m.skew)
	l.sayIfTwoDiffer(ahead)
}

// tooFar returns whose clocks are further than limit from the median of all, and how far
// ahead of it they are. The median is a clock of the fleet, so there is always one that is
// right; of two in the middle it is the one behind, as late does less harm than early. Of
// two clocks nobody can tell which is wrong, unless one of them has been found to be off.
func tooFar(ahead, before map[string]record.Duration, limit time.Duration) map[string]record.Duration {
	known := map[string]record.Duration{}
	for inc, d := range ahead {
		if _, off := before[inc]; !off {
			known[inc] = d
		}
	}
	if len(ahead) > 2 {
		known = ahead
	} else if len(ahead) == len(known) || len(known) == 0 {
		return nil
	}
	sorted := slices.Sorted(maps.Values(known))
	median := sorted[(len(sorted)-1)/2]
	off := map[string]record.Duration{}
	for inc, d := range ahead {
		if d -= median; time.Duration(d).Abs() > limit {
			off[inc] = d
		}
	}
	return off
}

func (l *leader) sayIfTwoDiffer(ahead map[string]record.Duration) {
	differ := time.Duration(0)
	if len(ahead) == 2 && len(l.view.off) == 0 {
		for _, d := range ahead {
			differ = max(differ, time.Duration(d).Abs())
		}
	}
	if far := differ > l.m.skew; far != l.differ {
		if l.differ = far; far {
			l.log.Warn("the clocks of two instances differ, and nobody can tell which is wrong", "by", differ, "limit", l.m.skew)
		}
	}
}

// announce tells who should act when the office falls vacant, whose clocks are off, and if
// clocks are to be compared a reading of this one. That is said again while answers may be on
// their way, as who hears late hears only what was said last.
func (l *leader) announce(ctx context.Context) error {
	l.do("the naming", "successors")
	told, n := time.Now(), clockNotice{off: l.view.off} // before the clock is read: what lies between hides
	switch {
	case l.telling:
		n.at = record.InstantOf(l.m.clock())
	case told.Before(l.judging):
		n.at = l.reading
	}
	if err := l.office.announce(ctx, l.successors(), n, l.telling); err != nil {
		return err
	}
	if l.telling {
		l.comparing = comparing{
			reading: n.at, told: told, since: l.office.newest(), ahead: map[string]record.Duration{},
			judging: time.Now().Add(answering), doubted: l.doubted, differ: l.differ,
		}
		l.compareWithStore(ctx, n.at.Time(), l.m.clock())
	}
	return nil
}

// newest returns the commit that said last who is in office.
func (o *officeLoop) newest() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.office.presentRev.Seq
}

// noticed returns what a leader has last said of clocks.
func (o *officeLoop) noticed() clockNotice {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.office.clocks
}

// clockOff reports whether a leader has found this clock to be off.
func (o *officeLoop) clockOff() bool {
	_, off := o.noticed().off[o.in.id]
	return off
}

// hear takes in what a leader has said of clocks by commit seq. o.mu is held.
func (o *officeLoop) hear(seq uint64) {
	n := o.office.clocks
	d, off := n.off[o.in.id]
	if off != o.saidOff {
		o.saidOff = off
		o.in.ledger.setClockOff(off)
		if off {
			o.log.Warn("this clock is off, claiming nothing", "ahead", time.Duration(d), "limit", o.m.skew)
		} else {
			o.log.Info("this clock is right again")
		}
	}
	if n.at == 0 || !o.m.clocks || seq < o.in.joined {
		return // a leader compares who joins after it has told a reading
	}
	if off || o.m.clock().Sub(n.at.Time()).Abs() > o.m.skew/2 {
		o.m.answer(o.in, n.at)
	}
}

// answer has the leader know what this clock says now that the leader's reading is known.
func (m *Member) answer(in *incarnation, reading record.Instant) {
	m.mu.Lock()
	known := in.answers == reading
	m.mu.Unlock()
	if !known {
		m.change(func() { in.answers = reading })
	}
}

// clockJumped tells what the clock says now that it has been set: no answer tells that.
func (m *Member) clockJumped(in *incarnation) {
	m.log.Info("this clock has jumped")
	m.change(func() { in.answers = 0 })
}

// jumps finds out that a clock was set, by how it goes against time that nobody sets.
type jumps struct {
	limit         time.Duration // 0: it does not look
	before, after time.Time     // between which the clock was read last
	clock         time.Time     // what it said
}

// since reports whether the clock, which was read between two instants, has been set by more
// than the limit. A process that was stopped while it read the clock has set nothing.
func (j *jumps) since(before, clock, after time.Time) bool {
	if j.limit == 0 {
		return false
	}
	clock = clock.Round(0)
	first, went := j.clock.IsZero(), clock.Sub(j.clock)
	jumped := !first && (went > after.Sub(j.before)+j.limit || went < before.Sub(j.after)-j.limit)
	if jumped || first {
		j.before, j.clock, j.after = before, clock, after
	}
	return jumped
}

// jumpJudged is how long the fleet is given to judge a clock that has jumped.
const jumpJudged = 2 * time.Second

// takeClock takes in whether the clock has jumped. If it has, nothing is claimed until the
// fleet has had the time to judge it; what else it does meanwhile is looked at afterwards.
func (l *ledger) takeClock(before, clock, after time.Time) {
	if !after.Before(l.unsure) && l.jumps.since(before, clock, after) {
		l.unsure = after.Add(jumpJudged)
		l.jumped()
	}
}

// setClockOff says whether the clock is off.
func (l *ledger) setClockOff(off bool) {
	l.inbox.mu.Lock()
	defer l.inbox.mu.Unlock()
	l.inbox.clockOff = off
	l.wakeUp()
}
