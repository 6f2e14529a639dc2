package claiming

import (
	"github.com/rota-dev/rota/coordinator/internal/skew"
	"github.com/rota-dev/rota/internal/record"
)

// ahead returns what owned shards wait for in the epoch in force that is further ahead of this
// clock than clocks within the limit can have put it.
func (in *Input) findAhead() record.Ahead {
	mine, last := in.Plan.Owners[in.Me], in.Plan.Last()
	switch {
	case in.AllowedSkew == 0 || last.Until != 0 || mine.IsZero():
		return record.Ahead{}
	case !in.MayClaim && in.ReportedAhead.Epoch == last.Number:
		return in.ReportedAhead // this clock may be in doubt: there is no new look
	case !in.MayClaim:
		return record.Ahead{}
	}
	limit := in.Now.Add(skew.Reach * in.AllowedSkew)
	at := max(limit, last.From)
	for _, marks := range []record.Watermarks{in.Plan.Watermarks, in.Claims.Watermarks} {
		for _, g := range marks {
			if g.Epoch == last.Number && g.Fire > at && !g.Shards.Intersect(mine).IsZero() {
				at = g.Fire
			}
		}
	}
	if at == limit {
		return record.Ahead{}
	}
	return record.Ahead{Epoch: last.Number, At: at}
}
