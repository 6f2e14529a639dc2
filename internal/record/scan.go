package record

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/rota-dev/rota/internal/jsonscan"
	"github.com/rota-dev/rota/internal/shardset"
)

// scanned is a record that reads itself, if it is written as this version writes it. What
// is odd, or a field too many, is left to package json.
type scanned interface{ scan(s *jsonscan.Scanner) }

// scan reads v from b, or says that package json is to do that.
func scan(b []byte, v scanned) bool {
	s := jsonscan.New(b)
	v.scan(s)
	return s.Done()
}

func (p *Plan) scan(s *jsonscan.Scanner) {
	for s.Begin('{'); s.More('}'); {
		switch string(s.Key()) {
		case "format":
			p.Format = s.Int()
		case "job":
			p.Job = string(s.Text())
		case "paused":
			p.Paused = s.Bool()
		case "schedule_stopped":
			p.Stopped = s.Bool()
		case "epochs":
			p.Epochs = scanSlice(s, p.Epochs, scanEpoch)
		case "owners":
			p.Owners = map[string]shardset.Set{}
			for s.Begin('{'); s.More('}'); {
				inc := string(s.Key())
				p.Owners[inc] = scanShards(s)
			}
		case "frozen":
			p.Frozen = scanShards(s)
		case "disabled":
			p.Disabled = scanShards(s)
		case "marks":
			p.Marks = scanSlice(s, p.Marks, scanMark)
		case "reruns":
			p.Reruns = scanSlice(s, p.Reruns, scanRun)
		case "triggers":
			p.Triggers = scanSlice(s, p.Triggers, scanTrigger)
		case "counts":
			p.Counts = scanCounts(s)
		case "problem":
			p.Problem = string(s.Text())
		case "resets":
			p.Resets = s.Uint()
		case "unoffered":
			p.Unoffered = scanInstant(s)
		case "ended":
			p.Ended = scanInstant(s)
		case "failures":
			p.Failures = scanSlice(s, p.Failures, scanFailure)
		case "decisions":
			p.Decisions = scanSlice(s, p.Decisions, scanDecision)
		default:
			s.Reject()
		}
	}
}

func (c *Claims) scan(s *jsonscan.Scanner) {
	for s.Begin('{'); s.More('}'); {
		switch string(s.Key()) {
		case "job":
			c.Job = string(s.Text())
		case "marks":
			c.Marks = scanSlice(s, c.Marks, scanMark)
		case "running":
			c.Running = scanSlice(s, c.Running, scanRun)
		case "reruns":
			c.Reruns = scanSlice(s, c.Reruns, scanRun)
		case "counts":
			c.Counts = scanCounts(s)
		case "ended":
			c.Ended = scanInstant(s)
		case "failures":
			c.Failures = scanSlice(s, c.Failures, scanFailure)
		default:
			s.Reject()
		}
	}
}

// scan reads a Job from a definition, most of which belongs to whoever runs the job.
func (j *Job) scan(s *jsonscan.Scanner) {
	for s.Begin('{'); s.More('}'); {
		switch key := s.Key(); string(key) {
		case "name":
			j.Name = string(s.Text())
		case "revision":
			j.Revision = s.Int()
		case "shards":
			j.Shards = s.Int()
		case "strategy":
			j.Strategy = string(s.Text())
		case "on_crash":
			j.OnCrash = string(s.Text())
		case "max_attempts":
			j.MaxAttempts = s.Int()
		case "tracking":
			j.Tracking = string(s.Text())
		case "start_paused":
			j.StartPaused = s.Bool()
		case "run_on":
			j.RunOn = scanLabels(s, j.RunOn)
		default:
			if !lower(key) {
				s.Reject() // package json may take it for one of the above
			}
			s.Raw()
		}
	}
}

func scanLabels(s *jsonscan.Scanner, again map[string]string) map[string]string {
	if again != nil {
		s.Reject() // the same field twice
	}
	labels := map[string]string{}
	for s.Begin('{'); s.More('}'); {
		key := string(s.Key())
		labels[key] = string(s.Text())
	}
	return labels
}

func lower(name []byte) bool {
	for _, c := range name {
		if c != '_' && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

func scanSlice[S ~[]E, E any](s *jsonscan.Scanner, again S, scan func(*jsonscan.Scanner) E) S {
	if again != nil {
		s.Reject() // the same field twice
	}
	all := S{}
	for s.Begin('['); s.More(']'); {
		all = append(all, scan(s))
	}
	return all
}

func scanEpoch(s *jsonscan.Scanner) (e Epoch) {
	for s.Begin('{'); s.More('}'); {
		switch string(s.Key()) {
		case "gen":
			e.Gen = s.Int()
		case "from":
			e.From = scanInstant(s)
		case "until":
			e.Until = scanInstant(s)
		case "definition":
			e.Def = json.RawMessage(bytes.Clone(s.Raw()))
		default:
			s.Reject()
		}
	}
	return e
}

func scanTrigger(s *jsonscan.Scanner) (t Trigger) {
	for s.Begin('{'); s.More('}'); {
		switch string(s.Key()) {
		case "number":
			t.Number = s.Uint()
		case "at":
			t.At = scanInstant(s)
		case "gen":
			t.Gen = s.Int()
		case "param":
			t.Param = string(s.Text())
		case "shards":
			shards := scanShards(s)
			t.Shards = &shards
		default:
			s.Reject()
		}
	}
	return t
}

func scanMark(s *jsonscan.Scanner) (g MarkGroup) {
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
			s.Reject()
		}
	}
	return g
}

func scanRun(s *jsonscan.Scanner) (g RunGroup) {
	for s.Begin('{'); s.More('}'); {
		g.scan(s, string(s.Key()))
	}
	return g
}

// scan reads one of the fields.
func (g *RunGroup) scan(s *jsonscan.Scanner, key string) {
	switch key {
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
		s.Reject()
	}
}

func scanCounts(s *jsonscan.Scanner) (c Counts) {
	for s.Begin('{'); s.More('}'); {
		switch string(s.Key()) {
		case "claimed":
			c.Claimed = s.Uint()
		case "succeeded":
			c.Succeeded = s.Uint()
		case "failed":
			c.Failed = s.Uint()
		case "skipped":
			c.Skipped = s.Uint()
		case "lost":
			c.Lost = s.Uint()
		case "unknown":
			c.Unknown = s.Uint()
		default:
			s.Reject()
		}
	}
	return c
}

func scanFailure(s *jsonscan.Scanner) (f Failure) {
	for s.Begin('{'); s.More('}'); {
		switch key := string(s.Key()); key {
		case "more":
			f.More = s.Int()
		case "at":
			f.At = scanInstant(s)
		case "error":
			f.Error = string(s.Text())
		default:
			f.RunGroup.scan(s, key)
		}
	}
	return f
}

func scanDecision(s *jsonscan.Scanner) (d Decision) {
	for s.Begin('{'); s.More('}'); {
		switch string(s.Key()) {
		case "at":
			d.At = scanInstant(s)
		case "term":
			d.Term = s.Uint()
		case "by":
			d.By = string(s.Text())
		case "what":
			d.What = string(s.Text())
		case "again":
			d.Again = s.Int()
		default:
			s.Reject()
		}
	}
	return d
}

func scanInstant(s *jsonscan.Scanner) Instant {
	if s.Null() {
		return 0
	}
	var t time.Time
	if err := t.UnmarshalText(s.Text()); err != nil {
		s.Reject() // package json has words for it
		return 0
	}
	if !inRange(t) {
		s.Reject()
		return 0
	}
	return InstantOf(t)
}

func scanShards(s *jsonscan.Scanner) (shards shardset.Set) {
	if err := shards.UnmarshalText(s.Text()); err != nil {
		s.Reject()
	}
	return shards
}
