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
		case "reruns":
			for s.Begin('['); s.More(']'); {
				rec.Reruns = append(rec.Reruns, scanRun(s))
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

// decodePlan reads a plan. Its definitions are what takes package json longest.
func decodePlan(b []byte) (*planRecord, error) {
	s := jsonscan.New(b)
	rec := &planRecord{Owners: map[string]shards{}}
	for s.Begin('{'); s.More('}'); {
		switch string(s.Key()) {
		case "job":
			rec.Job = string(s.Text())
		case "paused":
			rec.Paused = s.Bool()
		case "epochs":
			for s.Begin('['); s.More(']'); {
				rec.Epochs = append(rec.Epochs, scanEpoch(s))
			}
		case "owners":
			for s.Begin('{'); s.More('}'); {
				inc := string(s.Key())
				rec.Owners[inc] = scanShards(s)
			}
		case "frozen":
			rec.Frozen = scanShards(s)
		case "disabled":
			rec.Disabled = scanShards(s)
		case "reruns":
			for s.Begin('['); s.More(']'); {
				rec.Reruns = append(rec.Reruns, scanRun(s))
			}
		case "triggers":
			for s.Begin('['); s.More(']'); {
				rec.Triggers = append(rec.Triggers, scanTrigger(s))
			}
		case "counts":
			rec.Counts = scanTallies(s)
		case "problem":
			rec.Problem = string(s.Text())
		case "resets":
			rec.Resets = s.Int()
		default:
			s.Raw()
		}
	}
	if !s.Done() {
		return decode[planRecord](b)
	}
	return rec, nil
}

func scanEpoch(s *jsonscan.Scanner) (e epoch) {
	for s.Begin('{'); s.More('}'); {
		switch string(s.Key()) {
		case "gen":
			e.Gen = s.Int()
		case "from":
			e.From = scanInstant(s)
		case "until":
			e.Until = scanInstant(s)
		case "definition":
			e.Def = scanDefinition(s)
		default:
			s.Raw()
		}
	}
	return e
}

func scanDefinition(s *jsonscan.Scanner) (d definition) {
	for s.Begin('{'); s.More('}'); {
		switch string(s.Key()) {
		case "revision":
			d.Revision = s.Int()
		case "shards":
			d.Shards = s.Int()
		case "schedule":
			d.Schedule = string(s.Text())
		case "on_crash":
			d.OnCrash = string(s.Text())
		case "on_misfire":
			d.OnMisfire = string(s.Text())
		case "max_attempts":
			d.MaxAttempts = s.Int()
		case "run_on":
			d.RunOn = map[string]string{}
			for s.Begin('{'); s.More('}'); {
				key := string(s.Key())
				d.RunOn[key] = string(s.Text())
			}
		case "tracking":
			d.Tracking = string(s.Text())
		default:
			s.Raw()
		}
	}
	return d
}

func scanTrigger(s *jsonscan.Scanner) (t trigger) {
	for s.Begin('{'); s.More('}'); {
		switch string(s.Key()) {
		case "number":
			t.Number = s.Uint()
		case "gen":
			t.Gen = s.Int()
		case "shards":
			set := scanShards(s)
			t.Shards = &set
		default:
			s.Raw()
		}
	}
	return t
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
		case "attempt":
			g.Attempt = s.Int()
		case "trigger":
			g.Trigger = s.Uint()
		case "trigger_attempt":
			g.TriggerAttempt = s.Int()
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
		case "handed_back":
			g.HandedBack = s.Int()
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
		case "unknown":
			t.Unknown = s.Int()
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
