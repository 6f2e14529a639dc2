package claiming

import (
	"time"

	"github.com/rota-dev/rota/internal/record"
)

// A wrong clock can leave watermarks, or the begin of an epoch, ahead of all clocks. When the clock is
// right again, the shards concerned wait for that time. This is reported and not repaired, since it is
// unknown which of the fires until then were run: the owner logs it and publishes it in its member
// record, and the leader copies it into the plan's problem.

// DefaultSkew is the difference between clocks that members allow for by default.
const DefaultSkew = 5 * time.Second

// maxLead is how far ahead of a clock, in allowed skews, an instant can be that a clock within the
// limit has written: both clocks may be one skew from the median, on either side, and a new definition
// begins one skew later.
const maxLead = 3

// findAhead returns the latest instant that owned shards wait for and that no clock within the limit
// can have written. It considers the epoch in force only; an earlier one has an end.
func (in *Input) findAhead() record.Ahead {
	mine, last := in.Plan.Owners[in.Me], in.Plan.Last()
	switch {
	case in.AllowedSkew == 0 || last.Until != 0 || mine.IsZero():
		return record.Ahead{}
	case !in.MayClaim && in.ReportedAhead.Epoch == last.Number:
		return in.ReportedAhead // the local clock may be in doubt, so the report stays
	case !in.MayClaim:
		return record.Ahead{}
	}
	limit := in.Now.Add(in.maxLead())
	at := max(limit, last.From)
	for _, watermarks := range []record.Watermarks{in.Plan.Watermarks, in.Claims.Watermarks} {
		for _, w := range watermarks {
			if w.Epoch == last.Number && w.Fire > at && !w.Shards.Intersect(mine).IsZero() {
				at = w.Fire
			}
		}
	}
	if at == limit {
		return record.Ahead{}
	}
	return record.Ahead{Epoch: last.Number, At: at}
}

func (in *Input) maxLead() time.Duration { return maxLead * in.AllowedSkew }
