package judge

import (
	"github.com/rota-dev/rota/internal/jsonscan"
)

// decodeClaims reads a claims record. There are too many for package json.
func decodeClaims(b []byte) (*claimsRecord, error) {
	s := jsonscan.New(b)
	rec := &claimsRecord{}
	for s.Begin('{'); s.More('}'); {
		switch string(s.Key()) {
		case "job":
			rec.Job = string(s.Text())
		case "marks":
			for s.Begin('['); s.More(']'); {
				rec.Marks = append(rec.Marks, scanMark(s))
			}
		case "running":
			for s.Begin('['); s.More(']'); {
				rec.Running = append(rec.Running, scanRun(s))
			}
		case "counts":
			rec.Counts = scanTallies(s)
		default:
			s.Raw()
		}
	}
	if !s.Done() {
		return decode[claimsRecord](b)
	}
	return rec, nil
}

func scanMark(s *jsonscan.Scanner) (g markGroup) {
	for s.Begin('{'); s.More('}'); {
		switch string(s.Key()) {
		case "shards":
			g.Shards = scanShards(s)
		case "gen":
			g.Gen = s.Int()
		case "fire":
			g.Fire = scanInstant(s)
		case "trigger":
			g.Trigger = s.Uint()
		default:
			s.Raw()
		}
	}
	return g
}

func scanRun(s *jsonscan.Scanner) (g runGroup) {
	for s.Begin('{'); s.More('}'); {
		switch string(s.Key()) {
		case "shards":
			g.Shards = scanShards(s)
		case "gen":
			g.Gen = s.Int()
		case "fire":
			g.Fire = scanInstant(s)
		case "trigger":
			g.Trigger = s.Uint()
		case "attempt":
			g.Attempt = s.Int()
		case "missed":
			g.Missed = s.Bool()
		default:
			s.Raw()
		}
	}
	return g
}

func scanTallies(s *jsonscan.Scanner) (t tallies) {
	for s.Begin('{'); s.More('}'); {
		switch string(s.Key()) {
		case "claimed":
			t.Claimed = s.Int()
		case "succeeded":
			t.Succeeded = s.Int()
		case "failed":
			t.Failed = s.Int()
		case "skipped":
			t.Skipped = s.Int()
		case "lost":
			t.Lost = s.Int()
		default:
			s.Raw()
		}
	}
	return t
}

func scanInstant(s *jsonscan.Scanner) (i instant) {
	if err := i.UnmarshalJSON(s.Raw()); err != nil {
		s.Reject()
	}
	return i
}

func scanShards(s *jsonscan.Scanner) (set shards) {
	if err := set.UnmarshalText(s.Text()); err != nil {
		s.Reject()
	}
	return set
}
