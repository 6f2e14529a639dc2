package importing

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/schedule"
)

// elasticJobOptions determine how a namespace of Elastic-Job is converted.
type elasticJobOptions struct {
	source      string // the namespace, for the text at the top
	jobs        []string
	timezone    string // of the JVMs; empty: unknown
	namespace   string
	startPaused bool
}

// convertElasticJob returns the jobs below the root of a namespace. Its error joins those of all
// jobs.
func convertElasticJob(root *node, o elasticJobOptions) (document, error) {
	d := document{intro: elasticJobIntro(o), namespace: o.namespace, timezone: o.timezone}
	var errs []error
	zoneless := false
	for _, name := range root.names() {
		n := root.children[name]
		if n.at("config") == nil || !matchesAny(o.jobs, name) {
			continue
		}
		c, err := readConfig(n.at("config"))
		if err != nil {
			errs = append(errs, fmt.Errorf("job %s: %w", name, err))
			continue
		}
		converter := elasticJob{node: n, config: &c, job: job{name: name, startPaused: o.startPaused}}
		if err := converter.convert(); err != nil {
			errs = append(errs, fmt.Errorf("job %s: %w", name, err))
			continue
		}
		j := converter.job
		zoneless = zoneless || j.schedule.fires() && j.schedule.timezone == ""
		d.jobs = append(d.jobs, j)
	}
	if len(d.jobs) == 0 && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("%s has no jobs of Elastic-Job", o.source))
	}
	if zoneless && o.timezone == "" {
		d.notes = append(d.notes, "Jobs without timeZone used the time zone of their JVMs. Their schedules are in UTC here: "+
			"name the zone, or import again with --timezone.")
	}
	return d, errors.Join(errs...)
}

func matchesAny(patterns []string, name string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool {
		ok, _ := path.Match(p, name)
		return ok
	})
}

func elasticJobIntro(o elasticJobOptions) []string {
	intro := []string{fmt.Sprintf("Written by rota import elasticjob from %s.", o.source)}
	if o.startPaused {
		intro = append(intro, "Each job starts paused. Disable it in Elastic-Job and wait for its running items; then rota resume JOB starts it here.")
	}
	return intro
}

// elasticJob converts one job.
type elasticJob struct {
	node   *node
	config *jobConfig
	job    job
}

func (e *elasticJob) note(format string, args ...any) { e.job.note(fmt.Sprintf(format, args...)) }

func (e *elasticJob) convert() error {
	e.job.description = e.config.text("description")
	e.job.param = e.config.text("jobParameter")
	e.convertSchedule()
	err := errors.Join(e.convertShards(), e.convertPolicies(), e.convertWork(), e.noteNumbers())
	e.convertStrategy()
	e.convertPool()
	e.noteSettings()
	e.noteUnknown()
	e.convertState()
	return err
}

func (e *elasticJob) convertSchedule() {
	text := e.config.text("cron")
	if text == "" {
		return
	}
	s := importedSchedule{text: text, dialect: quartzDialect}
	zone := e.config.text("timeZone")
	if zone != "" {
		var ok bool
		if s.timezone, ok = convertTimeZone(zone); !ok {
			s.dropped = true
			e.note("timeZone: %s: no equal, as no zone has this offset all year. The schedule has not been written: name a zone such as Asia/Kolkata.", zone)
		}
	}
	if !s.dropped {
		in := cmp.Or(s.timezone, "UTC")
		if _, err := schedule.Quartz(text).In(in).Next(time.Unix(0, 0), 1); err != nil {
			s.dropped = true
			e.note("Rota refuses the schedule, and it has not been written: %v.", err)
		}
	}
	e.job.schedule = s
}

var gmtOffset = regexp.MustCompile(`^GMT(?:([+-])(\d{1,2})(?::?(\d{2}))?)?$`)

// convertTimeZone returns the zone of Java's custom IDs, such as GMT+08:00. The names of tzdata have
// the opposite sign.
func convertTimeZone(id string) (zone string, ok bool) {
	m := gmtOffset.FindStringSubmatch(id)
	if m == nil {
		return id, checkTimezone(id) == nil
	}
	hours, _ := strconv.Atoi(m[2])
	if m[3] != "" && m[3] != "00" {
		return "", false
	}
	sign, most := "-", 14
	if m[1] == "-" {
		sign, most = "+", 12
	}
	if hours == 0 {
		return "UTC", true
	}
	return fmt.Sprintf("Etc/GMT%s%d", sign, hours), hours <= most
}

// maxShards is the limit of executor.Job.Shards.
const maxShards = 10_000

func (e *elasticJob) convertShards() error {
	total, err := e.config.number("shardingTotalCount", 0)
	if err != nil {
		return err
	}
	if total < 1 {
		return fmt.Errorf("shardingTotalCount is %d, below 1", total)
	}
	e.job.shards = total
	if total > maxShards {
		e.note("shardingTotalCount: %d: rota refuses more than %d shards.", total, maxShards)
		return nil
	}
	params, err := executor.ParseShardParams(e.config.text("shardingItemParameters"))
	if err != nil {
		return fmt.Errorf("shardingItemParameters: %w", err)
	}
	var beyond []int
	for shard := range params {
		if shard >= total {
			beyond = append(beyond, shard)
			delete(params, shard)
		}
	}
	if len(beyond) > 0 {
		e.note("shardingItemParameters: items that do not exist are left out: %s.", shardList(beyond))
	}
	e.job.shardParams = params
	return nil
}

func (e *elasticJob) convertPolicies() error {
	monitor, err1 := e.config.flag("monitorExecution", e.config.version != yamlVersion)
	failover, err2 := e.config.flag("failover", false)
	misfire, err3 := e.config.flag("misfire", false)
	e.job.skipMissed, e.job.skipOverlapping = !misfire, !misfire
	e.job.trackClaims = !monitor
	e.job.countAsFailed = monitor && !failover
	if failover && !monitor {
		e.note("failover: true: no effect, because monitorExecution is false. With the default tracking, crashed runs are made again.")
	}
	return errors.Join(err1, err2, err3)
}

// strategies are the strategies of rota by the names of Elastic-Job: types of 3.x, and classes of 1.x
// and 2.x without their packages.
var strategies = map[string]string{
	"AVG_ALLOCATION":                        "average",
	"AverageAllocationJobShardingStrategy":  "average",
	"ODEVITY":                               "odevity",
	"OdevitySortByNameJobShardingStrategy":  "odevity",
	"ROUND_ROBIN":                           "rotate",
	"RotateServerByNameJobShardingStrategy": "rotate",
	"RoundRobinByNameJobShardingStrategy":   "rotate",
}

func (e *elasticJob) convertStrategy() {
	name, value := e.config.first("jobShardingStrategyType", "jobShardingStrategyClass")
	if value == "" {
		return
	}
	strategy, ok := strategies[baseClass(value)]
	switch {
	case ok:
		e.job.strategy = strategy
	case value == "SINGLE_SHARDING_BALANCE":
		e.note("%s: %s: not needed, as the leader spreads jobs of one shard over the fleet.", name, value)
	default:
		e.note("%s: %s: no equal, as the strategy is Java code. Write it in Go, pass it in executor.Options.Strategies, and name it.", name, value)
	}
}

// baseClass returns the name of a Java class without its package.
func baseClass(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

func (e *elasticJob) convertPool() {
	name, value := e.config.first("jobExecutorThreadPoolSizeProviderType", "jobExecutorServiceHandlerType", "executor_service_handler")
	switch baseClass(value) {
	case "", "CPU", "DefaultExecutorServiceHandler", "CPUUsageJobExecutorServiceHandler":
	case "SINGLE_THREAD", "SingleThreadJobExecutorServiceHandler":
		e.job.maxRunning = 1
	default:
		e.note("%s: %s: no equal, as the pool is Java code. Job.MaxRunning bounds the runs of a job in each process.", name, value)
	}
}

func (e *elasticJob) convertWork() error {
	typ := e.config.text("jobType")
	javaClass := e.config.text("jobClass")
	if javaClass == "" {
		javaClass = e.node.value // since 2.1.5; of a typed job it is the type
	}
	script := e.config.text("script.command.line", "scriptCommandLine")
	switch {
	case typ == "SCRIPT" || typ == "" && (javaClass == "SCRIPT" || script != ""):
		return e.convertScript(script)
	case javaClass == "HTTP" || e.config.text("http.uri") != "":
		return e.convertHTTP()
	case javaClass == "":
		return errors.New("the configuration names no class, and is no script or HTTP job")
	}
	e.job.work.class = class{
		name:      javaClass,
		dataflow:  typ == "DATAFLOW" || e.config.props["streaming.process"] != "",
		streaming: e.config.text("streaming.process", "streamingProcess") == "true",
	}
	return nil
}

// shardingContext is a template of the JSON that Elastic-Job passes to scripts and HTTP servers.
const shardingContext = `{"jobName":{{json .Job}},"taskId":{{json .ID}},"shardingTotalCount":{{.Shards}},` +
	`"jobParameter":{{json .Param}},"shardingItem":{{.Shard}},"shardingParameter":{{json .ShardParam}}}`

// convertScript converts the command of a script job, which Elastic-Job runs without a shell, with
// the context as the last argument.
func (e *elasticJob) convertScript(line string) error {
	words, err := splitCommand(line)
	if err != nil {
		return fmt.Errorf("the command of the script %q: %w", line, err)
	}
	e.job.work.argv = words[:1:1] // the program is no template
	for _, w := range words[1:] {
		e.job.work.argv = append(e.job.work.argv, escapeTemplate(w))
	}
	e.job.work.argv = append(e.job.work.argv, shardingContext)
	e.note("The last argument is the sharding context, as in Elastic-Job. Its taskId is the ID of the attempt at one shard.")
	return nil
}

// splitCommand splits a command as commons-exec does: at spaces outside of quotation marks. A
// backslash has no meaning.
func splitCommand(line string) (words []string, err error) {
	var word strings.Builder
	var quote rune
	inWord := false
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == ' ':
			if inWord {
				words = append(words, word.String())
			}
			word.Reset()
			inWord = false
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if inWord {
		words = append(words, word.String())
	}
	switch {
	case quote != 0:
		return nil, errors.New("a quotation mark is not closed")
	case len(words) == 0:
		return nil, errors.New("it is empty")
	}
	return words, nil
}

// escapeTemplate returns a template whose result is s.
func escapeTemplate(s string) string { return strings.ReplaceAll(s, "{{", `{{"{{"}}`) }

func (e *elasticJob) convertHTTP() error {
	connect, err1 := e.config.number("http.connect.timeout.milliseconds", 3000)
	read, err2 := e.config.number("http.read.timeout.milliseconds", 5000)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	r := &request{
		method:  strings.ToUpper(e.config.text("http.method")),
		url:     e.config.text("http.uri"),
		header:  map[string]string{"shardingContext": shardingContext},
		timeout: time.Duration(connect+read) * time.Millisecond,
	}
	if r.url == "" {
		return errors.New("http.uri is missing")
	}
	r.method = cmp.Or(r.method, "GET")
	if slices.Contains([]string{"POST", "PUT", "DELETE"}, r.method) { // others had no body
		r.body = escapeTemplate(e.config.text("http.data"))
	}
	contentType := e.config.text("http.content.type")
	if contentType == "" && r.body != "" {
		contentType = "application/x-www-form-urlencoded" // Java's default
	}
	if contentType != "" {
		r.header["Content-Type"] = escapeTemplate(contentType)
	}
	if strings.Contains(r.url, "{{") {
		e.note("http.uri contains {{, which begins a template in rota: escape it.")
	}
	e.job.work.request = r
	e.note("A response with a status of 400 or above fails the run. In Elastic-Job it was a success.")
	return nil
}

func (e *elasticJob) noteNumbers() error {
	skew, err1 := e.config.number("maxTimeDiffSeconds", -1)
	if skew >= 0 {
		e.note("maxTimeDiffSeconds: %d: no equal for a job, as instances compare their clocks: executor.Options.MaxClockSkew, 5 s by default.", skew)
	}
	reconcile, err2 := e.config.number("reconcileIntervalMinutes", 0)
	if reconcile > 0 && reconcile != 10 {
		e.note("reconcileIntervalMinutes: %d: no equal, because the leader plans after each change.", reconcile)
	}
	port, err3 := e.config.number("monitorPort", -1)
	if port >= 0 {
		e.note("monitorPort: %d: no equal, because rota job and rota dump read the store.", port)
	}
	return errors.Join(err1, err2, err3)
}

// noteSettings adds notes for settings that have no equal.
func (e *elasticJob) noteSettings() {
	c := e.config
	name, value := c.first("jobErrorHandlerType", "job_exception_handler")
	switch baseClass(value) {
	case "", "LOG", "DefaultJobExceptionHandler":
	default:
		e.note("%s: %s: no equal, because a failed run is logged and counted, and no message is sent: alert on failures, or observe them with executor.Observer.",
			name, value)
	}
	if l := c.lists["jobListenerTypes"]; len(l) > 0 {
		e.note("jobListenerTypes: %s: no equal, because listeners are Java code. executor.Middleware calls Go code before and after each run.", strings.Join(l, ", "))
	}
	if l := c.lists["jobExtraConfigurations"]; len(l) > 0 {
		e.note("jobExtraConfigurations: %s: no equal. Package history records runs in a database.", strings.Join(l, ", "))
	}
	for _, n := range []struct{ name, without, text string }{
		{"overwrite", "false", "no equal, because the definition with the highest revision is in force. Raise the revision with each change."},
		{"staticSharding", "false", "no equal, because the strategy sticky moves a shard only if its owner has expired or has too many."},
		{"label", "", "no equal, because it had no effect. Job.RunOn restricts a job to instances with labels."},
		{"processCountIntervalSeconds", "", "handler.Dataflow.LogEvery is its equal."},
		{"fetchDataCount", "", "handler.Dataflow.PageSize is its equal."},
		{"concurrentDataProcessThreadCount", "", "handler.Dataflow.Workers is its equal."},
	} {
		if v := c.fields[n.name]; v != "" && v != n.without {
			e.note("%s: %s: %s", n.name, v, n.text)
		}
	}
}

// knownFields are the settings that the other methods convert.
var knownFields = []string{
	"concurrentDataProcessThreadCount", "cron", "description", "disabled", "executor_service_handler", "failover", "fetchDataCount",
	"http.connect.timeout.milliseconds", "http.content.type", "http.data", "http.method", "http.read.timeout.milliseconds", "http.uri",
	"jobClass", "jobErrorHandlerType", "jobExecutorServiceHandlerType", "jobExecutorThreadPoolSizeProviderType", "jobExtraConfigurations",
	"jobListenerTypes", "jobName", "jobParameter", "jobShardingStrategyClass", "jobShardingStrategyType", "jobType", "job_exception_handler",
	"label", "maxTimeDiffSeconds", "misfire", "monitorExecution", "monitorPort", "overwrite", "processCountIntervalSeconds",
	"reconcileIntervalMinutes", "script.command.line", "scriptCommandLine", "shardingItemParameters", "shardingTotalCount", "staticSharding",
	"streaming.process", "streamingProcess", "timeZone",
}

// noteUnknown adds a note for settings that no other method converts. It leaves out their values,
// which may be secrets.
func (e *elasticJob) noteUnknown() {
	set := maps.Clone(e.config.fields)
	maps.DeleteFunc(set, func(_, value string) bool { return value == "" })
	if unknown := slices.Concat(unknownNames(set), unknownNames(e.config.lists)); len(unknown) > 0 {
		e.note("%s: not known to this import, and left out.", strings.Join(unknown, ", "))
	}
	if props := unknownNames(e.config.props); len(props) > 0 {
		e.note("props %s: no equal, because a handler is configured in its code. The values are not shown here.", strings.Join(props, ", "))
	}
}

func unknownNames[V any](settings map[string]V) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(settings)), func(name string) bool { return slices.Contains(knownFields, name) })
}

// shardList returns shards in order, such as 0, 3, 4.
func shardList(shards []int) string {
	slices.Sort(shards)
	texts := make([]string, len(shards))
	for i, s := range shards {
		texts[i] = strconv.Itoa(s)
	}
	return strings.Join(texts, ",")
}
