package importing

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/rota-dev/rota/schedule"
)

func convertTestCrontab(t *testing.T, text string, o crontabOptions) document {
	t.Helper()
	if o.source == "" {
		o.source = "crontab"
	}
	d, err := convertCrontab(text, o)
	require.NoError(t, err)
	return d
}

func TestConvertCrontab_WritesAJobsFile(t *testing.T) {
	for _, file := range []string{"testdata/user.crontab", "testdata/system.crontab"} {
		d := convertTestCrontab(t, readTestFile(t, file), crontabOptions{source: file, detect: true})
		requireGolden(t, file+".yaml", writeJobsFile(d))
	}
}

// The YAML of a jobs file holds the texts of the model, whatever characters they have.
func TestWriteJobsFile_KeepsTexts(t *testing.T) {
	texts := []string{
		"plain", "two words", "true", "No", "~", "", "a: b", "a #b", `"`, `'`, `it's "so" \n`, "{{.Shard}}", "*/5 * * * *", "0", "- a",
		"a\nb", "\na", "a\n", " a\nb", "a\n\n  b\tc", "tab\there", "\x7f\u0085\ufeff", "日本", "%", "@daily", "a\r\nb", "trailing ", "?", "1e3", "&a",
	}
	rng := rand.New(rand.NewPCG(3, 4))
	pieces := []rune("aZ0 \n\t'\"\\:#-{}[]&*!|>%@`?,~=$/.\r\x01é日\u2028\ufeff")
	for range 1000 {
		text := make([]rune, rng.IntN(12))
		for i := range text {
			text[i] = pieces[rng.IntN(len(pieces))]
		}
		texts = append(texts, string(text))
	}
	d := document{namespace: "a: b", timezone: "Asia/Shanghai"}
	for i, text := range texts {
		d.jobs = append(d.jobs, job{
			name: fmt.Sprintf("%s%d", text, i), description: text, param: text, shards: 2, shardParams: map[int]string{1: text},
			work: work{script: text, env: map[string]string{"A": text, "B": ""}}, notes: []string{text, "\xff" + text},
		})
	}
	var got struct {
		Namespace string
		Jobs      map[string]struct {
			Description, Param, Shell string
			Shards                    map[int]string
			Env                       map[string]string
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(writeJobsFile(d)), &got))
	assert.Equal(t, "a: b", got.Namespace)
	require.Len(t, got.Jobs, len(texts))
	for i, text := range texts {
		j := got.Jobs[fmt.Sprintf("%s%d", text, i)]
		assert.Equal(t, text, j.Description)
		assert.Equal(t, text, j.Param)
		assert.Equal(t, text, j.Shell)
		assert.Equal(t, map[int]string{0: "", 1: text}, j.Shards)
		assert.Equal(t, text, j.Env["A"])
	}
}

func TestConvertCrontab_LeavesOutADelayAboveTheTimeBetweenFires(t *testing.T) {
	d := convertTestCrontab(t, "RANDOM_DELAY=30\n*/30 * * * * half\n*/20 * * * * third\n", crontabOptions{})
	require.Len(t, d.jobs, 2)
	assert.Equal(t, 30*time.Minute, d.jobs[0].schedule.spread)
	assert.Zero(t, d.jobs[1].schedule.spread)
	assert.Contains(t, strings.Join(d.jobs[1].notes, "\n"), "RANDOM_DELAY=30 has been left out")
}

func TestConvertCrontab_ReportsAllMistakes(t *testing.T) {
	_, err := convertCrontab(strings.Join([]string{
		"61 * * * * a",
		"* * * *",
		"* * * * *",
		"0 0 * * mon-sun-tue a",
		"@fortnightly a",
		`A="b`,
		"5/10 * * * * a",
		"0~30 * * * * a",
		"30-10 * * * * a",
		"*/0 * * * * a",
		"0 0 0 * * a",
		"# fine:",
		"0-9/9223372036854775807 * * * * a",
		"0 0 * jann * a",
		"\xff * * * * a",
		"RANDOM_DELAY=soon",
		"* * * * * a",
	}, "\n"), crontabOptions{source: "tab"})
	assert.EqualError(t, err, strings.Join([]string{
		`tab:1: minute "61": 61 is not within 0 to 59`,
		"tab:2: a line has five fields of times and a command, or sets a variable as NAME=VALUE",
		"tab:3: the line has no command",
		`tab:4: day of week "mon-sun-tue": "sun-tue" is not a number`,
		`tab:5: "@fortnightly" is none of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly, @reboot`,
		"tab:6: the value of A begins with a quotation mark and does not end with it",
		`tab:7: minute "5/10": a step follows a star or a range, such as 5-59/10`,
		`tab:8: minute "0~30": cron chooses a random value of "0~30" when it starts; write one of them`,
		`tab:9: minute "30-10": the range "30-10" ends before it begins`,
		`tab:10: minute "*/0": the step "0" is not a number above 0`,
		`tab:11: day of month "0": 0 is not within 1 to 31`,
		`tab:14: month "jann": "jann" is not a number`,
		"tab:15: the line is not UTF-8",
		`tab:17: RANDOM_DELAY is "soon", not a number of minutes of a day`,
	}, "\n"))
}

func TestConvertCrontab_DetectsTheColumnOfUsers(t *testing.T) {
	for _, c := range []struct {
		source, text string
		system       bool
	}{
		{"-", "* * * * * root true", true},
		{"-", "* * * * * root true\n@daily www-data /bin/a", true},
		{"-", "* * * * * backup /srv", false},
		{"-", "* * * * * root true\n* * * * * /bin/a b", false},
		{"-", "", false},
		{"/etc/crontab", "* * * * * backup /srv", true},
		{"/etc/cron.d/a", "* * * * * backup /srv", true},
	} {
		assert.Equal(t, c.system, isSystemCrontab(c.source, c.text), c.text)
	}
	_, err := convertCrontab("# none", crontabOptions{source: "tab"})
	assert.EqualError(t, err, "tab has no entries")
	_, err = convertCrontab("* * * * * a", crontabOptions{source: "tab", system: true})
	assert.EqualError(t, err, "tab:1: the line has no command")
}

func TestConvertCrontab_NamesJobsAfterTheirPrograms(t *testing.T) {
	for command, want := range map[string]string{
		"/opt/bin/backup.sh --all":                                             "backup",
		"cd /srv && ./run":                                                     "run",
		"A=1 B=2 sudo -u www-data nice -n 10 php8.2 x/y.php":                   "y",
		"test -x /a/b || exit 0; /usr/bin/timeout 5m python3 /opt/Mail_Out.py": "mail-out",
		"bash -c 'dump | gzip'":                                                "dump",
		"flock -n /tmp/lock poll":                                              "poll",
		"[ -d /a ] && clean":                                                   "clean",
		"日报":                                                                   "日报",
		"{ }":                                                                  "job",
		strings.Repeat("é", 40):                                                strings.Repeat("é", 30),
	} {
		assert.Equal(t, want, deriveName(command), command)
	}
	d := convertTestCrontab(t, "@daily a\n@daily a\n@daily a-2\n@daily a\n", crontabOptions{})
	var names []string
	for _, j := range d.jobs {
		names = append(names, j.name)
	}
	assert.Equal(t, []string{"a", "a-2", "a-2-2", "a-3"}, names)
}

// The scripts receive the standard input that cron passes, under each shell.
func TestConvertCrontab_ScriptsReceiveTheirInput(t *testing.T) {
	for line, want := range map[string]string{
		`cat; echo end%a%  b\%c%$HOME`: "a\n  b%c\n$HOME\nend\n",
		`cat%INPUT%INPUT_`:             "INPUT\nINPUT_\n",
		`cat # comment%a`:              "a\n",
		`cat && true%a%`:               "a\n",
		`cat%`:                         "",
		`echo 50\% of "it's"`:          "50% of it's\n",
	} {
		for _, shell := range []string{"", "SHELL=/bin/./sh"} {
			w := convertTestCrontab(t, shell+"\n@daily "+line, crontabOptions{}).jobs[0].work
			interpreter := "/bin/sh"
			if shell != "" {
				interpreter = w.interpreter
			}
			out, err := exec.Command(interpreter, "-c", w.script).Output()
			require.NoError(t, err, w.script)
			assert.Equal(t, want, string(out), w.script)
		}
	}
	w := convertTestCrontab(t, "SHELL=/bin/csh\n@daily cat 'a b'%x\n", crontabOptions{}).jobs[0].work
	assert.Equal(t, work{script: `exec /bin/csh -c 'cat '\''a b'\''' <<'INPUT'` + "\nx\nINPUT", env: map[string]string{"SHELL": "/bin/csh"}}, w)
}

// cronMatches reports whether cron runs an entry on a day. It is written from crontab(5) for this
// test: fields are read here a second time.
func cronMatches(day time.Time, dayOfMonth, month, dayOfWeek string) bool {
	inField := func(field string, v, lowest, highest int) bool {
		for part := range strings.SplitSeq(field, ",") {
			var first, last, step int
			switch {
			case scan(part, "*/%d", &step):
				first, last = lowest, highest
			case part == "*":
				first, last, step = lowest, highest, 1
			case scan(part, "%d-%d/%d", &first, &last, &step):
			case scan(part, "%d-%d", &first, &last):
				step = 1
			case scan(part, "%d", &first):
				last, step = first, 1
			}
			for i := first; i <= last; i += step {
				if i == v {
					return true
				}
			}
		}
		return false
	}
	if !inField(month, int(day.Month()), 1, 12) {
		return false
	}
	byDate := inField(dayOfMonth, day.Day(), 1, 31)
	weekday := int(day.Weekday())
	byWeekday := inField(dayOfWeek, weekday, 0, 7) || weekday == 0 && inField(dayOfWeek, 7, 0, 7)
	if dayOfMonth[0] == '*' || dayOfWeek[0] == '*' {
		return byDate && byWeekday
	}
	return byDate || byWeekday
}

// scan reads text by a format, as a whole.
func scan(text, format string, values ...any) bool {
	var rest string
	n, _ := fmt.Sscanf(text+"$", format+"%s", append(values, &rest)...)
	return n == len(values)+1 && rest == "$"
}

// Every schedule that is written fires on the days on which cron runs the line, also where cron
// combines the two fields of days by their first characters.
func TestTimes_FireOnTheDaysOfCron(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	field := func(lowest, highest int) string {
		one := func() string {
			a := lowest + rng.IntN(highest-lowest+1)
			b := a + rng.IntN(highest-a+1)
			switch rng.IntN(6) {
			case 0:
				return "*"
			case 1:
				return fmt.Sprintf("*/%d", 1+rng.IntN(8))
			case 2:
				return fmt.Sprintf("%d-%d", a, b)
			case 3:
				return fmt.Sprintf("%d-%d/%d", a, b, 1+rng.IntN(3))
			}
			return fmt.Sprint(a)
		}
		parts := []string{one()}
		for rng.IntN(3) == 0 {
			parts = append(parts, one())
		}
		return strings.Join(parts, ",")
	}
	begin := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	written, dropped := 0, 0
	for range 200 {
		dayOfMonth, month, dayOfWeek := field(1, 31), field(1, 12), field(0, 7)
		parsed, err := parseTimes([]string{"0", "0", dayOfMonth, month, dayOfWeek})
		require.NoError(t, err)
		text, ok := parsed.text()
		if !ok {
			dropped++
			continue
		}
		written++
		var want []string
		for day := begin; day.Year() < 2026; day = day.AddDate(0, 0, 1) {
			if cronMatches(day, dayOfMonth, month, dayOfWeek) {
				want = append(want, day.Format(time.DateOnly))
			}
		}
		fires, err := schedule.Cron(text).Next(begin.Add(-1), len(want)+1)
		if len(want) > 0 {
			require.NoError(t, err, text)
		}
		var got []string
		for _, f := range fires {
			if f.Year() < 2026 {
				got = append(got, f.Format(time.DateOnly))
			}
		}
		require.Equal(t, want, got, "0 0 %s %s %s as %s", dayOfMonth, month, dayOfWeek, text)
	}
	assert.Greater(t, written, 100)
	assert.Greater(t, dropped, 20)
}

func TestDescribeComment_LeavesDisabledEntriesOut(t *testing.T) {
	for _, c := range []struct {
		comment []string
		want    string
	}{
		{[]string{"sends the", "daily report"}, "sends the daily report"},
		{[]string{"0 3 * * * /usr/bin/old", "backup"}, "backup"},
		{[]string{"of the entry below", "0 3 * * * /usr/bin/old", "backup"}, "backup"},
		{[]string{"backup", "0 3 * * * /usr/bin/old"}, ""},
		{[]string{"m h dom mon dow command"}, ""},
	} {
		assert.Equal(t, c.want, describeComment(c.comment), "%q", c.comment)
	}
}
