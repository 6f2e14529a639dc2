package member

import (
	"bytes"
	"cmp"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

const (
	// maxDiffers bounds record.Member.Differs.
	maxDiffers = 100
	// maxOwn bounds record.Member.Own.
	maxOwn = 20
	// maxSupersededLines bounds how many jobs are logged one by one at a time.
	maxSupersededLines = 5
	// maxSupersededNames bounds how many further jobs the line after those names.
	maxSupersededNames = 20
)

// supersededDefinition is a definition of this process that is not in force: the stored one has a
// higher revision, or the same revision and other content.
type supersededDefinition struct {
	job                      string
	storedRev                registry.Rev // of the stored record
	revision, storedRevision int
	own                      string // the definition of this process
	described                string // how own differs, for the member record
	differences              []string
}

// logOne logs why the definition is not in force.
func (s *supersededDefinition) logOne(log *slog.Logger) {
	log = log.With("job", s.job, "revision", s.revision, "stored", s.storedRevision, "differences", s.differences)
	if s.revision < s.storedRevision {
		log.Warn("stored definition has a higher revision and stays in force; raise Revision above it to replace it")
		return
	}
	log.Warn("stored definition of the same revision differs and stays in force; raise Revision to replace it")
}

// supersededDefinitions are the superseded definitions of a member. The zero value is empty.
type supersededDefinitions struct {
	known    map[string]supersededDefinition // by job
	unlogged []supersededDefinition          // those of known that are to be logged
}

// compareDefinition records whether the stored definition of a job supersedes the one of this
// process. mine and own are this process's definition, theirs and old the stored one at rev stored.
func (s *supersededDefinitions) compareDefinition(mine, theirs record.Job, own, old json.RawMessage, stored registry.Rev) {
	if bytes.Equal(own, old) { // cheap: there may be ten thousand definitions
		delete(s.known, mine.Name)
		return
	}
	was, known := s.known[mine.Name]
	if known && was.storedRev == stored && was.own == string(own) {
		return
	}
	delete(s.known, mine.Name)
	differences := record.Differences(own, "here", old, "in force")
	if mine.Revision == theirs.Revision && len(differences) == 0 {
		return
	}
	now := supersededDefinition{mine.Name, stored, mine.Revision, theirs.Revision, string(own), record.DescribeOwn(own, old), differences}
	if s.known == nil {
		s.known = map[string]supersededDefinition{}
	}
	s.known[mine.Name] = now
	s.unlogged = append(s.unlogged, now)
}

// logNew logs the definitions that were superseded since the last call. It bounds the lines,
// since a process that is rolled back may have many old definitions. One revision may be that of a whole file, most of which
// has not changed: jobs whose content differs come first.
func (s *supersededDefinitions) logNew(log *slog.Logger) {
	added := s.unlogged
	s.unlogged = nil
	slices.SortStableFunc(added, func(a, b supersededDefinition) int {
		return cmp.Compare(min(len(b.differences), 1), min(len(a.differences), 1))
	})
	for i := range added[:min(len(added), maxSupersededLines)] {
		added[i].logOne(log)
	}
	if len(added) <= maxSupersededLines {
		return
	}
	var more []string
	for _, n := range added[maxSupersededLines:] {
		more = append(more, n.job)
	}
	log.Warn("more definitions of this process are not in force, because their stored definitions stay",
		"count", len(more), "jobs", more[:min(len(more), maxSupersededNames)])
}

// publish sets Differs and Own of a member record that offers definitions.
func (s *supersededDefinitions) publish(m *record.Member, defs map[string]json.RawMessage) {
	m.Differs, m.Own = s.listDiffering(defs), nil
	for _, job := range slices.Sorted(maps.Keys(s.known)) {
		if k := s.known[job]; k.described != "" && string(defs[job]) == k.own && len(m.Own) < maxOwn {
			if m.Own == nil {
				m.Own = map[string]string{}
			}
			m.Own[job] = k.described
		}
	}
}

// listDiffering returns the jobs whose stored definition has the same revision and other content,
// sorted, maxDiffers of them at most.
func (s *supersededDefinitions) listDiffering(defs map[string]json.RawMessage) []string {
	var out []string
	for _, job := range slices.Sorted(maps.Keys(s.known)) {
		k := s.known[job]
		if def, ok := defs[job]; ok && string(def) == k.own && k.revision == k.storedRevision && len(out) < maxDiffers {
			out = append(out, job)
		}
	}
	return out
}
