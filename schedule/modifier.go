package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// modifier is a word of a schedule's text and its argument, such as "in Europe/Berlin".
type modifier struct{ word, argument string }

// modifiers are those of one schedule, in the order of modifierWords.
type modifiers []modifier

// modifierWords are the words with which modifiers begin, in their order in a text. No kind of
// schedule has them before its modifiers.
var modifierWords = []string{"in", "from", "until", "spread"}

// splitModifiers splits the words of a text into those of the kind of schedule and the modifiers.
func splitModifiers(words []string) (kind []string, all modifiers) {
	kind = words
	for i, word := range words {
		switch {
		case slices.Contains(modifierWords, word):
			if len(all) == 0 {
				kind = words[:i]
			}
			all = append(all, modifier{word: word})
		case len(all) > 0:
			last := &all[len(all)-1]
			last.argument = strings.TrimSpace(last.argument + " " + word)
		}
	}
	return kind, all
}

// with returns s with another modifier at its place.
func (s Schedule) with(word, argument string) Schedule {
	kind, all := splitModifiers(strings.Fields(s.String()))
	all = append(all, modifier{word, argument})
	slices.SortStableFunc(all, func(a, b modifier) int {
		return slices.Index(modifierWords, a.word) - slices.Index(modifierWords, b.word)
	})
	text := strings.Join(kind, " ")
	for _, m := range all {
		text += " " + strings.TrimSpace(m.word+" "+m.argument)
	}
	return Schedule{text: text}
}

// find returns the argument of a modifier, or false if it is missing.
func (all modifiers) find(word string) (argument string, ok bool) {
	i := slices.IndexFunc(all, func(m modifier) bool { return m.word == word })
	if i < 0 {
		return "", false
	}
	return all[i].argument, true
}

// checkModifiers returns the rule that the modifiers of a kind of schedule break, or nil.
func checkModifiers(kind []string, all modifiers) error {
	for i, m := range all {
		if i > 0 && m.word == all[i-1].word {
			return errors.New(map[string]string{
				"in": "the time zone is named twice", "from": "From is given twice",
				"until": "Until is given twice", "spread": "Spread is given twice",
			}[m.word])
		}
		switch {
		case m.word == "in" && kind[0] != "cron" && kind[0] != "quartz":
			return errors.New("only a cron schedule or a quartz schedule can be in a zone")
		case strings.Join(kind, " ") == triggerText:
			return fmt.Errorf("%s has no fires to which %q could apply", triggerText, m.word)
		}
	}
	return checkSpread(kind, all)
}

// newBounded returns f within the bounds of From and Until.
func newBounded(f fireSet, all modifiers) (fireSet, error) {
	b := bounded{fireSet: f}
	var errs [2]error
	if text, ok := all.find("from"); ok {
		b.from, errs[0] = parseInstant(text)
	}
	if text, ok := all.find("until"); ok {
		b.until, errs[1] = parseInstant(text)
	}
	switch err := errors.Join(errs[:]...); {
	case err != nil:
		return nil, err
	case b.from.IsZero() && b.until.IsZero():
		return f, nil
	case b.next(time.Time{}).IsZero():
		return nil, errors.New("it never fires: no fire is within its bounds")
	}
	return &b, nil
}

// instantText returns the text form of an instant in a schedule.
func instantText(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func parseInstant(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, text)
	switch {
	case err != nil:
		return time.Time{}, fmt.Errorf("%q is not an instant in the form of RFC 3339, such as 2026-01-02T03:04:05Z", text)
	case t.IsZero():
		return time.Time{}, errors.New("an instant is the zero time")
	}
	return t.UTC(), nil
}

// parseInstants reads a list of instants.
func parseInstants(text string) ([]time.Time, error) {
	if text == "" {
		return nil, errors.New("it has no instants")
	}
	var all []time.Time
	for item := range strings.SplitSeq(text, ",") {
		t, err := parseInstant(strings.TrimSpace(item))
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}
