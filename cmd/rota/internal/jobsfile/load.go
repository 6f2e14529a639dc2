package jobsfile

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/internal/secret"
)

// MaxBytes bounds the size of a file.
const MaxBytes = 1 << 20

// Host has the programs, files and variables to which a file refers. Load calls the functions to check the file, and
// handlers call them later. With a nil function Load does not check that the things exist.
type Host struct {
	// ReadFile reads a file with a secret or a certificate.
	ReadFile func(path string) ([]byte, error)
	// LookupEnv returns a variable of the environment.
	LookupEnv func(name string) (string, bool)
	// Environ is the environment that programs inherit, apart from the variables that hold the credentials of the
	// registry and the history, and those that a from_env of any job names.
	Environ []string
	// Programs determines whether the programs of commands must exist.
	Programs bool
	// Labels are those of the instance. Programs and secrets of jobs that cannot run here for lack
	// of labels need not exist. Nil means that all must.
	Labels map[string]string
	// Logger receives the output of programs. Nil means the logger of the executor.
	Logger *slog.Logger
	// Secrets receives the values of files and variables, so that texts are masked. Nil means that no text is.
	Secrets *secret.Masker
	// Schemes are the registries that a file can name.
	Schemes registryurl.Schemes
}

// File is a valid file.
type File struct {
	Revision         int
	HasRevision      bool // in the file itself
	Namespace, Group string
	Registry         Registry
	History          History
	Notify           Notify
	Pools            map[string]int // sizes, by name; nil without the key
	Kinds            []Kind         // in the order of the file
	Jobs             []Job          // in the order of the file
	Defined          []Defined      // in the order of the file
	// Warnings are values that are too short to be masked.
	Warnings []string
	// Notes name valid settings that are most likely mistakes.
	Notes []string

	fromEnv []string // the variables that jobs name
}

// Job is a job of a file that rota run runs.
type Job struct {
	executor.Job
	// OwnRevision reports whether the job has a revision apart from that of the file.
	OwnRevision bool
	// SecretLog reports whether the output of the runs is left out of the history.
	SecretLog bool
	// Work describes the local part in a few words, such as "/opt/bin/settle --region={{.ShardParam}}".
	Work string
	// Digest identifies the local part, which is not stored: program, script, request and
	// environment, without secrets. Equal parts have equal digests on all hosts.
	Digest string
}

// Load reads a file. A relative file of its history is resolved against the directory of name. The error is a *Problems that has all of them.
func Load(name string, content []byte, host Host) (*File, error) {
	r := &reader{places: map[string]place{}, schemes: host.Schemes}
	f := load(r, content, host)
	if len(r.problems) > 0 {
		return nil, &Problems{File: name, All: sortProblems(r.problems)}
	}
	f.History.resolveFile(filepath.Dir(name))
	return f, nil
}

func load(r *reader, content []byte, host Host) *File {
	root := parse(r, content)
	if root == nil || !r.refuseIndirection(root) {
		return nil
	}
	if root.Kind != yaml.MappingNode {
		r.report(root, "the file is %s, not a map with the key jobs", describeNode(root))
		return nil
	}
	s, _ := fileShape().read(r, root)
	applyDefaults(r, s.Jobs)
	b := builder{reader: r, host: host, noted: map[string]bool{}, file: &File{
		Revision: s.Revision, HasRevision: has(root, "revision"), Namespace: s.Namespace, Group: s.Group, Registry: s.Registry, History: s.History, Pools: s.Pools,
	}}
	if !has(root, "jobs") && !has(root, "kinds") {
		r.report(root, "has no jobs")
	}
	for _, specs := range [][]jobSpec{s.Kinds, s.Jobs} {
		for i := range specs {
			b.file.fromEnv = append(b.file.fromEnv, specs[i].variables()...)
		}
	}
	for i := range s.Kinds {
		b.addKind(&s.Kinds[i])
	}
	b.checkKinds(s.Kinds)
	for i := range s.Jobs {
		b.addJob(&s.Jobs[i])
	}
	b.checkDefinitions(s.Jobs)
	b.addDefined(s.Jobs)
	b.checkPools(s.Kinds, s.Jobs)
	b.notify(&s.Notify, s.Jobs)
	return b.file
}

// parse returns the root of the only document, or reports why there is none.
func parse(r *reader, content []byte) *yaml.Node {
	start := &yaml.Node{Line: 1, Column: 1}
	if len(content) > MaxBytes {
		r.report(start, "the file has more than %d bytes", MaxBytes)
		return nil
	}
	var documents []yaml.Node
	err := yaml.Load(content, &documents, yaml.WithAllDocuments())
	var at *yaml.LoadError
	switch {
	case errors.As(err, &at):
		line, column, rule := explainSyntax(content, at)
		r.report(&yaml.Node{Line: line, Column: column}, "%s", rule)
		return nil
	case err != nil:
		r.report(start, "the file is not YAML: %v", err)
		return nil
	case len(documents) == 0 || len(documents[0].Content) == 0 || documents[0].Content[0].ShortTag() == "!!null":
		r.report(start, "the file is empty; it needs the key jobs")
		return nil
	case len(documents) > 1:
		r.report(&documents[1], "a second document begins here; a file has one")
		return nil
	}
	return documents[0].Content[0]
}

// explainSyntax returns the place of an error of syntax, and the error.
func explainSyntax(content []byte, e *yaml.LoadError) (line, column int, rule string) {
	line, column, rule = max(e.Mark.Line, 1), max(e.Mark.Column, 1), "the file is not YAML: "+e.Message
	if e.Mark.Line == 0 && e.Stage == yaml.ReaderStage {
		before := content[:min(e.Mark.Index, len(content))]
		line = 1 + bytes.Count(before, []byte("\n"))
		column = len(before) - bytes.LastIndexByte(before, '\n')
	}
	lines := strings.Split(string(content), "\n")
	if line <= len(lines) && strings.Contains(indentOf(lines[line-1]), "\t") {
		return line, 1 + strings.Index(lines[line-1], "\t"), "a tab indents the line; YAML needs spaces"
	}
	if e.ContextMsg == "while scanning a quoted scalar" && e.ContextMark.Line > 0 {
		return e.ContextMark.Line, e.ContextMark.Column, "the quote that opens here is not closed"
	}
	if open, col, ok := findQuote(lines, line, column); ok {
		return open, col, fmt.Sprintf("the quote that opens here is closed only at %d:%d, and the text after that is not YAML: %s", line, column-1, e.Message)
	}
	if e.ContextMsg != "" && e.ContextMark.Line > 0 && e.ContextMark.Line < e.Mark.Line {
		rule += fmt.Sprintf(", %s that begins at %d:%d", e.ContextMsg, e.ContextMark.Line, e.ContextMark.Column)
	}
	if strings.HasPrefix(e.Message, "did not find expected alphabetic or numeric character") { // of an alias or anchor
		rule += `; a text that begins with "*" or "&" needs quotes`
	}
	if strings.HasPrefix(e.Message, "mapping values are not allowed") {
		rule += "; a text that contains \": \" needs quotes, and keys of one map need the same indentation"
	}
	return line, column, rule
}

// findQuote returns the place of the quote that opens the text which ends before a place, if that is in an earlier line: a
// quote that is not closed there takes the next one.
func findQuote(lines []string, line, column int) (openLine, openColumn int, ok bool) {
	runes := func(n int) []rune { return []rune(lines[n-1]) }
	if line > len(lines) || column < 2 || column-1 > len(runes(line)) {
		return 0, 0, false
	}
	quote := runes(line)[column-2]
	if quote != '"' && quote != '\'' || slices.Contains(runes(line)[:column-2], quote) {
		return 0, 0, false
	}
	for n := line - 1; n > 0; n-- {
		if i := lastIndex(runes(n), quote); i >= 0 {
			return n, i + 1, true
		}
	}
	return 0, 0, false
}

func lastIndex(text []rune, r rune) int {
	for i := len(text) - 1; i >= 0; i-- {
		if text[i] == r {
			return i
		}
	}
	return -1
}

func indentOf(line string) string { return line[:len(line)-len(strings.TrimLeft(line, " \t"))] }

func fileShape() shape[fileSpec] { return object("map", fileGuesses, fileFields()) }

// defaultsFields are the keys of defaults.
func defaultsFields() []field[jobSpec] {
	all := slices.Clone(jobFields())
	for i, f := range all {
		if !f.inDefaults {
			rule := "has no default: each job has its own"
			if f.name == "notify" {
				rule = "has its default at notify.default"
			}
			all[i] = refused[jobSpec](f.name, rule)
		}
		all[i].with = nil // the others apply to those jobs that have the keys
	}
	return all
}

func defaultsShape() shape[jobSpec] { return object("map", jobGuesses, defaultsFields()) }

// jobsShape is the map of all jobs. Problems of one job do not keep others from being read.
func jobsShape() shape[[]jobSpec] {
	schema := objectSchema(jobFields())
	schema["allOf"] = []any{
		map[string]any{"oneOf": requireEach(scheduleKeys)},
		map[string]any{"oneOf": requireEach(jobWorkKeys)},
		map[string]any{"if": map[string]any{"required": withKind}, "then": map[string]any{"not": map[string]any{"anyOf": requireEach(slices.Sorted(maps.Keys(notOfDefined)))}}},
	}
	s := map[string]any{"type": "object", "additionalProperties": schema, "minProperties": 1}
	return shape[[]jobSpec]{"map from name to job", s, func(r *reader, n *yaml.Node) (all []jobSpec, ok bool) {
		if n.Kind != yaml.MappingNode {
			r.report(n, "is %s, not a map from names to jobs", describeNode(n))
			return nil, false
		}
		if len(n.Content) == 0 {
			r.report(n, "is an empty map; a file needs a job")
			return nil, false
		}
		for _, p := range r.entries(n) {
			r.within(joinPath(r.path, p.key.Value), p, func() { all = append(all, readJob(r, p)) })
		}
		return all, true
	}}
}

// readJob reads the keys that a job has itself.
func readJob(r *reader, job place) jobSpec {
	s := readSpec(r, job, jobFields(), keyGroup{"job", scheduleKeys, missingSchedule}, keyGroup{"job", jobWorkKeys, missingJobWork})
	if s.isDefined() {
		s.refuseLocal(r)
	}
	return s
}

// readSpec reads the keys of a job or kind.
func readSpec(r *reader, job place, fields []field[jobSpec], groups ...keyGroup) jobSpec {
	s := jobSpec{name: job.key.Value, path: r.path, at: job.key, given: map[string]usage{}}
	if job.value.Kind != yaml.MappingNode {
		var keys []string
		for _, group := range groups {
			keys = append(keys, group.names[0])
		}
		r.report(job.value, "is %s, not a map with keys such as %s", describeNode(job.value), strings.Join(keys, " and "))
		s.broken = true
		return s
	}
	count := len(r.problems)
	for _, p := range r.entries(job.value) {
		before := len(r.problems)
		path := joinPath(r.path, p.key.Value)
		r.within(path, p, func() { readField(r, p, fields, jobGuesses, &s) })
		s.given[p.key.Value] = usage{place: p, path: path, own: true, broken: len(r.problems) > before}
	}
	s.broken = len(r.problems) > count
	checkTogether(r, &s, fields, groups)
	return s
}

// keyGroup are keys of which a job or kind has exactly one, and the problem of one that has none.
type keyGroup struct {
	of      string // job or kind
	names   []string
	missing string
}

const (
	missingSchedule = "has no schedule: give it one of schedule, every, quartz, at, fixed_delay, always and after, or \"on: trigger\" if it is to run only when it is triggered"
	missingWork     = "has no work: give it one of command, shell and http"
	missingJobWork  = missingWork + ", or the kind of a job that is defined as data"
)

// checkTogether reports keys that exclude each other or do not apply.
func checkTogether(r *reader, s *jobSpec, fields []field[jobSpec], groups []keyGroup) {
	hasAny := func(names []string) bool {
		return slices.ContainsFunc(names, func(name string) bool { _, ok := s.given[name]; return ok })
	}
	for _, group := range groups {
		var given []usage
		for _, name := range group.names {
			if u, ok := s.given[name]; ok {
				given = append(given, u)
			}
		}
		slices.SortFunc(given, func(a, b usage) int { return a.key.Line*1_000_000 + a.key.Column - b.key.Line*1_000_000 - b.key.Column })
		for i := 1; i < len(given); i++ {
			r.reportAt(given[i].path, given[i].key, "conflicts with %s: a %s has one of %s", given[0].key.Value, group.of, joinWords(group.names))
		}
		if len(given) == 0 && !s.guessed(group.names) {
			r.reportAt(s.path, s.at, "%s", group.missing)
		}
		s.broken = s.broken || len(given) != 1
	}
	for _, f := range fields {
		if u, ok := s.given[f.name]; ok && f.with != nil && !hasAny(f.with) && !s.guessed(f.with) {
			r.reportAt(u.path, u.key, "applies only to jobs with %s", joinWords(f.with))
			s.broken, u.broken = true, true
			s.given[f.name] = u
		}
	}
}

// guessed reports whether an unknown key of the job stands for one of names, so that its absence is
// no further problem.
func (s *jobSpec) guessed(names []string) bool {
	for key, u := range s.given {
		meant := jobGuesses[key]
		if meant == "" && u.broken {
			meant = suggest(key, names)
		}
		first, _, _ := strings.Cut(meant, ":")
		if slices.Contains(names, first) {
			return true
		}
	}
	return false
}

// applyDefaults adds the keys of defaults to the jobs that do not have them, and to which they
// apply. Problems of defaults have been reported.
func applyDefaults(r *reader, jobs []jobSpec) {
	defaults, ok := r.places["defaults"]
	if !ok || defaults.value.Kind != yaml.MappingNode {
		return
	}
	before := r.muted
	r.muted = true
	defer func() { r.muted = before }()
	for _, f := range defaultsFields() {
		path := joinPath("defaults", f.name)
		p, ok := r.places[path]
		if !ok || f.hidden || r.hasProblemBelow(path) {
			continue
		}
		for i := range jobs {
			jobs[i].applyDefault(r, f, p, path)
		}
	}
}

// hasProblemBelow reports whether a key or a part of its value has a problem.
func (r *reader) hasProblemBelow(path string) bool { return hasProblemBelow(r.problems, path) }

func hasProblemBelow(problems []Problem, path string) bool {
	return slices.ContainsFunc(problems, func(p Problem) bool {
		rest, ok := strings.CutPrefix(p.Key, path)
		return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

func (s *jobSpec) applyDefault(r *reader, f field[jobSpec], p place, path string) {
	if u, own := s.given[f.name]; own {
		if f.name == "env" && !u.broken {
			s.mergeEnv(r, f, p)
		}
		return
	}
	for _, original := range jobFields() {
		if original.name == f.name && original.with != nil && !slices.ContainsFunc(original.with, func(name string) bool { _, ok := s.given[name]; return ok }) {
			return
		}
	}
	if s.isDefined() && notOfDefined[f.name] != "" {
		return
	}
	if f.name == "timezone" && strings.Contains(s.Schedule, "TZ=") {
		return // the text names a zone
	}
	f.read(r, p.value, s)
	s.given[f.name] = usage{place: p, path: path}
}

// mergeEnv adds the variables of defaults that the job does not have.
func (s *jobSpec) mergeEnv(r *reader, f field[jobSpec], p place) {
	var defaults jobSpec
	f.read(r, p.value, &defaults)
	for name, v := range s.Env {
		defaults.Env[name] = v
	}
	s.Env = defaults.Env
}
