package jobsfile

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v4"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry/memory"
)

// Kind is a kind of a file: the work of jobs that are defined as data.
type Kind struct {
	executor.Kind
	// Work and Digest are as of a Job.
	Work, Digest string
}

// notOfKinds are the keys of a job that a kind does not have, with the rule.
var notOfKinds = map[string]string{
	"start_paused": "does not apply to a kind: rota define --start-paused is for its jobs",
	"notify":       "does not apply to a kind: messages about its jobs go to notify.default",
	"log":          "does not apply to a kind: the history keeps what its runs print",

	"kind":          "does not apply to a kind: it has the work itself",
	"kind_revision": "does not apply to a kind: its revision is the key revision",
	"delete_after":  "does not apply to a kind: each job that is defined has its own",
}

// ownKindFields are the keys that mean something else than those of a job, or that a job does not have.
func ownKindFields() []field[jobSpec] {
	type j = jobSpec
	return []field[j]{
		key("description", text(), func(s *j) *string { return &s.Description }, "none", "A text for people, up to 1000 bytes."),
		key("max_running", number(1), func(s *j) *int { return &s.MaxRunning }, "4 per CPU, at least 16",
			"The number of runs of all jobs of the kind together at a time in this process. It takes effect without a higher revision."),
		key("max_jobs", number(1), func(s *j) *int { return &s.MaxJobs }, "100000", "How many jobs of the kind may be defined."),
		key("revision", pointer(number(0)), func(s *j) **int { return &s.Revision }, "that of the file",
			"The revision of the kind. Raise it with each change of `description`, `max_jobs` or a key that definitions have by default."),
	}
}

// kindFields returns the keys of a kind, which callers do not change: those of a job that are of its work or that definitions have by default,
// and its own.
var kindFields = sync.OnceValue(func() (all []field[jobSpec]) {
	own := ownKindFields()
	isOwn := func(name string) bool {
		return slices.ContainsFunc(own, func(f field[jobSpec]) bool { return f.name == name })
	}
	for _, f := range jobFields() {
		rule, no := notOfKinds[f.name]
		ofSchedule := slices.Contains(scheduleKeys, f.name) || slices.Contains([]string{"timezone", "from", "until", "spread"}, f.name)
		switch {
		case isOwn(f.name):
		case no:
			all = append(all, refused[jobSpec](f.name, rule))
		case ofSchedule:
			all = append(all, refused[jobSpec](f.name, "does not apply to a kind: each job that is defined has its own schedule"))
		default:
			if slices.Contains(f.with, "schedule") { // of a schedule that is not known yet
				f.with = nil
			}
			f.inDefaults = false
			all = append(all, f)
		}
	}
	return append(all, own...)
})

// kindsShape is the map of all kinds. Problems of one do not keep others from being read.
func kindsShape() shape[[]jobSpec] {
	schema := objectSchema(kindFields())
	schema["oneOf"] = requireEach(workKeys)
	s := map[string]any{"type": "object", "additionalProperties": schema, "minProperties": 1}
	return shape[[]jobSpec]{"map from name to kind", s, func(r *reader, n *yaml.Node) (all []jobSpec, ok bool) {
		if n.Kind != yaml.MappingNode {
			r.report(n, "is %s, not a map from names to kinds", describeNode(n))
			return nil, false
		}
		if len(n.Content) == 0 {
			r.report(n, "is an empty map; remove the key")
			return nil, false
		}
		for _, p := range r.entries(n) {
			r.within(joinPath(r.path, p.key.Value), p, func() { all = append(all, readKind(r, p)) })
		}
		return all, true
	}}
}

// readKind reads the keys of a kind.
func readKind(r *reader, kind place) jobSpec {
	return readSpec(r, kind, kindFields(), keyGroup{"kind", workKeys, missingWork})
}

// addKind adds the kind of a spec to the file, and reports the problems of its values together.
func (b *builder) addKind(s *jobSpec) {
	k := executor.Kind{
		Name: s.name, Description: s.Description, MaxRunning: s.MaxRunning, MaxJobs: s.MaxJobs, Revision: b.file.Revision,
		Defaults: executor.Job{
			Shards: s.Shards.Count, ShardParams: s.Shards.Params, Param: s.Param, Strategy: s.Strategy, RunOn: s.RunOn, Pool: s.Pool, Timeout: s.Timeout,
			OnCrash: s.OnCrash, OnMisfire: s.Misfire, OnOverlap: s.Overlap, CatchupWindow: s.CatchupWindow, Tracking: s.Tracking,
			MaxAttempts: s.MaxAttempts, Retry: s.Retry,
		},
	}
	if s.Revision != nil {
		k.Revision = *s.Revision
	}
	kind := Kind{Kind: k, Digest: s.digest()}
	kind.Handler, kind.Work = b.handler(s)
	b.file.Kinds = append(b.file.Kinds, kind)
}

// checkKinds reports the rules of package executor that kinds break.
func (b *builder) checkKinds(specs []jobSpec) {
	for i := range specs {
		k := b.file.Kinds[i].Kind
		k.Handler = executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil }) // handlers have been checked
		for _, err := range unjoin(registerKind(k)) {
			rule := strings.TrimPrefix(err.Error(), fmt.Sprintf("%v %.100q: ", executor.ErrInvalidKind, k.Name))
			b.reportRule(&specs[i], strings.TrimPrefix(rule, "Defaults."))
		}
	}
}

// registerKind returns the problems of a kind, without a fleet.
func registerKind(k executor.Kind) error {
	ex, err := executor.New(memory.New().Client("check"), "check", executor.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	return ex.RegisterKind(k)
}

// DifferingKindKeys returns the keys for the stored parts in which two kinds differ, apart from the revision.
func DifferingKindKeys(a, b executor.Kind) []string {
	keys := DifferingKeys(a.Defaults, b.Defaults)
	if a.Description != b.Description {
		keys = append(keys, "description")
	}
	if a.MaxJobs != b.MaxJobs {
		keys = append(keys, "max_jobs")
	}
	slices.Sort(keys)
	return keys
}

// Equal reports whether two kinds are equal apart from their revisions.
func (k *Kind) Equal(o *Kind) bool {
	return k.Digest == o.Digest && k.MaxRunning == o.MaxRunning && len(DifferingKindKeys(k.Kind, o.Kind)) == 0
}
