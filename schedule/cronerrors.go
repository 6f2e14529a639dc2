package schedule

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// quartzRules are what Quartz's cron has and Cron does not, by the items of a list that
// hold them.
var quartzRules = []struct {
	item *regexp.Regexp
	rule string
}{
	{regexp.MustCompile(`#`), "does not support #, the nth weekday of a month: use Quartz"},
	{regexp.MustCompile(`(?i)^(\d+|L)W$`), "does not support W, the working day nearest to a date: use Quartz"},
	{regexp.MustCompile(`(?i)^(L|\d+L|[a-z]{3}L)(-\d+)?$`), "does not support L, the last day of a month or week: use Quartz"},
	{regexp.MustCompile(`.\?|\?[^/]`), "supports ? only in place of a star"},
}

// explainCronError returns the error of the parser for fields, or a better one that names the rule
// that they break and the field.
func explainCronError(fields []string, err error) error {
	if len(fields) != 5 && len(fields) != 6 {
		return err // the fields have no meaning
	}
	for i, field := range fields {
		for item := range strings.SplitSeq(field, ",") {
			for _, q := range quartzRules {
				if q.item.MatchString(item) {
					return fmt.Errorf("%q: Cron %s", item, q.rule)
				}
			}
			bounds, _, _ := strings.Cut(item, "/")
			if i == len(fields)-1 && slices.Contains(strings.Split(bounds, "-"), "7") {
				return fmt.Errorf("%q: weekday 7 is Sunday in crontab(5) and Saturday in Quartz: write sun or sat, or a number from 0, which is Sunday, to 6", item)
			}
		}
	}
	for i, field := range fields {
		for item := range strings.SplitSeq(field, ",") {
			if item == "" {
				continue // which the parser ignores
			}
			if err := cronFields[i+len(cronFields)-len(fields)].check(item); err != nil {
				return err
			}
		}
	}
	return err
}

// cronField is a field of a cron spec.
type cronField struct {
	name     string
	min, max int
	names    string // three letters each, from min on
}

var cronFields = []cronField{
	{"second", 0, 59, ""},
	{"minute", 0, 59, ""},
	{"hour", 0, 23, ""},
	{"day of month", 1, 31, ""},
	{"month", 1, 12, monthNames},
	{"day of week", 0, 6, weekdayNames},
}

// check returns the rule that an item of a list breaks, as far as numbers are concerned.
func (f *cronField) check(item string) error {
	bounds, step, hasStep := strings.Cut(item, "/")
	if bounds != "*" && bounds != "?" {
		first, last, isRange := strings.Cut(bounds, "-")
		from, ok := f.parse(first)
		if !ok {
			return f.refuse(item, first)
		}
		if to, ok := f.parse(last); isRange && !ok {
			return f.refuse(item, last)
		} else if isRange && to < from {
			return fmt.Errorf("%s %q: the range ends before it begins", f.name, item)
		}
	}
	if n, err := strconv.ParseUint(step, 10, 31); hasStep && (err != nil || n == 0) {
		return fmt.Errorf("%s %q: %q is not a step, a number from 1", f.name, item, step)
	}
	return nil
}

func (f *cronField) parse(text string) (n int, ok bool) {
	if i := strings.Index(f.names, strings.ToUpper(text)); len(text) == 3 && i >= 0 && i%3 == 0 {
		return f.min + i/3, true
	}
	v, err := strconv.ParseUint(text, 10, 31)
	return int(v), err == nil && int(v) >= f.min && int(v) <= f.max
}

// refuse returns the error for a value of an item.
func (f *cronField) refuse(item, value string) error {
	of := fmt.Sprintf("%s %q", f.name, item)
	if value != item {
		of += fmt.Sprintf(": %q", value)
	}
	names := ""
	if f.names != "" {
		names = ", or a name such as " + strings.ToLower(f.names[:3])
	}
	return fmt.Errorf("%s is not a number from %d to %d%s", of, f.min, f.max, names)
}
