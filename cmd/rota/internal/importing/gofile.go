package importing

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/handler"
	"github.com/rota-dev/rota/schedule"
)

// writeGoFile returns a document as a Go file with a definition for each job. The handlers of Java
// classes are missing: Register refuses their jobs, with the name of the class. Equal documents
// result in equal texts.
func writeGoFile(d document, packageName string) (string, error) {
	w := goWriter{timezone: d.timezone}
	w.comment("Package " + packageName + " has the definitions of jobs.")
	for _, paragraph := range d.intro {
		w.line("//")
		w.comment(paragraph)
	}
	w.list("Notes on all jobs:", d.notes)
	w.line("package " + packageName)
	body := goWriter{timezone: d.timezone}
	body.definitions(d.jobs)
	if err := w.imports(body.String()); err != nil {
		return "", err
	}
	w.WriteString(body.String())
	text, err := format.Source([]byte(w.String()))
	return string(text), err
}

type goWriter struct {
	strings.Builder
	timezone string // of schedules without one
}

func (w *goWriter) line(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

func (w *goWriter) comment(text string) { w.WriteString(wrapComment("// ", "// ", text)) }

// list writes a list in a doc comment.
func (w *goWriter) list(title string, entries []string) {
	if len(entries) == 0 {
		return
	}
	w.line("//")
	w.comment(title)
	for _, e := range entries {
		w.WriteString(wrapComment("//   - ", "//     ", e))
	}
}

// Import paths of the library.
var (
	executorPath = reflect.TypeFor[executor.Job]().PkgPath()
	handlerPath  = reflect.TypeFor[handler.Request]().PkgPath()
	schedulePath = reflect.TypeFor[schedule.Schedule]().PkgPath()
)

// goImports are the packages that a body may use.
var goImports = [][]string{{"context", "fmt", "net/http", "time"}, {executorPath, handlerPath, schedulePath}}

// imports writes the imports that body uses. It parses body, since comments and strings contain
// names of packages, too.
func (w *goWriter) imports(body string) error {
	file, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+body, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	used := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok {
				used[x.Name] = true
			}
		}
		return true
	})
	w.line("import (")
	for _, group := range goImports {
		for _, p := range group {
			if used[path.Base(p)] {
				w.line("%q", p)
			}
		}
		w.line("")
	}
	w.line(")")
	return nil
}

func (w *goWriter) definitions(jobs []job) {
	used := map[string]int{"Jobs": 1, "unwritten": 1, "shardingContext": 1}
	names := make([]string, len(jobs))
	needsContext, needsUnwritten := false, false
	for i, j := range jobs {
		names[i] = functionName(used, j.name)
		needsContext = needsContext || len(j.work.argv) > 0 || j.work.request != nil
		needsUnwritten = needsUnwritten || j.work.class.name != ""
	}
	w.line("// Jobs returns the definitions, for executor.Executor.Register.")
	w.line("func Jobs() []executor.Job {\nreturn []executor.Job{")
	for _, name := range names {
		w.line("%s(),", name)
	}
	w.line("}\n}")
	for i := range jobs {
		w.definition(names[i], &jobs[i])
	}
	if needsContext {
		w.line("\n// shardingContext is a template of the JSON that Elastic-Job passed to scripts and HTTP servers.")
		w.line("const shardingContext = %s", goString(shardingContext))
	}
	if needsUnwritten {
		w.line("%s", unwrittenHandler)
	}
}

// unwrittenHandler is the handler of jobs whose work is Java code.
const unwrittenHandler = `
// unwritten is the handler of a job whose work was done in Java, by the code that it names. Register
// refuses the job.
type unwritten string

// Check implements executor.Checker.
func (u unwritten) Check() error {
	return fmt.Errorf("write the handler that does the work of %s", string(u))
}

// Handle implements executor.Handler.
func (u unwritten) Handle(context.Context, *executor.Run) error { return executor.Permanent(u.Check()) }`

func (w *goWriter) definition(function string, j *job) {
	w.line("")
	w.comment(fmt.Sprintf("%s defines the job %q.", function, j.name))
	w.list("Notes:", j.notes)
	w.line("func %s() executor.Job {\nreturn executor.Job{", function)
	w.line("Name: %s,", goString(j.name))
	if j.description != "" {
		w.line("Description: %s,", goString(j.description))
	}
	w.schedule(j.schedule)
	if j.shards > 1 {
		w.line("Shards: %d,", j.shards)
	}
	if len(j.shardParams) > 0 {
		w.line("ShardParams: %s,", shardTexts(j.shardParams))
	}
	if j.param != "" {
		w.line("Param: %s,", goString(j.param))
	}
	w.line("Revision: 1,")
	if j.strategy != "" {
		w.line("Strategy: %q,", j.strategy)
	}
	if j.maxRunning > 0 {
		w.line("MaxRunning: %d,", j.maxRunning)
	}
	for _, p := range []struct {
		set         bool
		name, value string
	}{
		{j.startPaused, "StartPaused", "true"},
		{j.skipMissed, "OnMisfire", "executor.SkipMissed"},
		{j.skipOverlapping, "OnOverlap", "executor.SkipOverlapping"},
		{j.countAsFailed, "OnCrash", "executor.CountAsFailed"},
		{j.trackClaims, "Tracking", "executor.TrackClaims"},
	} {
		if p.set {
			w.line("%s: %s,", p.name, p.value)
		}
	}
	w.handler(j)
	w.line("}\n}")
}

func (w *goWriter) schedule(s importedSchedule) {
	if s.text == "" {
		return
	}
	constructor := "Cron"
	if s.dialect == quartzDialect {
		constructor = "Quartz"
	}
	zone := cmp.Or(s.timezone, w.timezone)
	text := fmt.Sprintf("schedule.%s(%s)", constructor, goString(s.text))
	if zone != "" {
		text += fmt.Sprintf(".In(%s)", goString(zone))
	}
	if !s.fires() {
		w.line("// Schedule: %s,", text)
		return
	}
	w.line("Schedule: %s,", text)
}

func (w *goWriter) handler(j *job) {
	switch r := j.work.request; {
	case r != nil:
		w.line("Handler: handler.HTTP(handler.Request{")
		w.line("Method: %s,\nURL: %s,", methodText(r.method), goString(r.url))
		w.line("Header: map[string]string{")
		for _, name := range slices.Sorted(maps.Keys(r.header)) {
			w.line("%q: %s,", name, templateText(r.header[name]))
		}
		w.line("},")
		if r.body != "" {
			w.line("Body: %s,", goString(r.body))
		}
		w.line("Timeout: %s,", goDuration(r.timeout))
		w.line("}),")
	case len(j.work.argv) > 0:
		args := make([]string, len(j.work.argv))
		for i, a := range j.work.argv {
			args[i] = templateText(a)
		}
		w.line("Handler: handler.Command(%s),", strings.Join(args, ", "))
	default:
		c := j.work.class
		if c.dataflow {
			once := "Once: true, "
			if c.streaming {
				once = ""
			}
			w.line("// TODO: handler.Dataflow[Item]{%sFetch: ..., Process: ...}", once)
		} else {
			w.line("// TODO: executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error { ... })")
		}
		w.line("Handler: unwritten(%s),", goString(c.describe()))
	}
}

// templateText returns a template as Go source.
func templateText(s string) string {
	if s == shardingContext {
		return "shardingContext"
	}
	return goString(s)
}

func methodText(method string) string {
	for _, m := range []string{"Get", "Post", "Put", "Delete", "Patch", "Head", "Options"} {
		if strings.EqualFold(m, method) {
			return "http.Method" + m
		}
	}
	return goString(method)
}

func goDuration(d time.Duration) string {
	if d%time.Second == 0 {
		return fmt.Sprintf("%d * time.Second", d/time.Second)
	}
	return fmt.Sprintf("%d * time.Millisecond", d/time.Millisecond)
}

// goString returns s as a Go literal, without escapes if possible.
func goString(s string) string {
	if strings.ContainsAny(s, `"\`) && strconv.CanBackquote(s) && !strings.Contains(s, "\n") {
		return "`" + s + "`"
	}
	return strconv.Quote(s)
}

// shardTexts returns a map from shards to texts as Go source.
func shardTexts(m map[int]string) string {
	var parts []string
	for _, shard := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%d: %s", shard, goString(m[shard])))
	}
	return "map[int]string{" + strings.Join(parts, ", ") + "}"
}

// functionName returns a name for the function of a job that no other function has.
func functionName(used map[string]int, name string) string {
	var b strings.Builder
	upper := false
	for _, r := range name {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			upper = b.Len() > 0
			continue
		case b.Len() == 0 && unicode.IsDigit(r):
			b.WriteString("job")
		case upper:
			r = unicode.ToUpper(r)
		case b.Len() == 0:
			r = unicode.ToLower(r)
		}
		upper = false
		b.WriteRune(r)
	}
	function := b.String()
	switch {
	case function == "":
		function = "job"
	case !strings.HasSuffix(strings.ToLower(function), "job"):
		function += "Job"
	}
	unique := function
	for n := 2; used[unique] > 0; n++ {
		unique = function + strconv.Itoa(n)
	}
	used[unique]++
	return unique
}
