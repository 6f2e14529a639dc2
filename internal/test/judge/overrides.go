package judge

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
)

// sources are what a leader computes definitions in force from: it may combine any two, since it observes the one
// before the other.
type sources struct {
	stored    [][]byte          // definitions
	overrides []json.RawMessage // nil is none
	combined  []sourced
}

// sourced is a definition with an override.
type sourced struct {
	definition
	isOverridden bool
}

// addDefinition records a stored definition.
func (s *sources) addDefinition(def []byte) {
	s.stored = append(s.stored, def)
	for _, fields := range s.overrides {
		s.combine(def, fields)
	}
}

// addOverride records an override.
func (s *sources) addOverride(fields json.RawMessage) {
	if slices.ContainsFunc(s.overrides, func(known json.RawMessage) bool { return string(known) == string(fields) }) {
		return
	}
	s.overrides = append(s.overrides, fields)
	for _, def := range s.stored {
		s.combine(def, fields)
	}
}

func (s *sources) combine(stored []byte, override json.RawMessage) {
	if def, err := effective(stored, override); err == nil {
		s.combined = append(s.combined, sourced{*def, len(override) > 0})
	}
}

// contain reports whether a definition with an override is as f wants.
func (s *sources) contain(f func(def *definition) bool) bool {
	return slices.ContainsFunc(s.combined, func(d sourced) bool { return f(&d.definition) })
}

// effective returns a definition with the fields of an override.
func effective(stored []byte, override json.RawMessage) (*definition, error) {
	if len(override) == 0 {
		return decode[definition](stored)
	}
	merged, err := merge(stored, override)
	if err != nil {
		return nil, err
	}
	return decode[definition](merged)
}

// merge returns a record with the fields of an override in place of its own; a field that is null there is left out.
func merge(stored []byte, override json.RawMessage) ([]byte, error) {
	fields, err := decode[map[string]json.RawMessage](stored)
	if err != nil {
		return nil, err
	}
	var over map[string]json.RawMessage
	if err := json.Unmarshal(override, &over); err != nil {
		return nil, err
	}
	for name, value := range over {
		if string(value) == "null" {
			delete(*fields, name)
		} else {
			(*fields)[name] = value
		}
	}
	return json.Marshal(fields)
}

// judgeSource judges the definition of a new epoch.
func (o *Judge) judgeSource(j *jobState, e *epoch) {
	i := slices.IndexFunc(j.sources.combined, func(d sourced) bool { return reflect.DeepEqual(d.definition, e.Def) })
	if i < 0 {
		o.addJobViolation(13, j, "epoch %d has the definition %+v, which is not a stored one with an override", e.Number, e.Def)
	} else if j.sources.combined[i].isOverridden {
		o.report.Overridden++
	}
}

// judgeEffective judges, in a settled fleet, that the newest definition is in force, with the override of operators.
func (o *Judge) judgeEffective(j *jobState) {
	if j.stored == nil || j.plan.Paused {
		return
	}
	want, err := j.stored, error(nil)
	if len(j.control.Override) > 0 {
		want, err = merge(j.stored, j.control.Override)
	}
	if err == nil {
		err = j.compareInForce(want)
	}
	if err != nil {
		o.addJobViolation(13, j, "%v", err)
	}
}

// compareInForce compares the definition of the plan's last epoch with another one.
func (j *jobState) compareInForce(want []byte) error {
	p, err := decode[struct {
		Epochs []struct {
			Definition map[string]any `json:"definition"`
		} `json:"epochs"`
	}](j.inForce)
	if err != nil {
		return err
	}
	def, err := decode[map[string]any](want)
	if err != nil {
		return err
	}
	if last := p.Epochs[len(p.Epochs)-1].Definition; !reflect.DeepEqual(last, *def) {
		return fmt.Errorf("the definition in force is %v, but the stored one with the override is %v", last, *def)
	}
	return nil
}
