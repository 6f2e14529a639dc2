package member

import (
	"bytes"
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
	// maxSupersededLines bounds how many jobs are logged one by one at a time.
	maxSupersededLines = 5
	// maxSupersededNames bounds how many more are named in the line after those.
	maxSupersededNames = 20
)

// supersededDefinition is a definition of this process that is not stored, because the registry has one of
// a higher revision, or of the same revision and with other content.
type supersededDefinition struct {
	job                      string
	storedRev                registry.Rev // of the record in the registry
	revision, storedRevision int
	own                      string // the definition
	differences              []string
}

// logOne logs s.
func (s *supersededDefinition) logOne(log *slog.Logger) {
	log = log.With("job", s.job, "revision", s.revision, "stored", s.storedRevision, "differences", s.differences)
	if s.revision < s.storedRevision {
		log.Warn("stored definition has a higher revision and stays in force; raise Revision above it to replace it")
		return
	}
	log.Warn("stored definition of the same revision differs and stays in force; raise Revision to replace it")
}

// supersededDefinitions is what a member knows of its superseded definitions. The zero value is empty.
type supersededDefinitions struct {
	known    map[string]supersededDefinition // by job
	unlogged []supersededDefinition          // of them, those to log
}

// compareDefinition records the own definition of a job where it is not stored. theirs and old are the
// definition in the registry, which stays.
func (s *supersededDefinitions) compareDefinition(mine, theirs record.Job, own, old json.RawMessage, stored registry.Rev) {
	if bytes.Equal(own, old) { // at a glance: there may be ten thousand
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
	now := supersededDefinition{mine.Name, stored, mine.Revision, theirs.Revision, string(own), differences}
	if s.known == nil {
		s.known = map[string]supersededDefinition{}
	}
	s.known[mine.Name] = now
	s.unlogged = append(s.unlogged, now)
}

// logNew logs what is new: a process that is rolled back may have many old definitions.
func (s *supersededDefinitions) logNew(log *slog.Logger) {
	news := s.unlogged
	s.unlogged = nil
	for i := range news[:min(len(news), maxSupersededLines)] {
		news[i].logOne(log)
	}
	if len(news) <= maxSupersededLines {
		return
	}
	var more []string
	for _, n := range news[maxSupersededLines:] {
		more = append(more, n.job)
	}
	log.Warn("more definitions of this process are not in force, because their stored definitions stay",
		"count", len(more), "jobs", more[:min(len(more), maxSupersededNames)])
}

// listDiffering returns some of the jobs of which the definition in the registry has the revision of
// the own one and other content, sorted.
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
