package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/record"
)

// Override replaces fields of a job's definition without a deployment. Fields that are zero stay as the definition has
// them. It never replaces the handler, nor the name and the revision.
type Override struct {
	// Schedule is the text of a schedule, as schedule.Schedule.String returns it.
	Schedule string
	// Shards is the number of shards.
	Shards int
	// Param is the parameter of the job; a pointer, since it may be empty.
	Param *string
	// ShardParams are the parameters of shards. They replace all of the definition.
	ShardParams map[int]string
	// Policies are values of other fields, by their names in the stored definition: description, strategy, timeout,
	// on_crash, on_misfire, max_attempts, on_overlap, catchup_window, retry, tracking, run_on, pool. A value is whatever
	// encodes as the JSON of the field, such as {"timeout": "90s"}, or a time.Duration; nil leaves the field out, so that its default applies.
	Policies map[string]any
}

// policyFields are the names that Override.Policies may have.
var policyFields = []string{
	"catchup_window", "description", "max_attempts", "on_crash", "on_misfire", "on_overlap", "pool", "retry", "run_on", "strategy", "timeout", "tracking",
}

// OverridePreview is what an Override would change.
type OverridePreview struct {
	// ShardsBefore is the number of shards of the effective definition now, Shards that with the override.
	ShardsBefore int `json:"shards_before"`
	Shards       int `json:"shards"`
	// FiresBefore are the next fires of the effective definition, up to ten, and Fires those with the override.
	FiresBefore []time.Time `json:"fires_before"`
	Fires       []time.Time `json:"fires"`
}

// Override replaces fields of a job's definition, in place of any earlier Override. The zero value takes the
// override back. It survives new revisions of the definition, whose other fields apply. A changed effective
// definition comes into force like a new revision: fires that are due run by the earlier one.
//
// The override is stored beside the definition, with who called, when and why; Intent returns it. Override fails, and
// names the rule, if the effective definition would be invalid. It needs a compiler; see WithCompiler. If a later
// revision of the definition makes the override invalid, the stored definition applies as it is, and Status.Problem
// names the reason. Leaders of versions without Override ignore it.
//
// Executors compare definitions without overrides, so that a process with the same revision reports no difference.
func (o *Operator) Override(ctx context.Context, job string, ov Override) error {
	fields, err := ov.encode()
	if err == nil {
		err = o.changeControl(ctx, job, func(c *record.Control, _ record.Job) (string, error) {
			if fields == nil && c.Override == nil {
				return "", ErrUnchanged
			}
			what := "take the override back"
			if c.Override, c.OverriddenBy = fields, nil; fields != nil {
				if _, _, err := o.applyOverride(ctx, job, fields); err != nil {
					return "", err
				}
				what = "override " + strings.Join(fieldNames(fields), ", ") // without values: parameters may be secret
				act := o.newAct(what)
				c.OverriddenBy = &act
			}
			return what, nil
		})
	}
	if err != nil {
		return fmt.Errorf("override %q: %w", job, err)
	}
	return nil
}

// PreviewOverride returns what an Override would change, and changes nothing. It fails as Override would.
func (o *Operator) PreviewOverride(ctx context.Context, job string, ov Override) (OverridePreview, error) {
	preview, err := o.previewOverride(ctx, job, ov)
	if err != nil {
		return OverridePreview{}, fmt.Errorf("preview the override of %q: %w", job, err)
	}
	return preview, nil
}

func (o *Operator) previewOverride(ctx context.Context, job string, ov Override) (out OverridePreview, err error) {
	fields, err := ov.encode()
	if err != nil {
		return out, err
	}
	after, afterProg, err := o.applyOverride(ctx, job, fields)
	if err != nil {
		return out, err
	}
	def, err := o.readDefinition(ctx, record.Segment(job))
	if err != nil {
		return out, err
	}
	c, err := o.readControl(ctx, &def)
	if err != nil {
		return out, err
	}
	before, beforeProg, err := o.applyOverride(ctx, job, c.Override)
	if err != nil { // it does not apply any more
		if before, beforeProg, err = o.applyOverride(ctx, job, nil); err != nil {
			return out, err
		}
	}
	now := time.Now()
	return OverridePreview{before.Shards, after.Shards, nextFires(beforeProg, now), nextFires(afterProg, now)}, nil
}

// previewFires is how many fires a preview lists.
const previewFires = 10

// nextFires returns the next fires of a program after an instant, as far as they are known.
func nextFires(prog due.Program, at time.Time) (fires []time.Time) {
	for len(fires) < previewFires && !due.CountsEnds(prog) {
		next := prog.Due(at, time.Time{}, at).Wake
		if !next.After(at) {
			break
		}
		fires, at = append(fires, next.UTC()), next
	}
	return fires
}

// applyOverride returns the effective definition of a job with an override, nil for none, and its program.
func (o *Operator) applyOverride(ctx context.Context, job string, fields json.RawMessage) (record.Job, due.Program, error) {
	if o.compile == nil {
		return record.Job{}, nil, ErrNoCompiler
	}
	stored, err := o.readDefinition(ctx, record.Segment(job))
	if err != nil {
		return record.Job{}, nil, err
	}
	def := stored.Def
	if len(fields) == 0 {
		return o.compileDefinition(def)
	}
	if def, err = record.MergeDefinition(def, fields); err != nil {
		return record.Job{}, nil, invalidArgument(err)
	}
	parsed, prog, err := o.compileDefinition(def)
	return parsed, prog, invalidArgument(err)
}

// compileDefinition returns the parts of a definition that are of this package, and its program.
func (o *Operator) compileDefinition(def json.RawMessage) (record.Job, due.Program, error) {
	parsed, err := record.ParseJob(def)
	if err != nil {
		return record.Job{}, nil, err
	}
	prog, err := o.compile(def)
	return parsed, prog, err
}

// fieldNames returns the names of the fields of an override, sorted.
func fieldNames(fields json.RawMessage) []string {
	var all map[string]json.RawMessage
	if json.Unmarshal(fields, &all) != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(all))
}

// encode returns the fields of ov by their names in a definition, nil if there are none. Its errors are ErrInvalidArgument.
func (ov *Override) encode() (json.RawMessage, error) {
	fields, err := ov.encodeFields()
	return fields, invalidArgument(err)
}

// Fields returns the fields that ov replaces with their values, by their names in the stored definition. The map is the caller's.
func (ov *Override) Fields() map[string]any {
	fields := map[string]any{}
	maps.Copy(fields, ov.Policies)
	if ov.Schedule != "" {
		fields["schedule"] = ov.Schedule
	}
	if ov.Shards != 0 {
		fields["shards"] = ov.Shards
	}
	if ov.Param != nil {
		fields["param"] = *ov.Param
	}
	if ov.ShardParams != nil {
		fields["shard_params"] = ov.ShardParams
	}
	return fields
}

func (ov *Override) encodeFields() (json.RawMessage, error) {
	for name := range ov.Policies {
		if !slices.Contains(policyFields, name) {
			return nil, fmt.Errorf("there is no policy %q; there are %s", name, strings.Join(policyFields, ", "))
		}
	}
	fields := ov.Fields()
	if len(fields) == 0 {
		return nil, nil
	}
	if err := ov.checkTexts(); err != nil {
		return nil, err
	}
	text, err := json.Marshal(textDurations(fields))
	if err == nil && len(text) > maxOverrideBytes {
		err = fmt.Errorf("it has %d bytes, at most %d", len(text), maxOverrideBytes)
	}
	return text, err
}

// checkTexts checks the texts that JSON would change if they are not UTF-8.
func (ov *Override) checkTexts() error {
	if ov.Param != nil {
		if err := record.CheckParam(*ov.Param); err != nil {
			return fmt.Errorf("the parameter %w", err)
		}
	}
	for _, shard := range slices.Sorted(maps.Keys(ov.ShardParams)) {
		if !utf8.ValidString(ov.ShardParams[shard]) {
			return fmt.Errorf("the parameter of shard %d is not UTF-8", shard)
		}
	}
	if !utf8.ValidString(ov.Schedule) {
		return errors.New("the schedule is not UTF-8")
	}
	return nil
}

// maxOverrideBytes bounds an override. A control record must fit into a value of the store, with all else that it holds.
const maxOverrideBytes = 40 << 10

// overrideOf returns the Override with these fields, zero if there are none.
func overrideOf(fields json.RawMessage) (ov Override) {
	known := struct {
		Schedule    *string        `json:"schedule"`
		Shards      int            `json:"shards"`
		Param       *string        `json:"param"`
		ShardParams map[int]string `json:"shard_params"`
	}{Schedule: &ov.Schedule}
	var all map[string]any
	if len(fields) == 0 || json.Unmarshal(fields, &known) != nil || json.Unmarshal(fields, &all) != nil {
		return Override{}
	}
	ov.Shards, ov.Param, ov.ShardParams = known.Shards, known.Param, known.ShardParams
	maps.DeleteFunc(all, func(name string, _ any) bool { return !slices.Contains(policyFields, name) })
	if len(all) > 0 {
		ov.Policies = all
	}
	return ov
}
