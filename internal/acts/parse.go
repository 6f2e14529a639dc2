package acts

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/instant"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
)

// Parse returns the request that a form describes: its texts by the names of v's Fields. A text that is empty or blank leaves the field
// out. Names that no field has are ignored, as forms have others, too. The zone is that of instants without one; nil means UTC. Its
// errors are FieldErrors. The caller sets the target, and Do checks the request.
func (v *Verb) Parse(form map[string][]string, zone *time.Location) (Request, error) {
	if zone == nil {
		zone = time.UTC
	}
	var r Request
	for name, value := range fieldsOf(&r) {
		f, declared := v.field(name)
		if !declared || name == string(v.On) {
			continue
		}
		texts := slices.DeleteFunc(slices.Clone(form[name]), func(text string) bool { return strings.TrimSpace(text) == "" })
		var parsed any
		var err error
		if f.Kind == Pairs {
			texts = f.pairsOf(texts, form)
		}
		switch {
		case len(texts) == 0:
			continue
		case f.Kind == Pairs:
			parsed, err = parsePairs(texts)
		default:
			parsed, err = f.parse(texts, time.Now(), zone)
		}
		if err != nil {
			return Request{}, &FieldError{name, err}
		}
		if value.Kind() == reflect.Pointer {
			value.Set(reflect.New(value.Type().Elem()))
			value = value.Elem()
		}
		value.Set(reflect.ValueOf(parsed))
	}
	return r, nil
}

// pairsOf returns the lines of texts, and KEY=VALUE for the keys that a form has one by one.
func (f *Field) pairsOf(texts []string, form map[string][]string) (pairs []string) {
	for _, text := range texts {
		pairs = appendLines(pairs, "", text)
	}
	for i := range f.Keys {
		key := &f.Keys[i]
		for _, text := range form[f.Name+"."+key.Name] {
			switch {
			case strings.TrimSpace(text) == "":
			case key.Kind == Pairs:
				pairs = appendLines(pairs, key.Name+".", text)
			case key.Kind == Lines:
				pairs = append(pairs, key.Name+"="+parseLines(text))
			default:
				pairs = append(pairs, key.Name+"="+text)
			}
		}
	}
	return pairs
}

// appendLines appends the lines of a text that are not blank, each after a prefix.
func appendLines(pairs []string, prefix, text string) []string {
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\r\n"); strings.TrimSpace(line) != "" {
			pairs = append(pairs, prefix+line)
		}
	}
	return pairs
}

func parsePairs(pairs []string) (map[string]any, error) {
	fields := map[string]any{}
	for _, pair := range pairs {
		if strings.IndexByte(pair, '=') < 1 {
			return nil, errors.New("a line is not KEY=VALUE") // which is not repeated, as it may be secret
		}
		if err := AddPair(fields, pair); err != nil {
			return nil, err
		}
	}
	return fields, nil
}

// parse returns the value of texts, none of which is blank.
func (f *Field) parse(texts []string, now time.Time, zone *time.Location) (any, error) {
	if f.Kind == Names {
		return parseNames(texts), nil
	}
	if len(texts) > 1 {
		return nil, errors.New("it is given twice")
	}
	text := strings.TrimSpace(texts[0])
	switch f.Kind {
	case Shards:
		return parseShards(text)
	case Instant:
		return parseInstant(text, now, zone, instant.Past)
	case Until:
		if d, err := time.ParseDuration(text); err == nil && d > 0 {
			return now.Add(d), nil
		}
		return parseInstant(text, now, zone, instant.Future)
	case Number:
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%.20q is not a whole number from 1 on", text)
		}
		return n, nil
	case Count:
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%.20q is not a whole number from 0 on", text)
		}
		return n, nil
	case Switch:
		return true, nil
	case Lines:
		return parseLines(texts[0]), nil
	default:
		return texts[0], nil // with its blanks: a parameter may have them
	}
}

// parseLines returns a text as it was before a form sent it, which writes each line break as two characters.
func parseLines(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }

func parseShards(text string) ([]int, error) {
	set, err := shardset.ParseList(strings.ReplaceAll(text, " ", ""), record.MaxShards)
	return slices.Collect(set.All()), err
}

func parseInstant(text string, now time.Time, zone *time.Location, d instant.Direction) (time.Time, error) {
	at, err := instant.Parse(text, now, zone, d)
	if err != nil {
		return at, fmt.Errorf("it is %w", err)
	}
	return at, nil
}

func parseNames(texts []string) (names []string) {
	for _, text := range texts {
		for name := range strings.FieldsFuncSeq(text, func(c rune) bool { return c == ',' || c == '\n' || c == '\r' }) {
			if name = strings.TrimSpace(name); name != "" {
				names = append(names, name)
			}
		}
	}
	return names
}
