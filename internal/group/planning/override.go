package planning

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/rota-dev/rota/internal/record"
)

// withOverrides returns the view with the effective definitions: the stored ones, with the fields that operators have
// replaced. It also returns why overrides do not apply, by segment; these jobs keep their stored definitions.
func (v *View) withOverrides() (*View, map[string]error) {
	out, invalid := v, map[string]error{}
	for seg, c := range v.Control {
		job, ok := v.Jobs[seg]
		if !ok || len(c.Override) == 0 {
			continue
		}
		merged, err := v.overrideJob(job, c.Override)
		if err != nil {
			invalid[seg] = err
			continue
		}
		if out == v {
			changed := *v
			changed.Jobs = maps.Clone(v.Jobs)
			out = &changed
		}
		out.Jobs[seg] = merged
	}
	return out, invalid
}

// overrideProblem returns the problem of a job whose override does not apply.
func overrideProblem(err error) string {
	return fmt.Sprintf("the override does not apply: %.300s", err)
}

// overrideJob returns a stored definition with the fields of an override. A leader that does not support the
// definition itself cannot check the override; other instances may support both.
func (v *View) overrideJob(job JobRecord, override json.RawMessage) (JobRecord, error) {
	def, err := record.MergeDefinition(job.Def, override)
	if err != nil {
		return JobRecord{}, err
	}
	merged, err := record.ParseJob(def)
	if err != nil {
		return JobRecord{}, err
	}
	if _, err := v.Compile(def); err != nil {
		if _, unsupported := v.Compile(job.Def); unsupported == nil {
			return JobRecord{}, err
		}
	}
	return JobRecord{Rev: job.Rev, Def: def, Job: merged, Stored: job.Def}, nil
}

// storedDefinition returns the stored definition that an epoch with definition def is an override of, nil if it is the
// stored one itself.
func (p *jobPlanner) storedDefinition(def json.RawMessage) json.RawMessage {
	if job := p.Jobs[p.segment]; bytes.Equal(job.Def, def) {
		return job.Stored
	}
	if last := p.next.Last(); bytes.Equal(last.Def, def) {
		return last.Stored // the stored definition has been deleted meanwhile
	}
	return nil
}
