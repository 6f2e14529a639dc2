package jobsfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/rota-dev/rota/cmd/rota/internal/historyurl"
	"github.com/rota-dev/rota/history"
)

// History is where a process records the runs that have ended. It holds no secrets, but the names of files and
// environment variables that do.
type History struct {
	URL                       string // of package historyurl, or jsonl:FILE; empty if nothing is recorded
	UserFile, UserEnv         string
	PasswordFile, PasswordEnv string
	TLS                       TLSFiles
	Keep                      history.Keep
	Retention                 time.Duration // below 0: unlimited
	RowsPerJob                int           // below 0: unlimited
	Queue                     int
	Logs                      int           // -1: no logs are kept; 1: they are; 0: they are by a database
	LogRetention              time.Duration // below 0: unlimited
	LogSize                   int
	TablesExist               bool // they are not to be created or updated
}

// JSONLines reports whether the records are lines of a file.
func (h History) JSONLines() bool { return strings.HasPrefix(h.URL, "jsonl:") }

// KeepsLogs reports whether the logs of runs are recorded.
func (h History) KeepsLogs() bool { return h.Logs > 0 || h.Logs == 0 && !h.JSONLines() }

// resolveFile makes the path of a file relative to a directory.
func (h *History) resolveFile(dir string) {
	if path := h.file(); path != "" && !filepath.IsAbs(path) {
		scheme, _, _ := strings.Cut(h.URL, ":")
		h.URL = scheme + ":" + filepath.Join(dir, path)
	}
}

// file returns the path of the file of SQLite or of lines, "" for a server.
func (h *History) file() string {
	if h.JSONLines() || strings.HasPrefix(h.URL, "sqlite:") {
		return historyurl.File(h.URL)
	}
	return ""
}

// CheckDirectory returns an error if the directory of the file does not exist on this host.
func (h *History) CheckDirectory() error {
	path := h.file()
	if path == "" || isDirectory(filepath.Dir(path)) {
		return nil
	}
	return fmt.Errorf("history: the directory %q does not exist on this host; a relative path is relative to the directory of the jobs file", filepath.Dir(path))
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// Connection returns how to connect to the database, with the secrets of a host.
func (h History) Connection(host Host) (o historyurl.Options, err error) {
	var errs [3]error
	open := host
	open.Secrets = nil // the name of a user is no secret
	o.User, errs[0] = open.secret(value{FromFile: h.UserFile, FromEnv: h.UserEnv})
	o.Password, errs[1] = host.secret(value{FromFile: h.PasswordFile, FromEnv: h.PasswordEnv})
	o.TLS, errs[2] = h.TLS.load(host)
	if err := errors.Join(errs[:]...); err != nil {
		return o, fmt.Errorf("credentials of the history: %w", err)
	}
	return o, nil
}

// secret returns a value that is not empty, or "" if v names none.
func (h Host) secret(v value) (string, error) {
	text, err := h.lookup(v)
	switch {
	case err != nil || text != "":
	case v.FromFile != "":
		err = fmt.Errorf("%s is empty", v.FromFile)
	case v.FromEnv != "":
		err = fmt.Errorf("the environment variable %s is empty", v.FromEnv)
	}
	return text, err
}

// The keys that do not apply to each history.
var (
	historyLogin  = []string{"user_file", "user_env", "password_file", "password_env", "tls"}
	historyTables = []string{"retention", "rows_per_job", "migrate", "log_retention"}
)

// historyFields are the keys of a history that is a map.
func historyFields() []field[History] {
	type h = History
	return []field[h]{
		key("url", historyURLShape(), func(v *h) *string { return &v.URL }, "",
			"The database, or `jsonl:FILE`. The URL of a server may have the name of a user, and the parameters of its driver: pgx or go-sql-driver/mysql.").require(),
		key("user_file", text(), func(v *h) *string { return &v.UserFile }, "none", "A file that holds the name of the user."),
		key("user_env", text(), func(v *h) *string { return &v.UserEnv }, "none", "An environment variable that holds the name of the user. Commands do not inherit it."),
		key("password_file", text(), func(v *h) *string { return &v.PasswordFile }, "none", "A file that holds the password."),
		key("password_env", text(), func(v *h) *string { return &v.PasswordEnv }, "none", "An environment variable that holds the password. Commands do not inherit it."),
		key("tls", tlsShape(registryTLSFields()), func(v *h) *TLSFiles { return &v.TLS }, "that of the URL", "TLS with the server."),
		key("keep", keepShape(), func(v *h) *history.Keep { return &v.Keep }, "`notable`",
			"The runs that have a record of their own, beside the counts of each fire: those that failed, were repeated or are the slowest; all; or none."),
		key("retention", orUnlimited(duration(time.Minute), -1), func(v *h) *time.Duration { return &v.Retention }, "720h",
			"How long a database keeps runs and fires."),
		key("rows_per_job", orUnlimited(number(1), -1), func(v *h) *int { return &v.RowsPerJob }, "50000",
			"How many rows of a job each table of a database keeps, about."),
		key("queue", number(1), func(v *h) *int { return &v.Queue }, "10000", "How many records wait in memory while the database does not answer."),
		key("log", convert(boolean(), func(on bool) int { return map[bool]int{true: 1, false: -1}[on] }), func(v *h) *int { return &v.Logs }, "`true` for a database",
			"Whether the logs of runs are kept. A job can except itself by its key of this name."),
		key("log_size", sizeShape(), func(v *h) *int { return &v.LogSize }, "64KiB", "How much of the log of a run is kept: half of it from the begin, half from the end."),
		key("log_retention", orUnlimited(duration(time.Minute), -1), func(v *h) *time.Duration { return &v.LogRetention }, "168h",
			"How long a database keeps logs. Of runs that did not fail it keeps those of the latest 20 fires of a job, and of the last hour."),
		key("migrate", convert(boolean(), func(on bool) bool { return !on }), func(v *h) *bool { return &v.TablesExist }, "`true`",
			"Whether the process creates and updates the tables. Otherwise another account does."),
	}
}

// historyGuesses are keys that users try in a history.
var historyGuesses = map[string]string{
	"database": "url", "dsn": "url", "address": "url", "file": "url: sqlite:FILE", "sqlite": "url: sqlite:FILE", "jsonl": "url: jsonl:FILE", "json": "url: jsonl:FILE",
	"postgres": "url: postgres://HOST/DATABASE", "postgresql": "url: postgres://HOST/DATABASE", "mysql": "url: mysql://HOST/DATABASE", "mariadb": "url: mysql://HOST/DATABASE",
	"user": "user_env or user_file", "username": "user_env or user_file", "password": "password_env or password_file", "ttl": "retention", "rows": "rows_per_job",
}

func historyShape() shape[History] {
	byURL := convert(historyURLShape(), func(url string) History { return History{URL: url} })
	whole := object("map", historyGuesses, historyFields())
	read := whole.read
	whole.read = func(r *reader, n *yaml.Node) (History, bool) {
		h, ok := read(r, n)
		refuse := func(keys []string, rule string) {
			for _, k := range keys {
				if path := joinPath(r.path, k); has(n, k) {
					r.reportAt(path, r.places[path].key, "%s", rule)
					ok = false
				}
			}
		}
		for _, what := range []string{"user", "password"} {
			if has(n, what+"_file") {
				refuse([]string{what + "_env"}, "conflicts with "+what+"_file")
			}
		}
		scheme, rest, _ := strings.Cut(h.URL, ":")
		switch scheme {
		case "jsonl":
			refuse(historyTables, "applies only to databases")
			refuse(historyLogin, "applies only to servers")
		case "sqlite":
			refuse(historyLogin, "applies only to servers")
		default:
			if strings.Contains(rest, "@") {
				refuse([]string{"user_file", "user_env"}, "conflicts with the user of the url")
			}
		}
		return h, ok
	}
	return either("text or map", isScalar, byURL, whole)
}

// historyURLShape is the URL of a database without a password, or a file for lines of JSON.
func historyURLShape() shape[string] {
	s := text()
	s.schema = map[string]any{"type": "string", "pattern": `^((postgres|postgresql|mysql)://|sqlite:|jsonl:).`}
	read := s.read
	s.read = func(r *reader, n *yaml.Node) (string, bool) {
		v, ok := read(r, n)
		if err := checkHistoryURL(v); ok && err != nil {
			r.report(n, "%v", err)
			ok = false
		}
		return v, ok
	}
	return s
}

func checkHistoryURL(url string) error {
	switch scheme, _, _ := strings.Cut(url, ":"); {
	case !slices.Contains([]string{"postgres", "postgresql", "mysql", "sqlite", "jsonl"}, scheme):
		return fmt.Errorf("is %q, not sqlite:FILE, jsonl:FILE, postgres://HOST/DATABASE or mysql://HOST/DATABASE", historyurl.Redact(url))
	case (scheme == "sqlite" || scheme == "jsonl") && strings.HasPrefix(historyurl.File(url), "~"):
		return fmt.Errorf("is %q, and ~ is not replaced here: write the whole path", url)
	case scheme != "jsonl":
		return historyurl.CheckWithoutPassword(url)
	case historyurl.File(url) == "":
		return errors.New("names no file: write jsonl:FILE")
	}
	return nil
}

// keepShape is which runs have a record of their own.
func keepShape() shape[history.Keep] {
	kinds := map[string]history.Keep{"notable": history.KeepNotable, "all": history.KeepAll, "fires": history.KeepFires}
	return convert(oneOf("notable", "all", "fires"), func(word string) history.Keep { return kinds[word] })
}

// orUnlimited is a value of another shape, or the word unlimited.
func orUnlimited[V any](s shape[V], unlimited V) shape[V] {
	word := convert(oneOf("unlimited"), func(string) V { return unlimited })
	return either(s.text+", or `unlimited`", func(n *yaml.Node) bool { return isScalar(n) && n.Value == "unlimited" }, word, s)
}
