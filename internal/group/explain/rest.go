package explain

import (
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
)

// isDeleted reports whether operators have deleted the creation of a defined job that the other records are of.
func (r *Records) isDeleted() bool {
	switch d := r.Defined; {
	case d == nil || r.Rests:
		return false
	case d.IsDeleted():
		return true
	default:
		return r.Stored.Kind != "" && r.Stored.Created != d.Created
	}
}

// deletionText returns when and by whom the job was deleted, as far as that is on record: the next creation replaces it.
func (r *Records) deletionText() string {
	if !r.Defined.IsDeleted() {
		return ", and defined again"
	}
	return sinceText(&r.Defined.By)
}

// checkRest explains a fire of a defined job that rests.
func (s *subject) checkRest() result {
	d := s.Defined
	if r := d.Rest; r != nil && s.fire != 0 && s.fire < r.From {
		return s.explainBeforeRest(r)
	}
	switch {
	case s.fire != 0 && s.fire < d.At:
		return stop("", "the job exists since %s, which is later; earlier fires are not due", seconds(d.At))
	case s.Control != nil && s.Control.KeepsAwake():
		return s.stopForLeader("wait for the leader", "the job rests, and the leader has not woken it yet for what operators want of it")
	case d.Next == 0 && s.Stored.OnTrigger:
		return stop("", "the job rests, and runs by triggers only")
	case d.Next == 0 && d.DeleteAt() != 0:
		return stop("", "the job rests, and has no further fire; it is to be deleted at %s", seconds(d.DeleteAt()))
	case d.Next == 0:
		return stop("", "the job rests, and has no further fire")
	}
	wakes, which := d.Next.Add(-planning.WakeAhead), fmt.Sprintf("for the fire of %v", d.Next)
	if s.fire != 0 && s.fire != d.Next {
		which = fmt.Sprintf("for its next fire, that of %v", d.Next)
	}
	if wakes <= s.Now {
		return s.stopForLeader("wait for the leader", "the job rests, and the leader has not woken it yet %s, as of %s", which, seconds(wakes))
	}
	return stop("", "the job rests, and wakes at %s, in %v, %s", seconds(wakes), time.Duration(wakes-s.Now).Round(time.Second), which)
}

// explainBeforeRest explains a fire that was settled before the job was put to rest. Its records are gone but for the latest failures.
func (s *subject) explainBeforeRest(r *record.Rest) result {
	for i := len(r.Failures) - 1; i >= 0; i-- {
		if f := &r.Failures[i]; f.Fire == s.fire && f.Trigger == 0 && !f.Again && f.Shards.Has(s.shard) {
			return stop("", "attempt %d failed at %s: %s", f.Attempt, seconds(f.At), f.Error).with(Retry)
		}
	}
	return unclear("the job rests; its fires before %v have been claimed or skipped", r.From).lookUp()
}
