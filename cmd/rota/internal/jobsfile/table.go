package jobsfile

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/schedule"
)

// The keys of which a job has exactly one.
var (
	scheduleKeys = []string{"schedule", "every", "quartz", "at", "fixed_delay", "always", "after", "on"}
	workKeys     = []string{"command", "shell", "http"}   // of a kind, and of a job that rota run runs
	jobWorkKeys  = append(slices.Clone(workKeys), "kind") // of a job
)

// The keys with which others apply.
var (
	withZone    = []string{"schedule", "quartz"}
	withFires   = []string{"schedule", "every", "quartz", "at"}
	withMissed  = []string{"schedule", "every", "quartz", "at", "after"}
	withProgram = []string{"command", "shell"}
	withKind    = []string{"kind"}
)

// fileGuesses are keys that users try at the top of a file.
var fileGuesses = map[string]string{
	"job": "jobs", "tasks": "jobs", "schedules": "jobs", "default": "defaults", "store": "registry", "etcd": "registry", "zookeeper": "registry", "pool": "pools",
	"timezone": "defaults: {timezone: ...}",
}

// fileFields are the keys of a file, apart from defaults and jobs.
func fileFields() []field[fileSpec] {
	return []field[fileSpec]{
		key("version", oneVersion(), func(f *fileSpec) *int { return &f.Version }, "1",
			"The format of the file."),
		key("revision", number(0), func(f *fileSpec) *int { return &f.Revision }, "0",
			"The revision of all jobs of the file. The highest revision in the fleet is in force: raise it with each change, or pass `--revision`. With the registry `memory` it is not needed."),
		key("namespace", text(), func(f *fileSpec) *string { return &f.Namespace }, "`default`",
			"The namespace of the jobs. Flag `--namespace` and `ROTA_NAMESPACE` go first."),
		key("group", text(), func(f *fileSpec) *string { return &f.Group }, "`default`",
			"The group of instances that share a leader. Flag `--group` and `ROTA_GROUP` go first."),
		key("registry", registryShape(), func(f *fileSpec) *Registry { return &f.Registry }, "`memory`",
			"The store: `memory` for a single process, `etcd://HOST:PORT,...`, `zk://HOST:PORT,...` or `postgres://HOST:PORT,.../DATABASE`; a map if it needs credentials or TLS. Flag `--registry` and `ROTA_REGISTRY` go first."),
		key("history", historyShape(), func(f *fileSpec) *History { return &f.History }, "none",
			"Where each process records the runs that have ended: `sqlite:FILE`, `postgres://HOST/DATABASE`, `mysql://HOST/DATABASE`, or `jsonl:FILE` for lines of JSON; a relative FILE is relative to the directory of this file; a map if it needs a password or other settings."),
		key("notify", notifyShape(), func(f *fileSpec) *notifySpec { return &f.Notify }, "none",
			"The receivers of messages when jobs fail, are late, have no owner, or have recovered."),
		key("pools", poolsShape(), func(f *fileSpec) *map[string]int { return &f.Pools }, "none",
			"The sizes of [pools](../guide/pools.md#in-a-jobs-file) by name: `{db: 8}`. `rota run` and `rota define -f` set them for pools without a size; a size that an operator or another file has set stays."),
		key("defaults", defaultsShape(), func(f *fileSpec) *jobSpec { return &f.Defaults }, "none",
			"Keys of jobs, for each job that does not have them and to which they apply. The variables of `env` are merged, other values are replaced as a whole."),
		key("kinds", kindsShape(), func(f *fileSpec) *[]jobSpec { return &f.Kinds }, "none",
			"The kinds by name: the work of jobs that `rota define` defines. A kind has the keys of a job, but those of its schedule. `defaults` do not apply to it."),
		key("jobs", jobsShape(), func(f *fileSpec) *[]jobSpec { return &f.Jobs }, "",
			"The jobs by name. A file without kinds needs one."),
	}
}

func oneVersion() shape[int] {
	return shape[int]{"`1`", map[string]any{"const": 1}, func(r *reader, n *yaml.Node) (int, bool) {
		if n.Kind != yaml.ScalarNode || n.Value != "1" || n.ShortTag() != "!!int" {
			r.report(n, "is %s, and this version of rota reads version 1 only", describeNode(n))
			return 0, false
		}
		return 1, true
	}}
}

// registryFields are the keys of a registry that is a map.
func registryFields() []field[Registry] {
	return []field[Registry]{
		key("url", urlShape(), func(r *Registry) *string { return &r.URL }, "", "The address.").require(),
		key("user_file", text(), func(r *Registry) *string { return &r.UserFile }, "none", "A file that holds the name of the user."),
		key("user_env", text(), func(r *Registry) *string { return &r.UserEnv }, "none", "An environment variable that holds the name of the user."),
		key("password_file", text(), func(r *Registry) *string { return &r.PasswordFile }, "none", "A file that holds the password."),
		key("password_env", text(), func(r *Registry) *string { return &r.PasswordEnv }, "none", "An environment variable that holds the password. Commands do not inherit it."),
		key("tls", tlsShape(registryTLSFields()), func(r *Registry) *TLSFiles { return &r.TLS }, "no TLS", "TLS with the store."),
	}
}

// registryTLSFields are the keys of the TLS of a registry.
func registryTLSFields() []field[TLSFiles] {
	return append([]field[TLSFiles]{
		key("enabled", boolean(), func(t *TLSFiles) *bool { return &t.Enabled }, "`true` with another key", "Whether connections use TLS."),
	}, tlsFields()...)
}

// tlsFields are the keys of TLS files.
func tlsFields() []field[TLSFiles] {
	type t = TLSFiles
	return []field[t]{
		key("ca_file", text(), func(v *t) *string { return &v.CAFile }, "the system's", "The certificates of trusted authorities."),
		key("cert_file", text(), func(v *t) *string { return &v.CertFile }, "none", "The client certificate."),
		key("key_file", text(), func(v *t) *string { return &v.KeyFile }, "none", "The key of the client certificate."),
		key("server_name", text(), func(v *t) *string { return &v.ServerName }, "the host", "The name that the server's certificate must have."),
	}
}

func registryShape() shape[Registry] {
	byURL := convert(urlShape(), func(url string) Registry { return Registry{URL: url} })
	whole := object("map", map[string]string{"user": "user_env or user_file", "username": "user_env or user_file", "password": "password_env or password_file", "endpoints": "url", "address": "url"}, registryFields())
	read := whole.read
	whole.read = func(r *reader, n *yaml.Node) (Registry, bool) {
		v, ok := read(r, n)
		for _, pair := range [][2]string{{"user_file", "user_env"}, {"password_file", "password_env"}} {
			if at, both := r.places[joinPath(r.path, pair[1])]; both && has(n, pair[0]) && has(n, pair[1]) {
				r.reportAt(joinPath(r.path, pair[1]), at.key, "conflicts with %s", pair[0])
				ok = false
			}
		}
		if (v.UserFile+v.UserEnv == "") != (v.PasswordFile+v.PasswordEnv == "") && ok {
			r.report(n, "has a user or a password, and needs both or neither")
			ok = false
		}
		return v, ok
	}
	return either("text or map", isScalar, byURL, whole)
}

// checkPair reports a certificate without its key, and the reverse.
func checkPair(r *reader, n *yaml.Node) bool {
	if has(n, "cert_file") != has(n, "key_file") {
		r.report(n, "has one of cert_file and key_file, and needs both or neither")
		return false
	}
	return true
}

// has reports whether a map has a key.
func has(n *yaml.Node, key string) bool {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return true
		}
	}
	return false
}

func urlShape() shape[string] {
	s := text()
	s.schema = map[string]any{"type": "string", "pattern": `^(memory$|(etcd|zk|zookeeper|postgres|postgresql)://.)`}
	read := s.read
	s.read = func(r *reader, n *yaml.Node) (string, bool) {
		v, ok := read(r, n)
		if err := CheckRegistry(v, r.schemes); ok && err != nil {
			r.report(n, "%v", err)
			ok = false
		}
		return v, ok
	}
	return s
}

// CheckRegistry returns an error if url is neither memory nor an address of a store.
func CheckRegistry(url string, schemes registryurl.Schemes) error {
	if url == "memory" {
		return nil
	}
	if strings.Contains(url, "@") { // an error of Check would show the password
		return errors.New("has a user or password, which the address must not have: use user_env and password_env, or user_file and password_file")
	}
	if err := schemes.Check(url); err != nil {
		return fmt.Errorf("is %q, not memory, etcd://HOST:PORT, zk://HOST:PORT or postgres://HOST:PORT/DATABASE: %s", url, strings.TrimPrefix(err.Error(), fmt.Sprintf("registry %q: ", url)))
	}
	return nil
}

// jobGuesses are keys that users of other schedulers try in a job.
var jobGuesses = map[string]string{
	"cron": "schedule", "crontab": "schedule", "spec": "schedule", "when": "schedule", "interval": "every", "period": "every",
	"daemon": "always", "delay": "fixed_delay", "trigger": "on", "depends_on": "after", "needs": "after",
	"cmd": "command", "exec": "command", "run": "command", "script": "shell", "sh": "shell", "url": "http: {url: ...}",
	"<<": "defaults", "tz": "timezone", "zone": "timezone", "time_zone": "timezone", "start": "from", "end": "until", "jitter": "spread",
	"total": "shards", "sharding": "shards", "shard_params": "shards: {0: ..., 1: ...}", "parameter": "param", "parameters": "param", "args": "command: [PROGRAM, ARG, ...]",
	"cwd": "dir", "workdir": "dir", "working_dir": "dir", "environment": "env", "user": "a user of the whole process: rota run runs commands as itself",
	"retries": "retry", "on_misfire": "misfire", "on_overlap": "overlap", "concurrency": "overlap", "concurrency_policy": "overlap",
	"workers": "max_running", "labels": "run_on", "success_exit": "ok_exit", "stop_timeout": "kill_after", "logs": "log", "stdout": "output", "logging": "output",
}

// jobFields returns the keys of a job, which callers do not change. A file may have thousands of jobs, and a table with its schema
// has 30 KB.
var jobFields = sync.OnceValue(makeJobFields)

func makeJobFields() []field[jobSpec] {
	type j = jobSpec
	return []field[j]{
		key("description", text(), func(s *j) *string { return &s.Description }, "none", "A text for people, up to 1000 bytes."),

		key("schedule", cronShape("a cron text"), func(s *j) *string { return &s.Schedule }, "",
			"Fires at times of day: minute, hour, day of month, month, day of week, such as `\"0 3 * * *\"`; or six fields with seconds first; or `\"@daily\"`."),
		key("every", duration(time.Millisecond), func(s *j) *time.Duration { return &s.Every }, "",
			"Fires at the multiples of a duration since 1970, the same on all instances."),
		key("quartz", cronShape("a text of Quartz"), func(s *j) *string { return &s.Quartz }, "",
			"Fires at times of day in the dialect of Quartz, with six fields or seven, such as `\"0 0 3 L * ?\"`."),
		key("at", either("time or list of times", isScalar, convert(instant(), func(t time.Time) []time.Time { return []time.Time{t} }), listOf(instant())),
			func(s *j) *[]time.Time { return &s.At }, "", "Fires at one time, or at several."),
		key("fixed_delay", duration(time.Millisecond), func(s *j) *time.Duration { return &s.FixedDelay }, "",
			"Runs each shard again so long after the end of its last run."),
		key("always", onlyTrue(), func(s *j) *bool { return &s.Always }, "",
			"Keeps a run of each shard going, for daemons: a program that ends is started again."),
		key("after", afterShape(), func(s *j) *after { return &s.After }, "",
			"Fires when a fire of another job, or of all of several, has ended: a name, a list of names, or a map with `jobs` and `on`."),
		key("on", oneOf("trigger"), func(s *j) *string { return &s.On }, "", "Has no fires: the job runs when it is triggered."),

		key("timezone", zoneShape(), func(s *j) *string { return &s.Timezone }, "UTC",
			"The zone of the times, such as `Europe/Berlin`.").onlyWith(withZone...).allowInDefaults(),
		key("from", instant(), func(s *j) *time.Time { return &s.From }, "none", "There are no fires before this time.").onlyWith(withFires...),
		key("until", instant(), func(s *j) *time.Time { return &s.Until }, "none", "There are no fires at this time and later.").onlyWith(withFires...),
		key("spread", duration(time.Millisecond), func(s *j) *time.Duration { return &s.Spread }, "none",
			"Each shard begins at an offset of its own, below this duration, so that the shards of many jobs do not begin together.").onlyWith(withFires...),

		key("command", commandShape(), func(s *j) *[]string { return &s.Command }, "",
			"A program and its arguments, run without a shell. The arguments are templates: `{{.ShardParam}}`."),
		key("shell", text(), func(s *j) *string { return &s.Shell }, "",
			"A script for `/bin/sh`. It is not a template: the run is in variables such as `$ROTA_SHARD_PARAM`."),
		key("http", httpShape(), func(s *j) *httpSpec { return &s.HTTP }, "", "A request for each run."),
		key("kind", text(), func(s *j) *string { return &s.Kind }, "",
			"The kind that runs the job, of this file or of any process. `rota define -f` defines the job as data; `rota run` leaves it out."),
		key("kind_revision", number(1), func(s *j) *int { return &s.KindRevision }, "any", "The lowest revision of the kind that may run the job.").onlyWith(withKind...),
		key("delete_after", deleteAfterShape(), func(s *j) *time.Duration { return &s.DeleteAfter }, "1h", "How long the job stays after its last fire.").onlyWith(withKind...),
		key("interpreter", text(), func(s *j) *string { return &s.Interpreter }, "`/bin/sh`", "The shell that runs the script, by `-c`.").onlyWith("shell").allowInDefaults(),
		key("dir", text(), func(s *j) *string { return &s.Dir }, "that of `rota run`", "The working directory; it must exist. A relative path is relative to the default.").onlyWith(withProgram...).allowInDefaults(),
		key("env", mapOf("name", valueShape(scalar())), func(s *j) *map[string]value { return &s.Env }, "none",
			"Variables for the program, added to those of `rota run`. A value is a text, `{from_file: PATH}` or `{from_env: NAME}`.").onlyWith(withProgram...).allowInDefaults(),
		key("kill_after", pointer(duration(0)), func(s *j) **time.Duration { return &s.KillAfter }, "4s",
			"The time from SIGTERM to SIGKILL when a run has to end. A shutdown allows at most 5 s.").onlyWith(withProgram...).allowInDefaults(),
		key("ok_exit", listOf(exitCode()), func(s *j) *[]int { return &s.OKExit }, "none", "Exit codes that mean success, beside 0.").onlyWith(withProgram...).allowInDefaults(),
		key("permanent_exit", listOf(exitCode()), func(s *j) *[]int { return &s.PermanentExit }, "none", "Exit codes after which a run is not retried.").onlyWith(withProgram...).allowInDefaults(),
		key("output", logLimitShape(), func(s *j) *int { return &s.Output }, "`1MiB`",
			"How much of the output is logged in each minute of a run. Each line counts 128 bytes more. The record `output cut` counts the lines beyond it; the history keeps the end in any case. The error of a run has the last line of standard error or, if that is empty, of standard output.").onlyWith(withProgram...).allowInDefaults(),
		key("log", convert(oneOf("history", "none"), func(word string) bool { return word == "none" }), func(s *j) *bool { return &s.SecretLog }, "`history`",
			"Where the output of runs is kept, beside the log of the process. `none` is for secret output: the history then has neither the log of a run nor the end of its output. `output: none` keeps it out of the log of the process, and the error of a run still has the last line. Not with `kind`.").allowInDefaults(),

		key("shards", shardsShape(), func(s *j) *shards { return &s.Shards }, "1",
			"The number of runs of each fire; or a map from each shard to its parameter, `{0: Beijing, 1: Shanghai}`; or the list of the parameters."),
		key("param", scalar(), func(s *j) *string { return &s.Param }, "none", "The parameter of all shards. A trigger may replace it."),

		key("retry", retryShape(), func(s *j) *executor.Retry { return &s.Retry }, "none",
			"The number of retries of a failed run, or a map with their delays.").allowInDefaults(),
		key("timeout", duration(time.Millisecond), func(s *j) *time.Duration { return &s.Timeout }, "none", "The time after which an attempt is ended.").allowInDefaults(),
		key("on_crash", policy[executor.CrashPolicy]([]string{"rerun elsewhere", "count as failed"}, "^(rerun elsewhere|count as failed)$"),
			func(s *j) *executor.CrashPolicy { return &s.OnCrash }, "`rerun elsewhere`", "What happens to a run whose instance crashes.").allowInDefaults(),
		key("max_attempts", number(1), func(s *j) *int { return &s.MaxAttempts }, "3", "The number of attempts at a run whose instances crash. It does not apply to `always`.").allowInDefaults(),
		key("misfire", policy[executor.MisfirePolicy]([]string{"run once", "skip missed", "run all 5"}, "^(run once|skip missed|run all [1-9][0-9]*)$"),
			func(s *j) *executor.MisfirePolicy { return &s.Misfire }, "`run once`", "Which fires run that were missed: the latest, none, or the latest 5.").onlyWith(withMissed...).allowInDefaults(),
		key("overlap", policy[executor.OverlapPolicy]([]string{"wait", "skip", "cancel running"}, "^(wait|skip|cancel running)$"),
			func(s *j) *executor.OverlapPolicy { return &s.Overlap }, "`wait`", "What happens if a fire comes due while a run of its shard lasts: it waits, is skipped, or ends the run.").onlyWith(withFires...).allowInDefaults(),
		key("catchup_window", duration(time.Millisecond), func(s *j) *time.Duration { return &s.CatchupWindow }, "none",
			"Missed fires that are older are skipped.").onlyWith(withMissed...).allowInDefaults(),

		key("max_running", number(1), func(s *j) *int { return &s.MaxRunning }, "4 per CPU, at least 16", "The number of runs of the job at a time in this process. It takes effect without a higher revision. Not with `kind`.").allowInDefaults(),
		key("run_on", mapOf("label", scalar()), func(s *j) *map[string]string { return &s.RunOn }, "any instance", "Labels (flag `--label`) that an instance needs to run shards of the job.").allowInDefaults(),
		key("pool", scalar(), func(s *j) *string { return &s.Pool }, "none", "A pool, which bounds the runs of its jobs in the whole group. Without a size (`pools`, or `rota set-pool`) it has no slots.").allowInDefaults(),
		key("strategy", oneOf(strategies()...), func(s *j) *string { return &s.Strategy }, "`sticky`", "How shards are assigned to instances.").allowInDefaults(),
		key("tracking", policy[executor.Tracking]([]string{"runs", "claims"}, "^(runs|claims)$"),
			func(s *j) *executor.Tracking { return &s.Tracking }, "`runs`", "How much of each run is recorded. `claims` costs fewer commits, and no run is made again after a crash.").onlyWith(withFires...).allowInDefaults(),
		key("notify", pointer(receiverNamesShape()), func(s *j) **[]string { return &s.Notify }, "that of `notify.default`",
			"The receivers of messages about the job. `[]` means none. Not with `kind`."),
		key("start_paused", boolean(), func(s *j) *bool { return &s.StartPaused }, "`false`", "A new job waits until it is resumed."),
		key("revision", pointer(number(0)), func(s *j) **int { return &s.Revision }, "that of the file", "The revision of this job. Not with `kind`."),
	}
}

// strategies returns the names of the built-in strategies.
func strategies() []string {
	known, err := strategy.Known(nil)
	if err != nil {
		panic(err) // cannot fail without strategies of a user
	}
	return slices.Sorted(maps.Keys(known))
}

// cronShape is a text whose fields executor checks. It has a hint for lists and numbers.
func cronShape(what string) shape[string] {
	s := text()
	s.read = func(r *reader, n *yaml.Node) (string, bool) {
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
			r.report(n, "is %s, not %s in quotes", describeNode(n), what)
			return "", false
		}
		return n.Value, true
	}
	return s
}

// zoneShape is the name of a zone of the time zone database.
func zoneShape() shape[string] {
	s := text()
	read := s.read
	s.read = func(r *reader, n *yaml.Node) (string, bool) {
		zone, ok := read(r, n)
		if !ok {
			return "", false
		}
		// The check is that of executor, with any cron text.
		if _, err := schedule.Cron("* * * * *").In(zone).Next(time.Time{}, 0); err != nil {
			r.report(n, "%v", ruleOf(err))
			return "", false
		}
		return zone, true
	}
	return s
}

// commandShape is a program and its arguments.
func commandShape() shape[[]string] {
	s := listOf(scalar())
	read := s.read
	s.read = func(r *reader, n *yaml.Node) ([]string, bool) {
		if n.Kind == yaml.ScalarNode {
			r.report(n, "is %s, not a list: write [%s], or give the text to a shell with the key shell", describeNode(n), strings.Join(strings.Fields(n.Value), ", "))
			return nil, false
		}
		return read(r, n)
	}
	return s
}

func onlyTrue() shape[bool] {
	return shape[bool]{"`true`", map[string]any{"const": true}, func(r *reader, n *yaml.Node) (bool, bool) {
		if n.ShortTag() != "!!bool" || n.Value != "true" {
			r.report(n, "is %s, not true", describeNode(n))
			return false, false
		}
		return true, true
	}}
}

// deleteAfterShape is an operator.Definition.DeleteAfter.
func deleteAfterShape() shape[time.Duration] {
	after := duration(time.Millisecond)
	s := map[string]any{"oneOf": []any{after.schema, map[string]any{"const": "never"}}}
	return shape[time.Duration]{after.text + ", or `never`", s, func(r *reader, n *yaml.Node) (time.Duration, bool) {
		if n.Kind == yaml.ScalarNode && n.Value == "never" {
			return -1, true
		}
		return after.read(r, n)
	}}
}

func pointer[V any](s shape[V]) shape[*V] { return convert(s, func(v V) *V { return &v }) }

// sizePattern matches a size and captures its number and its unit.
var sizePattern = regexp.MustCompile(`^([1-9][0-9]{0,5})(KiB|MiB)$`)

// sizeShape is a number of bytes, from 4 KiB on.
func sizeShape() shape[int] {
	s := map[string]any{"type": "string", "pattern": sizePattern.String()}
	return shape[int]{"size, such as `64KiB`", s, func(r *reader, n *yaml.Node) (int, bool) {
		size, ok := sizeOf(n)
		switch {
		case !ok:
			r.report(n, "is %s, not a size such as 64KiB or 1MiB", describeNode(n))
		case size < leastLog:
			r.report(n, "is %s, below 4KiB", describeNode(n))
		default:
			return size, true
		}
		return 0, false
	}}
}

// leastLog is the least size of a log.
const leastLog = 4 << 10

// sizeOf returns the bytes of a size.
func sizeOf(n *yaml.Node) (int, bool) {
	m := sizePattern.FindStringSubmatch(n.Value)
	if n.Kind != yaml.ScalarNode || m == nil {
		return 0, false
	}
	size, _ := strconv.Atoi(m[1]) // digits
	return size << map[string]int{"KiB": 10, "MiB": 20}[m[2]], true
}

// logLimitShape is a Cmd.LogLimit.
func logLimitShape() shape[int] {
	s := map[string]any{"type": "string", "pattern": "^(none|unlimited|[1-9][0-9]{0,5}(KiB|MiB))$"}
	return shape[int]{"size, such as `64KiB`, `none` or `unlimited`", s, func(r *reader, n *yaml.Node) (int, bool) {
		if n.Kind == yaml.ScalarNode {
			switch size, ok := sizeOf(n); {
			case n.Value == "none":
				return -1, true
			case n.Value == "unlimited":
				return math.MaxInt, true
			case ok:
				return size, true
			}
		}
		r.report(n, "is %s, not a size such as 64KiB or 1MiB, none or unlimited", describeNode(n))
		return 0, false
	}}
}

func exitCode() shape[int] {
	s := number(1)
	s.text, s.schema["maximum"] = "exit codes", 255
	read := s.read
	s.read = func(r *reader, n *yaml.Node) (int, bool) {
		code, ok := read(r, n)
		if ok && code > 255 {
			r.report(n, "is %d, above 255", code)
			return 0, false
		}
		return code, ok
	}
	return s
}

// valueShape is a text, or a map that names where it is.
func valueShape(direct shape[string]) shape[value] {
	inline := convert(direct, func(text string) value { return value{Text: text} })
	elsewhere := object("map", map[string]string{"file": "from_file", "env": "from_env", "secret": "from_file"}, []field[value]{
		key("from_file", text(), func(v *value) *string { return &v.FromFile }, "", "A file that holds the text. A line break at its end is removed."),
		key("from_env", text(), func(v *value) *string { return &v.FromEnv }, "", "An environment variable that holds the text. Only programs whose own `env` names it inherit it."),
	})
	read := elsewhere.read
	elsewhere.read = func(r *reader, n *yaml.Node) (value, bool) {
		v, ok := read(r, n)
		if ok && (v.FromFile == "") == (v.FromEnv == "") {
			r.report(n, "needs one of from_file and from_env")
			return value{}, false
		}
		return v, ok
	}
	elsewhere.schema["minProperties"], elsewhere.schema["maxProperties"] = 1, 1
	return either("text, `{from_file: PATH}` or `{from_env: NAME}`", isScalar, inline, elsewhere)
}

// retryFields are the keys of a retry that is a map.
func retryFields() []field[executor.Retry] {
	type t = executor.Retry
	return []field[t]{
		key("max", retriesShape(), func(v *t) *int { return &v.Max }, "", "The number of retries.").require(),
		key("initial", duration(time.Millisecond), func(v *t) *time.Duration { return &v.Initial }, "1s", "The delay before the first retry."),
		key("max_interval", duration(time.Millisecond), func(v *t) *time.Duration { return &v.MaxInterval }, "1m", "The bound of the delays."),
		key("factor", fraction(1), func(v *t) *float64 { return &v.Factor }, "2", "The quotient of two successive delays."),
		key("jitter", jitter(), func(v *t) *float64 { return &v.Jitter }, "0.2", "The part of each delay by which it is spread, up to 1."),
	}
}

// jitter is a fraction. Executor has a negative number for none.
func jitter() shape[float64] {
	return convert(fraction(0), func(v float64) float64 {
		if v == 0 {
			return -1
		}
		return v
	})
}

// retriesShape is a number of retries. Executor has a negative number for no bound.
func retriesShape() shape[int] {
	s := number(1)
	read := s.read
	return shape[int]{"number from 1, or `unlimited`", map[string]any{"oneOf": []any{s.schema, map[string]any{"const": "unlimited"}}}, func(r *reader, n *yaml.Node) (int, bool) {
		switch {
		case n.Kind == yaml.ScalarNode && n.Value == "unlimited":
			return -1, true
		case n.Kind != yaml.ScalarNode || !decimal.MatchString(n.Value):
			r.report(n, "is %s, not a whole number or \"unlimited\"", describeNode(n))
			return 0, false
		}
		return read(r, n)
	}}
}

func retryShape() shape[executor.Retry] {
	count := convert(number(1), func(n int) executor.Retry { return executor.Retry{Max: n} })
	read := count.read
	count.read = func(r *reader, n *yaml.Node) (executor.Retry, bool) {
		if n.Value == "0" {
			r.report(n, "is 0, below 1: a job without retry has no retries; a job cannot switch off the retry of defaults, so move that into the jobs that need it")
			return executor.Retry{}, false
		}
		return read(r, n)
	}
	whole := object("map", map[string]string{"count": "max", "attempts": "max", "limit": "max", "delay": "initial", "backoff": "factor", "max_delay": "max_interval"}, retryFields())
	return either("number or map", isScalar, count, whole)
}

// httpFields are the keys of a request.
func httpFields() []field[httpSpec] {
	type t = httpSpec
	return []field[t]{
		key("url", text(), func(v *t) *string { return &v.URL }, "", "The address, a template. Scheme, host and port have no values.").require(),
		key("method", text(), func(v *t) *string { return &v.Method }, "`POST`", "The method."),
		key("header", mapOf("name", valueShape(scalar())), func(v *t) *map[string]value { return &v.Header }, "none",
			"Header fields: a text, which is a template, or `{from_file: PATH}`, which is read for each request, or `{from_env: NAME}`."),
		key("body", text(), func(v *t) *string { return &v.Body }, "empty", "The body, a template: `{\"shard\": {{.Shard}}}`."),
		key("ok", listOf(statusShape()), func(v *t) *[][2]int { return &v.OK }, "`[200-299]`", "The statuses that mean success."),
		key("permanent", listOf(statusShape()), func(v *t) *[][2]int { return &v.Permanent }, "300 to 499 but 408, 425 and 429", "The statuses after which a run is not retried."),
		key("timeout", duration(time.Millisecond), func(v *t) *time.Duration { return &v.Timeout }, "1m", "The bound of a request."),
		key("tls", tlsShape(tlsFields()), func(v *t) *TLSFiles { return &v.TLS }, "the system's authorities", "Certificates."),
	}
}

func tlsShape(fields []field[TLSFiles]) shape[TLSFiles] {
	s := object("map", map[string]string{"ca": "ca_file", "cert": "cert_file", "key": "key_file", "insecure": "ca_file with the authority of the server"}, fields)
	read := s.read
	s.read = func(r *reader, n *yaml.Node) (TLSFiles, bool) {
		v, ok := read(r, n)
		return v, ok && checkPair(r, n)
	}
	return s
}

func httpShape() shape[httpSpec] {
	return object("map", map[string]string{"headers": "header", "uri": "url", "address": "url", "data": "body", "payload": "body", "status": "ok", "expect": "ok"}, httpFields())
}

var statusRange = regexp.MustCompile(`^([1-9][0-9]{2})(?:-([1-9][0-9]{2}))?$`)

// afterFields are the keys of after if it is a map.
func afterFields() []field[after] {
	return []field[after]{
		key("jobs", namesShape(), func(a *after) *[]string { return &a.Jobs }, "", "The names of the followed jobs, or the name of one.").require(),
		key("on", oneOf("success", "end", "failure"), func(a *after) *string { return &a.On }, "`success`",
			"Whether all runs of the followed fire must have succeeded, may have ended in any way, or one must have failed. Other fires are skipped."),
	}
}

// namesShape is a list of names, or one name.
func namesShape() shape[[]string] {
	return either("name or list of names", isScalar, convert(scalar(), func(name string) []string { return []string{name} }), listOf(scalar()))
}

func afterShape() shape[after] {
	inOrder := convert(namesShape(), func(names []string) after { return after{Jobs: names} })
	whole := object("map", map[string]string{"job": "jobs", "name": "jobs", "names": "jobs", "when": "on", "outcome": "on"}, afterFields())
	return either("name, list or map", func(n *yaml.Node) bool { return n.Kind != yaml.MappingNode }, inOrder, whole)
}

// statusShape is a status or a range of them.
func statusShape() shape[[2]int] {
	s := map[string]any{"oneOf": []any{
		map[string]any{"type": "integer", "minimum": 200, "maximum": 599},
		map[string]any{"type": "string", "pattern": "^[2-5][0-9][0-9]-[2-5][0-9][0-9]$"},
	}}
	return shape[[2]int]{"statuses such as `409` or `200-299`", s, func(r *reader, n *yaml.Node) ([2]int, bool) {
		m := statusRange.FindStringSubmatch(n.Value)
		if n.Kind != yaml.ScalarNode || m == nil {
			r.report(n, "is %s, not a status such as 409 or 200-299", describeNode(n))
			return [2]int{}, false
		}
		first, _ := strconv.Atoi(m[1]) // three digits
		last := first
		if m[2] != "" {
			last, _ = strconv.Atoi(m[2])
		}
		if first < 200 || last > 599 || first > last {
			r.report(n, "is %s, not within 200 to 599", describeNode(n))
			return [2]int{}, false
		}
		return [2]int{first, last}, true
	}}
}

// shardsShape is the number of shards, a map of their parameters, or a list of them.
func shardsShape() shape[shards] {
	count := convert(number(1), func(n int) shards { return shards{Count: n} })
	byNumber := mapOf("shard", scalar())
	inOrder := convert(listOf(scalar()), func(params []string) shards {
		s := shards{len(params), map[int]string{}}
		for i, p := range params {
			s.Params[i] = p
		}
		return s
	})
	schema := map[string]any{"oneOf": []any{
		count.schema, inOrder.schema,
		map[string]any{"type": "object", "minProperties": 1, "additionalProperties": false, "patternProperties": map[string]any{"^(0|[1-9][0-9]*)$": scalar().schema}},
	}}
	return shape[shards]{"number, map or list", schema, func(r *reader, n *yaml.Node) (shards, bool) {
		switch n.Kind {
		case yaml.SequenceNode:
			return inOrder.read(r, n)
		case yaml.MappingNode:
			params, ok := byNumber.read(r, n)
			if !ok {
				return shards{}, false
			}
			return numberedShards(r, n, params)
		}
		return count.read(r, n)
	}}
}

// numberedShards returns the shards of a map. Their numbers begin with 0 and leave none out.
func numberedShards(r *reader, n *yaml.Node, params map[string]string) (shards, bool) {
	s, sound := shards{Count: len(params), Params: map[int]string{}}, true
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		shard, err := strconv.Atoi(name)
		if err != nil || !decimal.MatchString(name) || shard < 0 {
			r.report(n.Content[i], "the key %.100q is not the number of a shard; they count from 0", name)
			sound = false
			continue
		}
		s.Params[shard] = params[name]
	}
	if len(params) == 0 {
		r.report(n, "is an empty map")
		return s, false
	}
	for i := 0; sound && i < s.Count; i++ {
		if _, ok := s.Params[i]; !ok {
			r.report(n, "has %d shards, which count from 0, and no shard %d", s.Count, i)
			sound = false
		}
	}
	return s, sound
}
