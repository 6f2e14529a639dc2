package pools

import (
	"time"

	"github.com/rota-dev/rota/internal/record"
)

const (
	// Turn is how long an incarnation may use slots that it is asked to return. Short runs that follow each other share the cost of a deal.
	Turn = time.Second
	// DealInterval is the least time between two versions of the record of a pool.
	DealInterval = time.Second
	// AnnounceInterval is the least time between two demands of an incarnation.
	AnnounceInterval = 200 * time.Millisecond
)

// Share is the state of a pool in an incarnation. Times are of one process, and are never compared with those of others.
type Share struct {
	Grant     record.Grant // as observed last; zero: none
	Contended bool
	TurnEnds  time.Time         // when Turn has passed since the grant was raised
	Announced record.PoolDemand // as sent last, also if the outcome is unknown

	Running int // runs that have been claimed, or are being claimed, and whose function has not returned
	Waiting int // due runs that wait for a slot
}

// Observe applies a version of the pool's record. A record that is missing or cannot be read grants nothing.
func (s *Share) Observe(slots *record.Slots, incarnation string, now time.Time) {
	var g record.Grant
	s.Contended = false
	if slots != nil {
		g, s.Contended = slots.Grants[incarnation], slots.Contended
	}
	if g.Deal != s.Grant.Deal {
		s.TurnEnds = now.Add(Turn)
	}
	s.Grant = g
}

// Limit returns how many runs of the pool the incarnation may run at once.
func (s *Share) Limit() int {
	if s.Grant.Deal == 0 {
		return 0
	}
	held, _ := Held(s.Grant, s.Announced)
	return held
}

// isAsked reports whether the incarnation is asked to return slots.
func (s *Share) isAsked() bool { return s.Grant.Keep < s.Limit() }

// Free returns how many more runs may begin.
func (s *Share) Free(now time.Time) int {
	usable := s.Limit()
	if s.isAsked() && !now.Before(s.TurnEnds) {
		usable = s.Grant.Keep
	}
	return max(usable-s.Running, 0)
}

// Next returns what to announce, and when that may change without other news, zero if it will not.
func (s *Share) Next(now time.Time) (next record.PoolDemand, recheck time.Time) {
	need := min(s.Running+s.Waiting, record.MaxPoolSize)
	if s.Grant.Deal == 0 {
		return s.nextWithoutGrant(need), time.Time{}
	}
	limit := s.Limit()
	next = record.PoolDemand{Want: s.Announced.Want, Cap: limit, Deal: s.Grant.Deal}
	if s.Contended || s.isAsked() { // slots that nothing here needs
		next.Cap = min(limit, need)
		if !s.Contended {
			next.Cap = max(next.Cap, s.Grant.Keep)
		}
	}
	if s.isAsked() {
		if now.Before(s.TurnEnds) {
			recheck = s.TurnEnds
		} else {
			next.Cap = min(next.Cap, max(s.Grant.Keep, s.Running))
		}
	}
	next.Cap = max(next.Cap, min(s.Running, limit))
	returns := next.Cap < limit
	rises := need > limit && s.rises(need, limit)
	satisfied := next.Want > limit && need <= limit
	if !returns && !rises && !satisfied {
		return s.Announced, recheck
	}
	next.Want = need
	return next, recheck
}

// rises reports whether to announce a demand that has grown. While the incarnation waits already, only a multiple matters.
func (s *Share) rises(need, limit int) bool {
	return need > s.Announced.Want && (s.Announced.Want <= limit || need >= 2*s.Announced.Want)
}

// nextWithoutGrant is Next of an incarnation that has no grant. If it has lost one, it announces what still runs.
func (s *Share) nextWithoutGrant(need int) record.PoolDemand {
	next := s.Announced
	if next.Cap != s.Running || next.Cap > 0 && next.Deal > 0 {
		next.Cap, next.Deal = s.Running, 0
	}
	if need == 0 || s.rises(need, 0) {
		next.Want = need
	}
	return next
}
