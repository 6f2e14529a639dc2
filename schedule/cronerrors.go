package schedule

import (
	"fmt"
	"regexp"
	"slices"
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
// that they break, if the parser reports only that it expected a number.
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
	if _, rest, ok := strings.Cut(err.Error(), "failed to parse int from "); ok {
		word, _, _ := strings.Cut(rest, ": strconv")
		return fmt.Errorf("%q is neither a number nor a name that its field allows", word)
	}
	return err
}
