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
	"unicode/utf8"

	"github.com/rota-dev/rota/internal/shell"
	"github.com/rota-dev/rota/schedule"
)

// crontabOptions determine how a crontab is read.
type crontabOptions struct {
	source      string // the name of the file, for messages
	system      bool   // lines have a column with a user
	detect      bool   // determine system from source and the lines
	timezone    string // of the crontab, unless CRON_TZ sets another; empty: unknown
	namespace   string
	startPaused bool
}

// crontabLine is an entry of a crontab with the variables and the comment above it.
type crontabLine struct {
	number    int
	times     string // five fields, or a nickname such as @daily
	user      string // of a system crontab
	command   string // as in the file, with the escapes of %
	comment   []string
	variables map[string]string
}

var (
	nicknames = []string{"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly", "@reboot"}
	variable  = regexp.MustCompile(`^\s*(?:"([^"]*)"|'([^']*)'|([^\s='"]+))\s*=\s*(.*?)\s*$`)
	loginName = regexp.MustCompile(`^[a-z_][a-z0-9_-]*\$?$`)
)

// convertCrontab returns the jobs of a crontab. Its error joins those of all lines.
func convertCrontab(text string, o crontabOptions) (document, error) {
	lines, errs := parseCrontab(text, &o)
	d := document{
		intro:     crontabIntro(o),
		namespace: o.namespace,
		timezone:  o.timezone,
	}
	if o.timezone == "" && usesDefaultZone(lines) {
		d.notes = append(d.notes, "Cron used the time zone of its host. These schedules are in UTC: "+
			"set defaults.timezone, or import again with --timezone.")
	}
	d.notes = append(d.notes, noteVariables(text)...)
	used := map[string]int{}
	for _, l := range lines {
		j, err := convertLine(l, o)
		if err != nil {
			errs = append(errs, &lineError{o.source, l.number, err})
			continue
		}
		j.name = uniqueName(used, deriveName(l.command))
		d.jobs = append(d.jobs, j)
	}
	if len(d.jobs) == 0 && len(errs) == 0 {
		return d, fmt.Errorf("%s has no entries", o.source)
	}
	return d, joinByLine(errs)
}

// lineError is a mistake in a line of a crontab.
type lineError struct {
	source string
	line   int
	err    error
}

func (e *lineError) Error() string { return fmt.Sprintf("%s:%d: %v", e.source, e.line, e.err) }
func (e *lineError) Unwrap() error { return e.err }

func joinByLine(errs []*lineError) error {
	slices.SortFunc(errs, func(a, b *lineError) int { return a.line - b.line })
	joined := make([]error, len(errs))
	for i, e := range errs {
		joined[i] = e
	}
	return errors.Join(joined...)
}

func crontabIntro(o crontabOptions) []string {
	kind := "a user's crontab"
	if o.system {
		kind = "a system crontab"
	}
	return []string{
		fmt.Sprintf("Written by rota import crontab from %s, read as %s. Remove the lines there before these jobs run.", o.source, kind),
		"In every job, rota differs from cron: a fire that comes due during a run waits for its end, instead of starting a second process; " +
			"a fire that was missed runs once afterwards (misfire), and so does a run whose process crashed (on_crash); " +
			"output is written to the log, not sent as mail; commands run as the user, in the directory and with the environment of rota run, " +
			"whereas cron passed little more than HOME, LOGNAME, SHELL and PATH=/usr/bin:/bin.",
	}
}

// parseCrontab returns the entries of a crontab, and an error for each line that cron would refuse.
// It sets o.system if o.detect is set.
func parseCrontab(text string, o *crontabOptions) (lines []crontabLine, errs []*lineError) {
	if o.detect {
		o.system = isSystemCrontab(o.source, text)
	}
	variables := map[string]string{}
	var comment []string
	for i, line := range strings.Split(text, "\n") {
		line = strings.Trim(line, " \t\r")
		fail := func(err error) { errs = append(errs, &lineError{o.source, i + 1, err}) }
		if rest, ok := strings.CutPrefix(line, "#"); ok {
			comment = append(comment, strings.Trim(rest, "# \t"))
			continue
		}
		above := comment
		comment = nil
		if line == "" {
			continue
		}
		if !utf8.ValidString(line) {
			fail(errors.New("the line is not UTF-8"))
			continue
		}
		if name, value, ok, err := parseVariable(line); ok {
			if err != nil {
				fail(err)
				continue
			}
			variables = withVariable(variables, name, value)
			continue
		}
		entry, err := parseEntry(line, o.system)
		if err != nil {
			fail(err)
			continue
		}
		entry.number, entry.comment, entry.variables = i+1, above, variables
		lines = append(lines, entry)
	}
	return lines, errs
}

func withVariable(variables map[string]string, name, value string) map[string]string {
	next := maps.Clone(variables)
	next[name] = value
	return next
}

// parseVariable reads a line that sets a variable. It returns false for other lines.
func parseVariable(line string) (name, value string, ok bool, err error) {
	m := variable.FindStringSubmatch(line)
	if m == nil {
		return "", "", false, nil
	}
	name, value = m[1]+m[2]+m[3], m[4]
	if value == "" || !strings.ContainsAny(value[:1], `"'`) {
		return name, value, true, nil
	}
	if len(value) < 2 || value[len(value)-1] != value[0] {
		return name, "", true, fmt.Errorf("the value of %s begins with a quotation mark and does not end with it", name)
	}
	return name, value[1 : len(value)-1], true, nil
}

// parseEntry splits an entry into its columns.
func parseEntry(line string, system bool) (l crontabLine, err error) {
	line = strings.TrimPrefix(line, "-") // suppresses cron's own log
	columns := 5
	if strings.HasPrefix(line, "@") {
		columns = 1
	}
	var fields []string
	rest := line
	for range columns {
		var field string
		field, rest = cutField(rest)
		fields = append(fields, field)
	}
	l.times = strings.Join(fields, " ")
	if columns == 1 && !slices.Contains(nicknames, l.times) {
		return l, fmt.Errorf("%q is none of %s", l.times, strings.Join(nicknames, ", "))
	}
	if system {
		l.user, rest = cutField(rest)
	}
	l.command = rest
	switch {
	case columns > 1 && fields[4] == "":
		return l, errors.New("a line has five fields of times and a command, or sets a variable as NAME=VALUE")
	case system && l.user == "":
		return l, errors.New("the line has no user")
	case l.command == "":
		return l, errors.New("the line has no command")
	}
	return l, nil
}

func cutField(s string) (field, rest string) {
	end := strings.IndexAny(s, " \t")
	if end < 0 {
		return s, ""
	}
	return s[:end], strings.TrimLeft(s[end:], " \t")
}

// isSystemCrontab reports whether entries have a column with a user: by the place of the file, or
// because each entry has a login name there, and one of them is root's.
func isSystemCrontab(source, text string) bool {
	if source == "/etc/crontab" || path.Dir(source) == "/etc/cron.d" {
		return true
	}
	root := false
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.Trim(line, " \t\r")
		if line == "" || line[0] == '#' || variable.MatchString(line) {
			continue
		}
		l, err := parseEntry(line, true)
		if err != nil || !loginName.MatchString(l.user) {
			return false
		}
		root = root || l.user == "root"
	}
	return root
}

// mailVariables configure cron's mail.
var mailVariables = []string{"MAILTO", "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING"}

// isCronOnly reports whether a variable configures cron, so that commands do not need it.
func isCronOnly(name, value string) bool {
	return name == "SHELL" && value == "/bin/sh" || name == "CRON_TZ" || name == "RANDOM_DELAY" || name == "LOGNAME" || slices.Contains(mailVariables, name)
}

// noteVariables returns a note for each setting of a crontab that has no equal.
func noteVariables(text string) (notes []string) {
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		name, value, ok, err := parseVariable(strings.Trim(line, " \t\r"))
		if !ok || err != nil {
			continue
		}
		note := func(format string, args ...any) {
			notes = append(notes, fmt.Sprintf("Line %d, %s=%s: ", i+1, name, value)+fmt.Sprintf(format, args...))
		}
		switch {
		case name == "MAILTO" && value == "":
			note("cron sent no mail. The output of these commands is in the log.")
		case slices.Contains(mailVariables, name):
			note("no equal, as rota sends no mail. The output of commands is in the log; alert on failed runs.")
		case name == "TZ":
			note("kept for the commands. It has no effect on schedules, in cron as in rota.")
		case name == "LOGNAME":
			note("cron ignores it; left out.")
		}
	}
	return notes
}

func usesDefaultZone(lines []crontabLine) bool {
	return slices.ContainsFunc(lines, func(l crontabLine) bool { return l.variables["CRON_TZ"] == "" && l.times != "@reboot" })
}

// convertLine returns the job of an entry, without its name.
func convertLine(l crontabLine, o crontabOptions) (job, error) {
	j := job{shards: 1, startPaused: o.startPaused, description: describeComment(l.comment)}
	if l.user != "" {
		j.note(fmt.Sprintf("Line %d ran as the user %s: no equal, as all commands run as the user of rota run.", l.number, l.user))
	}
	if err := convertTimes(&j, l); err != nil {
		return j, err
	}
	convertCommand(&j, l)
	return j, nil
}

// convertTimes sets the schedule of an entry.
func convertTimes(j *job, l crontabLine) error {
	j.schedule = importedSchedule{text: l.times, dialect: cronDialect, timezone: l.variables["CRON_TZ"]}
	if l.times == "@reboot" {
		j.schedule.dropped = true
		j.note("@reboot: no equal, as the jobs of a fleet do not belong to a host. The job runs when it is triggered; " +
			"for a command of each host, write a unit of its service manager.")
		return nil
	}
	if !strings.HasPrefix(l.times, "@") {
		times, err := parseTimes(strings.Fields(l.times))
		if err != nil {
			return err
		}
		text, ok := times.text()
		if !ok {
			j.schedule.dropped = true
			j.note("Cron runs this line on days that match both the day of month and the day of week, since one of the fields begins with a star. " +
				"Rota's cron runs it on days that match either. No schedule has been written, so that it does not run on other days: " +
				"restrict one of the fields, and have the command check the other.")
			return nil
		}
		j.schedule.text = text
	}
	zone := cmp.Or(j.schedule.timezone, "UTC")
	if _, err := schedule.Cron(j.schedule.text).In(zone).Next(time.Unix(0, 0), 1); err != nil {
		j.schedule.dropped = true
		j.note(fmt.Sprintf("Rota refuses the schedule, and it has not been written: %v.", err))
		return nil
	}
	return setSpread(j, l.variables)
}

// setSpread keeps RANDOM_DELAY, in minutes.
func setSpread(j *job, variables map[string]string) error {
	text, ok := variables["RANDOM_DELAY"]
	if !ok || text == "0" {
		return nil
	}
	minutes, err := strconv.Atoi(text)
	if err != nil || minutes < 0 || minutes > 24*60 {
		return fmt.Errorf("RANDOM_DELAY is %q, not a number of minutes of a day", text)
	}
	spread := time.Duration(minutes) * time.Minute
	if _, err := schedule.Cron(j.schedule.text).Spread(spread).Next(time.Unix(0, 0), 1); err != nil {
		j.note(fmt.Sprintf("RANDOM_DELAY=%s has been left out, as it is longer than the time between two fires: "+
			"a run that waited for so long would miss the fires after its own.", text))
		return nil
	}
	j.schedule.spread = spread
	j.note("RANDOM_DELAY has become spread: the delay depends on the job's name, and is the same for each fire.")
	return nil
}

// posixShells have the syntax of /bin/sh for groups and redirections.
var posixShells = []string{"sh", "ash", "bash", "dash", "ksh", "zsh"}

// convertCommand sets the script of an entry.
func convertCommand(j *job, l crontabLine) {
	command, input := splitInput(l.command)
	if input != "" {
		j.note("The standard input that followed the first % is in the script.")
	}
	w := &j.work
	w.dir = l.variables["HOME"]
	if shell := l.variables["SHELL"]; shell != "/bin/sh" {
		w.interpreter = shell
	}
	switch {
	case input == "":
		w.script = command
	case w.interpreter == "" || slices.Contains(posixShells, path.Base(w.interpreter)):
		w.script = "{ " + command + "\n}" + hereDocument(input)
	default:
		w.script = "exec " + shell.Quote(w.interpreter) + " -c " + shell.Quote(command) + hereDocument(input)
		w.interpreter = ""
	}
	for name, value := range l.variables {
		if !isCronOnly(name, value) {
			if w.env == nil {
				w.env = map[string]string{}
			}
			w.env[name] = value
		}
	}
}

// splitInput returns a command and its standard input, as cron does: the first % that is not escaped
// ends the command, and others are line breaks.
func splitInput(text string) (command, input string) {
	var parts [2]strings.Builder
	part := 0
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && i+1 < len(text) && text[i+1] == '%':
			i++
			parts[part].WriteByte('%')
		case text[i] == '%' && part == 0:
			part = 1
		case text[i] == '%':
			parts[part].WriteByte('\n')
		default:
			parts[part].WriteByte(text[i])
		}
	}
	return strings.TrimRight(parts[0].String(), " \t"), parts[1].String()
}

// hereDocument returns a redirection of the shell for a standard input, or nothing if it is empty.
func hereDocument(input string) string {
	if input == "" {
		return ""
	}
	input = strings.TrimSuffix(input, "\n")
	end := "INPUT"
	for slices.Contains(strings.Split(input, "\n"), end) {
		end += "_"
	}
	return fmt.Sprintf(" <<'%s'\n%s\n%s", end, input, end)
}

// maxDescription is the limit of executor.Job.Description, in bytes.
const maxDescription = 1000

// describeComment returns the description in the comment above an entry. Comments that are disabled
// entries or explain the columns are left out.
func describeComment(comment []string) string {
	var words []string
	for _, line := range comment {
		if isColumnLegend(line) {
			return ""
		}
		if _, err := parseDisabled(line); err == nil {
			words = nil
			continue
		}
		words = append(words, strings.FieldsFunc(line, isBlank)...)
	}
	text := strings.Join(words, " ")
	for len(text) > maxDescription {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}

var columnLegend = regexp.MustCompile(`(?i)^(m\s+h\s+dom\b|min(ute)?\s+hour\b|[.|]?[-|.\s]*minute \(0)`)

func isColumnLegend(line string) bool { return columnLegend.MatchString(line) }

// parseDisabled reads an entry that a comment disables.
func parseDisabled(line string) (crontabLine, error) {
	l, err := parseEntry(line, false)
	if err != nil || strings.HasPrefix(l.times, "@") {
		return l, err
	}
	_, err = parseTimes(strings.Fields(l.times))
	return l, err
}
