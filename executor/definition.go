package executor

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/jobname"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/schedule"
)

// definition is the stored form of a Job, or of a job that is defined as data: all fields but Handler and MaxRunning, with
// defaults filled in, so that a version with other defaults interprets it equally.
//
// Its JSON is canonical: equal definitions with equal extra fields have equal bytes.
type definition struct {
	Name        string            `json:"name"`
	Description string            `json:"description,omitempty"`
	Schedule    schedule.Schedule `json:"schedule"`
	Shards      int               `json:"shards"`
	ShardParams map[int]string    `json:"shard_params,omitempty"`
	Param       string            `json:"param,omitempty"`
	Revision    int               `json:"revision"`
	Strategy    string            `json:"strategy"`
	Timeout     durationField     `json:"timeout,omitzero"`
	OnCrash     CrashPolicy       `json:"on_crash"`
	OnMisfire   MisfirePolicy     `json:"on_misfire"`
	MaxAttempts int               `json:"max_attempts"`
	OnOverlap   OverlapPolicy     `json:"on_overlap,omitzero"`

	CatchupWindow durationField `json:"catchup_window,omitzero"`

	Retry       retryField `json:"retry,omitzero"`
	Tracking    Tracking   `json:"tracking,omitzero"`
	StartPaused bool       `json:"start_paused,omitempty"`

	RunOn map[string]string `json:"run_on,omitempty"`
	Pool  string            `json:"pool,omitempty"`

	// Of a job that is defined as data. See record.Job.
	Kind         string `json:"kind,omitempty"`
	KindRevision int    `json:"kind_revision,omitempty"`
	Created      string `json:"created,omitempty"`

	extra record.Fields
}

// maxShardParamsBytes bounds the stored params of all shards together, the one field that grows
// with the shards. A plan contains definitions and must fit into a value of the registry.
const maxShardParamsBytes = 32 << 10

// definitionOf returns the definition of j. It shares nothing with j.
func definitionOf(j Job) definition {
	d := definition{
		Name:        j.Name,
		Description: j.Description,
		Schedule:    j.Schedule,
		Shards:      cmp.Or(j.Shards, defaultShards),
		ShardParams: maps.Clone(j.ShardParams),
		Param:       j.Param,
		Revision:    j.Revision,
		Strategy:    cmp.Or(j.Strategy, defaultStrategy),
		Timeout:     durationField(j.Timeout),
		OnCrash:     j.OnCrash,
		OnMisfire:   j.OnMisfire,
		MaxAttempts: cmp.Or(j.MaxAttempts, defaultMaxAttempts),
		Retry:       retryFieldOf(j.retry()),
		OnOverlap:   j.OnOverlap,
		Tracking:    j.Tracking,
		StartPaused: j.StartPaused,
		RunOn:       maps.Clone(j.RunOn),
		Pool:        j.Pool,

		CatchupWindow: durationField(j.CatchupWindow),
	}
	d.dropEmpty()
	return d
}

// dropEmpty sets empty maps to nil, which are not stored.
func (d *definition) dropEmpty() {
	if len(d.ShardParams) == 0 {
		d.ShardParams = nil
	}
	if len(d.RunOn) == 0 {
		d.RunOn = nil
	}
}

// decodeDefinition reads a stored definition and checks it. The error names every field
// that is wrong; it is an ErrNewerFormat if a field holds a value that a later version may support.
func decodeDefinition(data []byte) (definition, error) {
	var d definition
	if err := d.UnmarshalJSON(data); err != nil {
		return definition{}, fmt.Errorf("decode definition: %w", err)
	}
	return d, nil
}

// MarshalJSON returns the canonical form of d.
func (d definition) MarshalJSON() ([]byte, error) {
	type plain definition // without the methods, which would call this one
	return record.EncodeFields(plain(d), d.extra)
}

// UnmarshalJSON reads d and checks it.
func (d *definition) UnmarshalJSON(data []byte) error {
	type plain definition
	var p plain
	extra, err := record.DecodeFields(data, &p)
	switch {
	case errors.Is(err, schedule.ErrUnknownKind):
		return &unknownError{err.Error()}
	case err != nil:
		return err
	}
	*d = definition(p)
	d.dropEmpty()
	d.extra = extra
	var errs []error
	for _, p := range d.problems() {
		errs = append(errs, fmt.Errorf("%s: %w", storedName(p.field), p.err))
	}
	return errors.Join(errs...)
}

// storedName returns the name in the record of a field of definition.
func storedName(field string) string {
	f, _ := reflect.TypeFor[definition]().FieldByName(field)
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// equalKnown reports whether d and other are equal in all fields that this version knows.
func (d definition) equalKnown(other definition) bool {
	d.extra, other.extra = nil, nil
	return reflect.DeepEqual(d, other)
}

// problems returns the rules that d breaks, in the order of the fields.
func (d definition) problems() []problem {
	var all problems
	all.report("Name", jobname.Check(d.Name))
	all.report("Description", record.CheckText(d.Description, maxDescriptionBytes))
	_, err := d.Schedule.Timetable()
	all.report("Schedule", err)
	all.report("Shards", checkRange(d.Shards, 1, maxShards))
	for _, err := range d.checkShardParams() {
		all.report("ShardParams", err)
	}
	all.report("Param", record.CheckText(d.Param, maxParamBytes))
	all.report("Revision", checkRevision(d.Revision))
	all.report("Strategy", jobname.Check(d.Strategy))
	all.report("Timeout", checkNotNegative(time.Duration(d.Timeout)))
	all.report("OnCrash", d.OnCrash.check())
	all.report("OnMisfire", d.OnMisfire.check())
	all.report("CatchupWindow", checkNotNegative(time.Duration(d.CatchupWindow)))
	all.report("OnOverlap", d.OnOverlap.check())
	all.report("MaxAttempts", checkNotNegative(d.MaxAttempts))
	for _, err := range record.CheckLabels(d.RunOn, record.MaxRunOn) {
		all.report("RunOn", err)
	}
	if d.Pool != "" {
		all.report("Pool", record.CheckPool(d.Pool))
	}
	all.report("Retry", d.Retry.check())
	all.report("Tracking", d.Tracking.check())
	all = append(all, d.checkKind()...)
	all = append(all, d.checkEndCounter()...)
	if d.Tracking == TrackClaims && d.Retry != (retryField{}) {
		all.report("Retry", errors.New("needs TrackRuns: with TrackClaims, ends are not recorded"))
	}
	return all
}

// checkKind returns the rules that the fields of a defined job break. A registered job has none of them.
func (d definition) checkKind() []problem {
	var all problems
	if d.Kind == "" {
		for field, set := range map[string]bool{"KindRevision": d.KindRevision != 0, "Created": d.Created != ""} {
			if set {
				all.report(field, errors.New("is set, and kind is missing"))
			}
		}
		return all
	}
	all.report("Kind", record.CheckKindName(d.Kind))
	all.report("KindRevision", checkRevision(d.KindRevision))
	all.report("Created", record.CheckCreated(d.Created))
	return all
}

func (d definition) checkShardParams() []error {
	var errs []error
	var strangers []int
	for _, shard := range slices.Sorted(maps.Keys(d.ShardParams)) {
		if shard < 0 || shard >= d.Shards {
			strangers = append(strangers, shard)
		}
		if err := record.CheckText(d.ShardParams[shard], maxShardParamBytes); err != nil {
			errs = append(errs, fmt.Errorf("that of shard %d %w", shard, err))
		}
	}
	if n := len(strangers); n > 0 {
		errs = append(errs, fmt.Errorf("%d are of shards that do not exist: there are %d, counted from 0, and no %d",
			n, d.Shards, strangers[0]))
	}
	if n := record.EncodedLen(d.ShardParams); n > maxShardParamsBytes {
		errs = append(errs, fmt.Errorf("they take %d bytes together, at most %d", n, maxShardParamsBytes))
	}
	return errs
}

// maxDelayShards bounds the shards of jobs whose fires count from ends: each shard has its own
// watermark in the records.
const maxDelayShards = 1000

// checkEndCounter returns the rules that a definition breaks whose fires count from the ends of runs.
func (d definition) checkEndCounter() []problem {
	if !d.Schedule.CountsEnds() {
		return nil
	}
	var all []problem
	refuse := func(refused bool, field, rule string) {
		if refused {
			all = append(all, problem{field, fmt.Errorf("%s, with a schedule that counts from the ends of runs", rule)})
		}
	}
	refuse(d.Tracking != TrackRuns, "Tracking", "must be TrackRuns")
	refuse(d.Shards > maxDelayShards, "Shards", fmt.Sprintf("must be at most %d", maxDelayShards))
	refuse(d.OnMisfire != RunOnce, "OnMisfire", "does not apply")
	refuse(d.OnOverlap != WaitForRun, "OnOverlap", "does not apply")
	refuse(d.CatchupWindow != 0, "CatchupWindow", "does not apply")
	return all
}
