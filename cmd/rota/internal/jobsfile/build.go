package jobsfile

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/handler"
	"github.com/rota-dev/rota/internal/secret"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

// builder makes jobs of their specs.
type builder struct {
	*reader
	host  Host
	file  *File
	noted map[string]bool // the notes of defaults come with each job
	all   []executor.Job  // all jobs of the file, in its order, also those that are defined as data
}

// addJob adds the job of a spec to the file, unless it is defined as data, and reports the problems of its values together.
func (b *builder) addJob(s *jobSpec) {
	j := executor.Job{
		Name: s.name, Description: s.Description, Schedule: b.schedule(s),
		Shards: s.Shards.Count, ShardParams: s.Shards.Params, Param: s.Param, Revision: b.file.Revision,
		Strategy: s.Strategy, RunOn: s.RunOn, Pool: s.Pool, Timeout: s.Timeout, OnCrash: s.OnCrash, OnMisfire: s.Misfire, OnOverlap: s.Overlap,
		CatchupWindow: s.CatchupWindow, Tracking: s.Tracking, StartPaused: s.StartPaused,
		MaxAttempts: s.MaxAttempts, Retry: s.Retry, MaxRunning: s.MaxRunning,
	}
	if s.Revision != nil {
		j.Revision = *s.Revision
	}
	b.all = append(b.all, j)
	if s.isDefined() {
		return
	}
	job := Job{Job: j, OwnRevision: s.Revision != nil, SecretLog: s.SecretLog, Digest: s.digest()}
	job.Local = job.Digest[:8]
	job.Handler, job.Work = b.handler(s)
	b.file.Jobs = append(b.file.Jobs, job)
}

// schedule returns the schedule of a job, or reports the first of its keys that makes it invalid.
func (b *builder) schedule(s *jobSpec) schedule.Schedule {
	var base schedule.Schedule
	name := ""
	for _, k := range scheduleKeys {
		if u, ok := s.given[k]; ok && !u.broken {
			name = k
		}
	}
	switch name {
	case "":
		return base
	case "schedule":
		base = schedule.Cron(s.Schedule)
	case "every":
		base = schedule.Every(s.Every)
	case "quartz":
		base = schedule.Quartz(s.Quartz)
	case "at":
		base = schedule.At(s.At...)
	case "fixed_delay":
		base = schedule.FixedDelay(s.FixedDelay)
	case "always":
		base = schedule.Always()
	case "after":
		base = s.After.schedule()
	}
	for _, step := range []struct {
		key   string
		apply func(schedule.Schedule) schedule.Schedule
	}{
		{name, func(x schedule.Schedule) schedule.Schedule { return x }},
		{"timezone", func(x schedule.Schedule) schedule.Schedule { return x.In(s.Timezone) }},
		{"from", func(x schedule.Schedule) schedule.Schedule { return x.From(s.From) }},
		{"until", func(x schedule.Schedule) schedule.Schedule { return x.Until(s.Until) }},
		{"spread", func(x schedule.Schedule) schedule.Schedule { return x.Spread(s.Spread) }},
	} {
		u, ok := s.given[step.key]
		if !ok || u.broken || !u.own && step.key == "timezone" && s.Timezone == "" {
			continue
		}
		next := step.apply(base)
		if _, err := next.Next(time.Time{}, 0); err != nil {
			b.reportAt(u.path, u.value, "%s", explainSchedule(name, s.Schedule, ruleOf(err)))
			s.broken = true
			return schedule.Schedule{}
		}
		base = next
	}
	return base
}

// schedule returns the schedule that a describes.
func (a after) schedule() schedule.Schedule {
	s := schedule.AfterJob(a.Jobs[0], a.Jobs[1:]...)
	switch a.On {
	case "end":
		return s.OnEnd()
	case "failure":
		return s.OnFailure()
	}
	return s
}

// ruleOf returns an error of executor without the text of the schedule, which the file shows.
func ruleOf(err error) error {
	if rule := errors.Unwrap(err); rule != nil {
		return rule
	}
	return err
}

// explainSchedule adds what to write instead of a text that is not for cron.
func explainSchedule(key, text string, rule error) string {
	if key == "schedule" {
		if rest, ok := strings.CutPrefix(text, "@every "); ok {
			return fmt.Sprintf("%q is not a cron text: write every: %s", text, rest)
		}
		if s, err := schedule.Parse(text); err == nil {
			return fmt.Sprintf("%q is not a cron text, but a schedule of another kind: use the key for it (%v)", text, s)
		}
		if _, err := schedule.Quartz(text).Next(time.Time{}, 0); err == nil {
			return fmt.Sprintf("%q is a text of Quartz: write quartz: %q", text, text)
		}
	}
	return rule.Error()
}

// fieldKeys maps the fields of executor.Job to keys of a job. An empty key is the job itself.
var fieldKeys = map[string]string{
	"Name": "", "Description": "description", "Schedule": "", "Handler": "", "Middleware": "", "Shards": "shards", "ShardParams": "shards",
	"Param": "param", "Revision": "revision", "Strategy": "strategy", "RunOn": "run_on", "Pool": "pool", "Timeout": "timeout", "OnCrash": "on_crash",
	"OnMisfire": "misfire", "OnOverlap": "overlap", "CatchupWindow": "catchup_window", "Tracking": "tracking", "StartPaused": "start_paused",
	"MaxAttempts": "max_attempts", "Retry": "retry", "MaxRunning": "max_running", "Local": "",
	"MaxJobs": "max_jobs", // of executor.Kind
}

// localFields are the fields of executor.Job that are not stored, and the revision.
var localFields = []string{"Revision", "MaxRunning", "Local", "Handler", "Middleware"}

// DifferingKeys returns the keys for the stored parts in which two jobs differ, apart from the revision. All keys of a
// schedule are the key schedule.
func DifferingKeys(a, b executor.Job) (keys []string) {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.NumField() {
		field := x.Type().Field(i).Name
		if slices.Contains(localFields, field) || reflect.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()) {
			continue
		}
		keys = append(keys, cmp.Or(fieldKeys[field], strings.ToLower(field)))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// checkDefinitions reports the rules of package executor that jobs break.
func (b *builder) checkDefinitions(specs []jobSpec) {
	var all []executor.Job
	for _, j := range b.all {
		j.Handler = executor.HandlerFunc(func(context.Context, *executor.Run) error { return nil }) // handlers have been checked
		all = append(all, j)
	}
	b.checkFollowed(specs)
	b.checkCircles(specs)
	if register(all...) == nil {
		return
	}
	for i := range specs {
		err := register(all[i])
		joined, ok := err.(interface{ Unwrap() []error })
		if err == nil || !ok {
			continue
		}
		for _, err := range joined.Unwrap() {
			rule := strings.TrimPrefix(err.Error(), fmt.Sprintf("%v %.100q: ", executor.ErrInvalidJob, specs[i].name))
			b.reportRule(&specs[i], rule)
		}
	}
}

// checkFollowed reports jobs of the file that others follow and that cannot be followed. Jobs that are not in
// the file may be of other processes.
func (b *builder) checkFollowed(specs []jobSpec) {
	followable := map[string]string{} // why not, by job
	for _, j := range b.all {
		kind, _, _ := strings.Cut(j.Schedule.String(), " ")
		switch {
		case kind == "fixed" || kind == "always":
			followable[j.Name] = "has fixed_delay or always, and its shards have no fires in common"
		case j.Tracking == executor.TrackClaims:
			followable[j.Name] = `has tracking "claims", which does not record ends`
		}
	}
	for i := range specs {
		for _, name := range b.all[i].Schedule.After() {
			if why := followable[name]; why != "" {
				b.reportOf(&specs[i], fmt.Sprintf("job %q cannot be followed: it %s", name, why), "after")
			}
		}
	}
}

// checkCircles reports jobs that follow each other in a circle.
func (b *builder) checkCircles(specs []jobSpec) {
	var all []executor.Job
	of := map[string]*jobSpec{}
	for i, j := range b.all {
		if j.Schedule.After() != nil && !specs[i].broken {
			all = append(all, executor.Job{Name: j.Name, Schedule: j.Schedule, Handler: elsewhere(nil)})
			of[j.Name] = &specs[i]
		}
	}
	for {
		err := register(all...)
		i := slices.IndexFunc(all, func(j executor.Job) bool {
			return err != nil && strings.HasPrefix(err.Error(), fmt.Sprintf("%v %.100q: Schedule: it follows itself", executor.ErrInvalidJob, j.Name))
		})
		if i < 0 {
			return
		}
		_, rule, _ := strings.Cut(err.Error(), "Schedule: ")
		b.reportOf(of[all[i].Name], rule, "after")
		all = slices.Delete(all, i, i+1) // for other circles
	}
}

// register returns the problems of jobs, without a fleet.
func register(jobs ...executor.Job) error {
	ex, err := executor.New(memory.New().Client("check"), "check", executor.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	return ex.Register(jobs...)
}

// reportRule reports a rule of executor, which begins with the name of a field, at its key.
func (b *builder) reportRule(s *jobSpec, text string) {
	field, rule, _ := strings.Cut(text, ": ")
	if u, ok := s.given[fieldKeys[field]]; ok {
		if !u.own {
			rule = fmt.Sprintf("with job %s: %s", s.name, rule)
		}
		if !u.broken {
			b.reportAt(u.path, u.value, "%s", inKeys(rule))
		}
		return
	}
	b.reportAt(s.path, s.at, "%s", inKeys(rule))
}

// inKeys replaces names of package executor by those of the file.
func inKeys(rule string) string {
	return strings.NewReplacer("TrackRuns", `tracking "runs"`, "TrackClaims", `tracking "claims"`, "MaxInterval", "max_interval",
		"Initial", "initial", "Factor", "factor", "Jitter", "jitter", "with a schedule that counts", "with fixed_delay and always, which count",
		"both OK and Permanent", "both ok_exit and permanent_exit").Replace(rule)
}

// runsHere reports whether the instance has the labels of a job. Those of a kind are a default, so its jobs may run anywhere.
func (b *builder) runsHere(s *jobSpec) bool {
	if b.host.Labels == nil || strings.HasPrefix(s.path, "kinds.") {
		return true
	}
	for k, v := range s.RunOn {
		if own, ok := b.host.Labels[k]; !ok || own != v {
			return false
		}
	}
	return true
}

// handler returns the handler of a job and its description.
func (b *builder) handler(s *jobSpec) (executor.Handler, string) {
	u := func(key string) bool { v, ok := s.given[key]; return ok && !v.broken }
	var h executor.Handler
	var work string
	switch {
	case u("command"):
		h, work = b.command(s), strings.Join(s.Command, " ")
	case u("shell"):
		h, work = b.command(s), strings.TrimSpace(s.Shell)
	case u("http"):
		h, work = b.request(s), requestWork(s.HTTP)
	default:
		return nil, ""
	}
	if !b.runsHere(s) {
		return elsewhere(s.RunOn), work
	}
	return h, work
}

// elsewhere is the handler of a job that this instance cannot own for lack of labels. It has no
// checks, as programs and files may be missing here.
func elsewhere(labels map[string]string) executor.Handler {
	return executor.HandlerFunc(func(context.Context, *executor.Run) error {
		return fmt.Errorf("this instance lacks the labels %v, with which it may run the job", labels)
	})
}

func requestWork(s httpSpec) string {
	method := s.Method
	if method == "" {
		method = http.MethodPost
	}
	return method + " " + s.URL
}

// command returns the handler of a command or script.
func (b *builder) command(s *jobSpec) executor.Handler {
	c := &handler.Cmd{Dir: s.Dir, OK: s.OKExit, Permanent: s.PermanentExit, Env: b.environment(s), Logger: b.host.Logger, LogLimit: s.Output}
	if b.host.Secrets != nil {
		c.Filter = b.host.Secrets.Filter
	}
	if s.KillAfter != nil {
		if c.KillAfter = *s.KillAfter; c.KillAfter == 0 {
			c.KillAfter = -1 // at once
		}
	}
	if s.Shell != "" {
		c.Path, c.Script = s.Interpreter, s.Shell
	} else if len(s.Command) > 0 {
		c.Path, c.Args = s.Command[0], s.Command[1:]
	}
	switch u, isShell := s.given["shell"]; {
	case isShell && s.Shell == "":
		b.reportAt(u.path, u.value, "is empty")
		return c
	case !isShell && c.Path == "":
		b.reportElement(s, "command", 0, "is empty; it is the program")
		return c
	}
	noDir := s.Dir != "" && b.host.Programs && b.runsHere(s) && !isDirectory(s.Dir)
	if noDir {
		b.reportOf(s, fmt.Sprintf("is %q, which is no directory on this host; a relative path is relative to the working directory of rota run", s.Dir), "dir")
	}
	for _, err := range unjoin(c.Check()) {
		if !noDir || !strings.HasPrefix(err.Error(), "Path: ") { // a program may be below the directory
			b.reportProgram(s, err.Error())
		}
	}
	return c
}

// ofProgram matches an error of handler.Cmd and captures the field and the rule.
var ofProgram = regexp.MustCompile(`^(?:template: )?(Path|Args\[(\d+)\]|Env\[\d+\])(?::\d+)*: ((?s).*)$`)

// reportProgram reports an error of handler.Cmd at its key.
func (b *builder) reportProgram(s *jobSpec, text string) {
	m := ofProgram.FindStringSubmatch(text)
	switch {
	case m == nil:
		b.reportOf(s, inKeys(text), "permanent_exit", "ok_exit", "command", "shell")
	case m[1] == "Path" && (!b.host.Programs || !b.runsHere(s)):
	case m[1] == "Path" && s.Shell != "":
		b.reportOf(s, "cannot run on this host: "+m[3], "interpreter", "shell")
	case m[1] == "Path":
		rule := "cannot run on this host: " + m[3]
		if path := s.Command[0]; strings.Contains(path, "/") && !strings.HasPrefix(path, "/") {
			rule += "; a relative path is relative to dir, by default the working directory of rota run"
		}
		b.reportElement(s, "command", 0, rule)
	case m[2] != "":
		i, _ := strconv.Atoi(m[2]) // digits
		b.reportElement(s, "command", i+1, "is not a template of a run: "+m[3])
	default:
		b.reportOf(s, m[3], "env")
	}
}

// reportOf reports a problem at the first of keys that the job has.
func (b *builder) reportOf(s *jobSpec, rule string, keys ...string) {
	s.broken = true
	for _, key := range keys {
		if u, ok := s.given[key]; ok {
			b.reportAt(u.path, u.value, "%s", rule)
			return
		}
	}
	b.reportAt(s.path, s.at, "%s", rule)
}

func (b *builder) reportElement(s *jobSpec, key string, i int, rule string) {
	s.broken = true
	path := fmt.Sprintf("%s[%d]", s.given[key].path, i)
	b.reportAt(path, b.places[path].value, "%s", rule)
}

// environment returns the environment of a program.
func (b *builder) environment(s *jobSpec) []string {
	env := slices.DeleteFunc(slices.Clone(b.host.Environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return name != "" && slices.Contains(b.file.secretEnv(), name)
	})
	if env == nil {
		env = []string{} // nil would mean the whole environment
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		path, at := b.envPlace(s, name)
		if name == "" || strings.ContainsAny(name, "=\x00") {
			b.reportAt(path, at.key, "is not the name of a variable")
			continue
		}
		switch {
		case slices.Contains(runVariables, name):
			b.note("%s has no effect: each run sets this variable", path)
		case !shellName.MatchString(name):
			b.note("%s is not a name that shells can read: letters, digits and underscores", path)
		}
		text, ok := b.resolve(s, path, at.value, s.Env[name])
		if strings.Contains(text, "\x00") {
			b.reportAt(path, at.value, "the value has a NUL byte")
			continue
		}
		if ok {
			env = append(env, name+"="+text)
		}
	}
	return env
}

// runVariables are the variables that package handler sets for each run.
var runVariables = []string{
	"ROTA_ID", "ROTA_KEY", "ROTA_JOB", "ROTA_INSTANCE", "ROTA_SHARD", "ROTA_SHARDS", "ROTA_PARAM", "ROTA_SHARD_PARAM", "ROTA_FIRE", "ROTA_ATTEMPT",
	"ROTA_RETRIES", "ROTA_REASON", "ROTA_TRIGGER", "ROTA_FENCE", "ROTA_RUN",
}

// shellName matches the names of variables that shells can read.
var shellName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// note adds a note to the file, once.
func (b *builder) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !b.noted[text] {
		b.noted[text] = true
		b.file.Notes = append(b.file.Notes, text)
	}
}

// envPlace returns where a variable is: in the job, or in defaults.
func (b *builder) envPlace(s *jobSpec, name string) (string, place) {
	path := joinPath(joinPath(s.path, "env"), name)
	if p, ok := b.places[path]; ok {
		return path, p
	}
	path = joinPath("defaults.env", name)
	return path, b.places[path]
}

// secretEnv returns the names of the variables that hold credentials, of which a program gets those that its own env names.
func (f *File) secretEnv() []string {
	names := append([]string{
		f.Registry.UserEnv, f.Registry.PasswordEnv, f.History.UserEnv, f.History.PasswordEnv, "ROTA_USER", "ROTA_PASSWORD", "ROTA_HISTORY",
	}, f.fromEnv...)
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// resolve returns a value that may be in a file or a variable. If the host does not have it, resolve
// reports that and returns false.
func (b *builder) resolve(s *jobSpec, path string, at *yaml.Node, v value) (string, bool) {
	text, err := b.host.lookup(v)
	if err != nil && b.runsHere(s) {
		b.reportAt(path, at, "%v", err)
	}
	if err == nil && v.isElsewhere() && !b.host.Secrets.Add(text) {
		b.file.Warnings = append(b.file.Warnings, fmt.Sprintf("%s has a value of fewer than %d bytes, which is not masked in logs and errors", path, secret.MinLength))
	}
	return text, err == nil
}

// isElsewhere reports whether the text is in a file or a variable.
func (v value) isElsewhere() bool { return v.FromFile != "" || v.FromEnv != "" }

// variables returns the environment variables that a job names.
func (s *jobSpec) variables() (names []string) {
	for _, values := range []map[string]value{s.Env, s.HTTP.Header} {
		for _, v := range values {
			if v.FromEnv != "" {
				names = append(names, v.FromEnv)
			}
		}
	}
	return names
}

// lookup returns a value, and has it masked in texts from now on. Without the functions of the host it returns an empty text for a value
// that is elsewhere.
func (h Host) lookup(v value) (text string, err error) {
	if v.isElsewhere() {
		defer func() { h.Secrets.Add(text) }()
	}
	switch {
	case v.FromFile != "" && h.ReadFile != nil:
		content, err := h.ReadFile(v.FromFile)
		return strings.TrimRight(string(content), "\r\n"), err
	case v.FromEnv != "" && h.LookupEnv != nil:
		text, ok := h.LookupEnv(v.FromEnv)
		if !ok {
			return "", fmt.Errorf("the environment variable %s is not set", v.FromEnv)
		}
		return text, nil
	}
	return v.Text, nil
}

// request returns the handler of a request.
func (b *builder) request(s *jobSpec) executor.Handler {
	path := s.given["http"].path
	r := handler.Request{
		Method: s.HTTP.Method, URL: s.HTTP.URL, Body: s.HTTP.Body, Header: map[string]string{},
		OK: s.HTTP.OK, Permanent: s.HTTP.Permanent, Timeout: s.HTTP.Timeout,
	}
	secrets := map[string]value{}
	for name, v := range s.HTTP.Header {
		r.Header[name] = v.Text
		if v.FromFile == "" && v.FromEnv == "" {
			continue
		}
		secrets[name] = v
		if at, ok := b.places[joinPath(path+".header", name)]; ok {
			b.resolve(s, joinPath(path+".header", name), at.value, v)
		}
	}
	config, err := s.HTTP.TLS.load(b.host)
	if err != nil && b.runsHere(s) {
		b.reportAt(path+".tls", b.places[path+".tls"].value, "%v", err)
	}
	if len(secrets) > 0 || config != nil {
		r.Client = &http.Client{Transport: newTransport(config, secrets, b.host)}
	}
	h := handler.HTTP(r)
	if c, ok := h.(executor.Checker); ok {
		for _, err := range unjoin(c.Check()) {
			b.reportRequest(s, err.Error())
		}
	}
	if b.host.Secrets != nil {
		return &maskedRequest{h, b.host.Secrets}
	}
	return h
}

// maskedRequest masks secrets in the errors of a handler of requests, which have parts of responses.
type maskedRequest struct {
	executor.Handler
	secrets *secret.Masker
}

// Check implements executor.Checker.
func (m *maskedRequest) Check() error {
	if c, ok := m.Handler.(executor.Checker); ok {
		return c.Check()
	}
	return nil
}

// Handle implements executor.Handler.
func (m *maskedRequest) Handle(ctx context.Context, r *executor.Run) error {
	err := m.Handler.Handle(ctx, r)
	var status *handler.StatusError
	if errors.As(err, &status) {
		status.Body = m.secrets.Mask(status.Body)
	}
	return m.secrets.Error(err)
}

// ofRequest matches an error of handler.HTTP and captures the field, the name of a header field, and
// the rule.
var ofRequest = regexp.MustCompile(`^(?:template: )?(URL|Method|Body|Header|OK|Permanent)(?: ([^:\s]+))?(?::\d+)*: ((?s).*)$`)

// reportRequest reports an error of handler.HTTP at its key.
func (b *builder) reportRequest(s *jobSpec, text string) {
	s.broken = true
	path, rule := s.given["http"].path, text
	if m := ofRequest.FindStringSubmatch(text); m != nil {
		path, rule = path+"."+strings.ToLower(m[1]), m[3]
		if m[2] != "" {
			path = joinPath(path, m[2])
		}
		if inner, ok := strings.CutPrefix(rule, "template: "+m[1]+": "); ok || strings.HasPrefix(text, "template: ") {
			rule = "is not a template of a run: " + inner
		}
	}
	at, ok := b.places[path]
	if !ok {
		path, at = s.given["http"].path, s.given["http"].place
	}
	b.reportAt(path, at.value, "%s", rule)
}

// newTransport returns a transport with certificates, which adds header fields that the handler does
// not know. Their values are read for each request, so that a file may change.
func newTransport(config *tls.Config, secrets map[string]value, host Host) http.RoundTripper {
	base, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		base = &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	}
	if config != nil {
		base = base.Clone()
		base.TLSClientConfig = config
	}
	if len(secrets) == 0 {
		return base
	}
	return &secretHeader{base, secrets, host}
}

// secretHeader adds header fields to requests.
type secretHeader struct {
	base    http.RoundTripper
	secrets map[string]value
	host    Host
}

func (t *secretHeader) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	for name, v := range t.secrets {
		text, err := t.host.lookup(v)
		if err != nil {
			if req.Body != nil {
				_ = req.Body.Close() // as a RoundTripper has to
			}
			return nil, fmt.Errorf("header %s: %w", name, err)
		}
		req.Header.Set(name, text)
	}
	return t.base.RoundTrip(req)
}

// load returns the configuration that t describes, nil if it describes none or the host does not
// read files.
func (t TLSFiles) load(host Host) (*tls.Config, error) {
	if t == (TLSFiles{}) || host.ReadFile == nil {
		return nil, nil
	}
	return t.Config(host.ReadFile)
}

// Config returns the configuration that t describes, nil for the zero value.
func (t TLSFiles) Config(readFile func(string) ([]byte, error)) (*tls.Config, error) {
	if t == (TLSFiles{}) {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		content, err := readFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read ca_file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(content) {
			return nil, fmt.Errorf("ca_file %s holds no certificate", t.CAFile)
		}
	}
	if t.CertFile == "" && t.KeyFile == "" {
		return c, nil
	}
	certificate, err := readFile(t.CertFile)
	if err != nil {
		return nil, fmt.Errorf("read cert_file: %w", err)
	}
	secret, err := readFile(t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read key_file: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, secret)
	if err != nil {
		return nil, fmt.Errorf("cert_file %s with key_file %s: %w", t.CertFile, t.KeyFile, err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

// unjoin returns the errors of an errors.Join.
func unjoin(err error) []error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// digest returns a digest of the local part of a job.
func (s *jobSpec) digest() string {
	content, err := json.Marshal(struct {
		Command            []string
		Shell, Interpreter string
		Dir                string
		Env                map[string]value
		KillAfter          *time.Duration
		OK, Permanent      []int
		Output             int  `json:",omitempty"`
		SecretLog          bool `json:",omitempty"`
		HTTP               httpSpec
	}{s.Command, s.Shell, s.Interpreter, s.Dir, s.Env, s.KillAfter, s.OKExit, s.PermanentExit, s.Output, s.SecretLog, s.HTTP})
	if err != nil {
		panic(err) // cannot fail: texts and numbers
	}
	return shortDigest(content)
}

// Digest identifies the local parts of all jobs and kinds.
func (f *File) Digest() string {
	var lines []string
	for _, j := range f.Jobs {
		lines = append(lines, strconv.Quote(j.Name)+" "+j.Digest)
	}
	for _, k := range f.Kinds {
		lines = append(lines, "kind "+strconv.Quote(k.Name)+" "+k.Digest)
	}
	slices.Sort(lines)
	return shortDigest([]byte(strings.Join(lines, "\n")))
}

func shortDigest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:6])
}
