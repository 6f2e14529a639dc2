package claiming

import (
	"github.com/rota-dev/rota/coordinator/internal/skew"
	"github.com/rota-dev/rota/internal/record"
)

// ahead returns what owned shards wait for in the epoch in force that is further ahead of this
// clock than clocks within the limit can have put it.
func (in *Input) ahead() record.Ahead {
	mine, last := in.Plan.Owners[in.Me], in.Plan.Last()
	switch {
	case in.Skew == 0 || last.Until != 0 || mine.IsZero():
		return record.Ahead{}
	case !in.Open && in.ReportedAhead.Gen == last.Gen:
		return in.ReportedAhead // this clock may be in doubt: there is no new look
	case !in.Open:
		return record.Ahead{}
	}
	limit := in.Now.Add(skew.Reach * in.Skew)
	at := max(limit, last.From)
	for _, marks := range []record.Marks{in.Plan.Marks, in.Claims.Marks} {
		for _, g := range marks {
			if g.Gen == last.Gen && g.Fire > at && !g.Shards.Intersect(mine).IsZero() {
				at = g.Fire
			}
		}
	}
	if at == limit {
		return record.Ahead{}
	}
	return record.Ahead{Gen: last.Gen, At: at}
}
