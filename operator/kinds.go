package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/group/snapshot"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// KindStatus is the recorded state of a kind of defined jobs (executor.Kind).
type KindStatus struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// Revision is the highest one that an instance has stored. It is zero if none has.
	Revision int `json:"revision"`
	// Defaults are the fields of definitions that jobs of the kind have by default, as JSON. They may include parameters, which may
	// be secret, so the JSON of KindStatus does not have them.
	Defaults json.RawMessage `json:"-"`
	// Jobs is how many jobs of the kind are defined, as the leader has counted them at Counted, which is zero if it has not.
	// MaxJobs is how many may be.
	Jobs    int       `json:"jobs"`
	MaxJobs int       `json:"max_jobs"`
	Counted time.Time `json:"counted,omitzero"`
	// Instances are the live instances that offer the kind, sorted by name.
	Instances []KindInstance `json:"instances"`
	// Problem is the fault in the record of the kind. It is empty if there is none.
	Problem string `json:"problem,omitempty"`
}

// KindInstance is an instance that offers a kind.
type KindInstance struct {
	Instance string `json:"instance"`
	Revision int    `json:"revision"` // its own one
}

// Kinds returns the kinds that an instance has stored or offers, and those of which jobs are defined, sorted by name. A record that
// cannot be read is a kind with a Problem.
func (o *Operator) Kinds(ctx context.Context) ([]KindStatus, error) {
	kinds, err := o.readKinds(ctx)
	if err != nil {
		return nil, fmt.Errorf("kinds: %w", err)
	}
	return kinds, nil
}

func (o *Operator) readKinds(ctx context.Context) ([]KindStatus, error) {
	if err := o.checkFormat(ctx); err != nil {
		return nil, err
	}
	listing, err := o.reg.List(ctx, o.keys.Kinds(), registry.ReadOptions{})
	if err != nil {
		return nil, err
	}
	s := snapshot.New(o.keys)
	if err := o.listMembers(ctx, s); err != nil {
		return nil, err
	}
	return kindsOf(o.keys, listing.Entries, s), nil
}

// kindsOf returns the kinds of records and members, by name.
func kindsOf(keys record.Keys, entries []registry.Entry, s *snapshot.Snapshot) []KindStatus {
	all := map[string]*KindStatus{}
	kind := func(name string) *KindStatus {
		if all[name] == nil {
			all[name] = &KindStatus{Name: name, MaxJobs: record.DefaultMaxJobs, Problem: "no process has stored it"}
		}
		return all[name]
	}
	var counts record.KindCounts
	for _, e := range entries {
		if e.Key == keys.KindCounts() {
			if c, err := record.DecodeKindCounts(e.Value); err == nil {
				counts = c
			}
			continue
		}
		k, err := decodeKind(e)
		st := kind(e.Key.Name())
		if err != nil {
			st.Problem = fmt.Sprintf("%s cannot be read: %v", e.Key, err)
			continue
		}
		st.Description, st.Revision, st.Defaults, st.MaxJobs, st.Problem = k.Description, k.Revision, k.Defaults, maxJobs(k), ""
	}
	for name, n := range counts.ByKind {
		kind(name).Jobs = n
	}
	for _, m := range s.LiveMembers() {
		for name, revision := range m.Kinds {
			st := kind(name)
			st.Instances = append(st.Instances, KindInstance{m.Name, revision})
		}
	}
	var out []KindStatus
	for _, name := range slices.Sorted(maps.Keys(all)) {
		st := all[name]
		st.Counted = counts.At.Time()
		slices.SortFunc(st.Instances, func(a, b KindInstance) int { return cmp.Compare(a.Instance, b.Instance) })
		out = append(out, *st)
	}
	return out
}
