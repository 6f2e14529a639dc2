package importing

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rota-dev/rota/internal/scheduletext"
)

// writeJobsFile returns a document as a jobs file of rota run. Equal documents result in equal texts.
func writeJobsFile(d document) string {
	var w yamlWriter
	for i, paragraph := range d.intro {
		if i > 0 {
			w.line("#")
		}
		w.comment("", paragraph)
	}
	if len(d.notes) > 0 {
		w.line("#")
		w.comment("", "Notes on all jobs:")
		w.notes("", d.notes)
	}
	w.line("version: 1")
	w.line("revision: 1")
	w.optional("", "namespace", d.namespace)
	d.jobs = slices.Clone(d.jobs)
	w.defaults(d.timezone, shareVariables(d.jobs))
	w.line("jobs:")
	for i, j := range d.jobs {
		if i > 0 {
			w.line("")
		}
		w.job(&j)
	}
	return w.String()
}

// shareVariables removes the variables from jobs that have the same value in all of them, and returns
// these.
func shareVariables(jobs []job) map[string]string {
	if len(jobs) < 2 {
		return nil
	}
	shared := maps.Clone(jobs[0].work.env)
	for _, j := range jobs[1:] {
		maps.DeleteFunc(shared, func(name, value string) bool {
			other, ok := j.work.env[name]
			return !ok || other != value
		})
	}
	for i := range jobs {
		own := maps.Clone(jobs[i].work.env)
		maps.DeleteFunc(own, func(name, _ string) bool { _, ok := shared[name]; return ok })
		jobs[i].work.env = own
	}
	return shared
}

type yamlWriter struct{ strings.Builder }

func (w *yamlWriter) line(text string) { w.WriteString(text + "\n") }

// optional writes a key, unless its text is empty.
func (w *yamlWriter) optional(indent, key, text string) {
	if text != "" {
		w.line(indent + key + ": " + scalar(text))
	}
}

func (w *yamlWriter) comment(indent, text string) {
	w.WriteString(wrapComment(indent+"# ", indent+"# ", text))
}

func (w *yamlWriter) notes(indent string, notes []string) {
	for _, n := range notes {
		w.WriteString(wrapComment(indent+"# - ", indent+"#   ", n))
	}
}

// defaults writes the values that all jobs share.
func (w *yamlWriter) defaults(timezone string, variables map[string]string) {
	if timezone == "" && len(variables) == 0 {
		return
	}
	w.line("defaults:")
	w.optional("  ", "timezone", timezone)
	w.texts("  ", "env", variables)
}

// The indentations of a job's fields, and of the values below them.
const (
	fieldIndent = "    "
	innerIndent = "      "
)

func (w *yamlWriter) field(key, value string) { w.line(fieldIndent + key + ": " + value) }

// texts writes a mapping from names to texts.
func (w *yamlWriter) texts(indent, key string, m map[string]string) {
	if len(m) == 0 {
		return
	}
	w.line(indent + key + ":")
	for _, name := range slices.Sorted(maps.Keys(m)) {
		w.line(indent + "  " + scalar(name) + ": " + scalar(m[name]))
	}
}

func (w *yamlWriter) job(j *job) {
	w.line("  " + scalar(j.name) + ":")
	w.notes(fieldIndent, j.notes)
	w.optional(fieldIndent, "description", j.description)
	w.schedule(j.schedule)
	w.shards(j)
	w.optional(fieldIndent, "param", j.param)
	w.optional(fieldIndent, "strategy", j.strategy)
	if j.maxRunning > 0 {
		w.field("max_running", strconv.Itoa(j.maxRunning))
	}
	for _, p := range []struct {
		set        bool
		key, value string
	}{
		{j.startPaused, "start_paused", "true"},
		{j.skipMissed && j.schedule.fires(), "misfire", "skip missed"},
		{j.skipOverlapping && j.schedule.fires(), "overlap", "skip"},
		{j.countAsFailed, "on_crash", "count as failed"},
		{j.trackClaims && j.schedule.fires(), "tracking", "claims"},
	} {
		if p.set {
			w.field(p.key, p.value)
		}
	}
	w.work(j)
}

func (w *yamlWriter) schedule(s importedSchedule) {
	key := "schedule"
	if s.dialect == quartzDialect {
		key = "quartz"
	}
	if !s.fires() {
		if s.text != "" {
			w.field("# "+key, scalar(s.text))
		}
		w.field("on", "trigger")
		return
	}
	w.field(key, scalar(s.text))
	w.optional(fieldIndent, "timezone", s.timezone)
	if s.spread > 0 {
		w.field("spread", scheduletext.Duration(s.spread))
	}
}

func (w *yamlWriter) shards(j *job) {
	switch {
	case len(j.shardParams) > 0:
		w.line(fieldIndent + "shards:")
		for i := range j.shards {
			w.line(fmt.Sprintf("%s%d: %s", innerIndent, i, scalar(j.shardParams[i])))
		}
	case j.shards > 1:
		w.field("shards", strconv.Itoa(j.shards))
	}
}

func (w *yamlWriter) work(j *job) {
	w.optional(fieldIndent, "dir", j.work.dir)
	w.texts(fieldIndent, "env", j.work.env)
	w.optional(fieldIndent, "interpreter", j.work.interpreter)
	switch {
	case j.work.request != nil:
		w.request(j.work.request)
	case len(j.work.argv) > 0:
		w.line(fieldIndent + "command:")
		for _, arg := range j.work.argv {
			w.line(innerIndent + "- " + scalar(arg))
		}
	case j.work.class.name != "":
		w.comment(fieldIndent, "TODO: "+j.work.class.describe()+" did the work. Write a program that does it, and name it here. "+
			"Until then the job has no work, and rota validate refuses the file.")
		w.line(fieldIndent + `# command: [/path/to/program, --shard, "{{.Shard}}", --of, "{{.Shards}}"]`)
	default:
		text, ok := block(j.work.script, innerIndent)
		if !ok {
			text = scalar(j.work.script)
		}
		w.field("shell", text)
	}
}

func (w *yamlWriter) request(r *request) {
	w.line(fieldIndent + "http:")
	w.optional(innerIndent, "method", r.method)
	w.line(innerIndent + "url: " + scalar(r.url))
	w.texts(innerIndent, "header", r.header)
	w.optional(innerIndent, "body", r.body)
	if r.timeout > 0 {
		w.line(innerIndent + "timeout: " + scheduletext.Duration(r.timeout))
	}
}

// describe names the Java code that does the work of a job.
func (c class) describe() string {
	if c.dataflow {
		return "the Java data flow " + c.name
	}
	return "the Java class " + c.name
}
