package jobsfile

import (
	"maps"
	"slices"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/jobname"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
)

// Defined is a job of a file that has a kind: rota define -f defines it as data.
type Defined struct {
	operator.Definition
	places map[string]Problem // by the fields of the definition that the file has; "" is the job
}

// Problem returns the problem that a field of the definition breaks a rule, at the key that has the field, or else at the job.
func (d *Defined) Problem(field, rule string) Problem {
	p, ok := d.places[field]
	if !ok {
		p = d.places[""]
		if field != "" && field != "name" {
			rule = field + ": " + rule
		}
	}
	p.Rule += inKeys(rule)
	return p
}

// isDefined reports whether the job is defined as data.
func (s *jobSpec) isDefined() bool {
	_, has := s.given["kind"]
	return has
}

// notOfDefined are the keys that a job with a kind does not have, with the rule.
var notOfDefined = map[string]string{
	"max_running": "does not apply to a job with kind: its kind has it",
	"log":         "does not apply to a job with kind: the history keeps what its runs print",
	"notify":      "does not apply to a job with kind: messages about it go to notify.default",
	"revision":    "does not apply to a job with kind: rota define counts its changes",
}

// refuseLocal reports the keys that a job with a kind does not have.
func (s *jobSpec) refuseLocal(r *reader) {
	for _, key := range slices.Sorted(maps.Keys(notOfDefined)) {
		if u, has := s.given[key]; has && !u.broken {
			r.reportAt(u.path, u.key, "%s", notOfDefined[key])
			u.broken, s.broken = true, true
			s.given[key] = u
		}
	}
}

// definedFields maps keys of a job to fields of the stored definition, where the names differ.
var definedFields = map[string]string{"misfire": "on_misfire", "overlap": "on_overlap"}

// addDefined adds the jobs that are defined as data. The rules that they share with other jobs have been checked.
func (b *builder) addDefined(specs []jobSpec) {
	for i := range specs {
		s := &specs[i]
		if !s.isDefined() {
			continue
		}
		if err := jobname.CheckNew(s.name); err != nil && jobname.Check(s.name) == nil {
			b.reportAt(s.path, s.at, "%v", err)
		}
		if u := s.given["kind"]; !u.broken {
			if err := record.CheckKindName(s.Kind); err != nil {
				b.reportAt(u.path, u.value, "%v", err)
			}
		}
		j := b.all[i]
		b.file.Defined = append(b.file.Defined, Defined{
			Definition: operator.Definition{
				Name: s.name, Kind: s.Kind, KindRevision: s.KindRevision, Schedule: j.Schedule, Shards: j.Shards, ShardParams: j.ShardParams,
				Param: s.Param, Description: s.Description, Policies: s.policies(), StartPaused: s.StartPaused, DeleteAfter: s.DeleteAfter,
			},
			places: s.places(),
		})
	}
}

// policies returns the policies that a job has. Others are those of its kind.
func (s *jobSpec) policies() map[string]any {
	all := map[string]any{}
	for key, value := range map[string]any{
		"timeout": s.Timeout, "on_crash": s.OnCrash, "misfire": s.Misfire, "overlap": s.Overlap, "catchup_window": s.CatchupWindow,
		"max_attempts": s.MaxAttempts, "run_on": s.RunOn, "strategy": s.Strategy, "tracking": s.Tracking, "pool": s.Pool,
	} {
		if _, has := s.given[key]; has {
			all[s.fieldOf(key)] = value
		}
	}
	if s.Overlap == executor.WaitForRun && all["on_overlap"] != nil {
		all["on_overlap"] = nil // which a stored definition leaves out
	}
	if s.Tracking == executor.TrackRuns && all["tracking"] != nil {
		all["tracking"] = nil
	}
	if _, has := s.given["retry"]; has {
		all["retry"] = retryPolicy(s.Retry)
	}
	return all
}

// retryPolicy returns a retry policy with the fields that the file has.
func retryPolicy(r executor.Retry) map[string]any {
	p := map[string]any{"max": r.Max}
	if r.Initial != 0 {
		p["initial"] = r.Initial
	}
	if r.MaxInterval != 0 {
		p["max_interval"] = r.MaxInterval
	}
	if r.Factor != 0 {
		p["factor"] = r.Factor
	}
	if r.Jitter != 0 {
		p["jitter"] = max(r.Jitter, 0)
	}
	return p
}

// fieldOf returns the field of the stored definition for a key of a job.
func (s *jobSpec) fieldOf(key string) string {
	if slices.Contains(scheduleKeys, key) {
		return "schedule"
	}
	if field := definedFields[key]; field != "" {
		return field
	}
	return key
}

// places returns where the fields of the definition are, each as a problem without a rule, or with its beginning.
func (s *jobSpec) places() map[string]Problem {
	all := map[string]Problem{"": {Line: s.at.Line, Column: s.at.Column, Key: s.path}}
	for _, key := range slices.Sorted(maps.Keys(s.given)) {
		u := s.given[key]
		p := Problem{Line: u.value.Line, Column: u.value.Column, Key: u.path}
		if !u.own {
			p.Rule = "with job " + s.name + ": "
		}
		all[s.fieldOf(key)] = p
		if key == "shards" {
			all["shard_params"] = p
		}
	}
	return all
}
