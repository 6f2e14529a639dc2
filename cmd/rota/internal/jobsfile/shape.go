package jobsfile

import (
	"encoding"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// shape is a form that values have: how one is read, and how the JSON schema and the documentation
// describe it.
type shape[V any] struct {
	text   string         // for the documentation
	schema map[string]any // JSON schema
	// read returns the value of n, or reports a problem and returns false.
	read func(r *reader, n *yaml.Node) (V, bool)
}

// text is a text. Numbers, dates and the like need quotes.
func text() shape[string] {
	return shape[string]{"text", map[string]any{"type": "string"}, func(r *reader, n *yaml.Node) (string, bool) {
		switch {
		case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str":
			return n.Value, true
		case n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null":
			r.report(n, "is %s, not a text: put it in quotes", describeNode(n))
		default:
			r.report(n, "is %s, not a text", describeNode(n))
		}
		return "", false
	}}
}

// scalar is a text or any other single value, which is used as it is written.
func scalar() shape[string] {
	s := map[string]any{"type": []string{"string", "number", "boolean"}}
	return shape[string]{"text", s, func(r *reader, n *yaml.Node) (string, bool) {
		if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
			r.report(n, `is %s, not a text; an empty text is ""`, describeNode(n))
			return "", false
		}
		return n.Value, true
	}}
}

// oneOf is one of several words.
func oneOf(words ...string) shape[string] {
	s := text()
	s.text = "`" + strings.Join(words, "`, `") + "`"
	s.schema = map[string]any{"enum": words}
	s.read = func(r *reader, n *yaml.Node) (string, bool) {
		if n.Kind == yaml.ScalarNode && slices.Contains(words, n.Value) {
			return n.Value, true
		}
		r.report(n, "is %s, not %s", describeNode(n), listWords(words))
		return "", false
	}
	return s
}

func listWords(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = strconv.Quote(w)
	}
	return joinWords(quoted)
}

// joinWords returns words as "a, b or c".
func joinWords(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// boolean is true or false.
func boolean() shape[bool] {
	return shape[bool]{"`true` or `false`", map[string]any{"type": "boolean"}, func(r *reader, n *yaml.Node) (bool, bool) {
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" {
			r.report(n, "is %s, not true or false", describeNode(n))
			return false, false
		}
		return strings.EqualFold(n.Value, "true"), true
	}}
}

// decimal matches the whole numbers that are read the same way by everybody: 010 and 1_000 are not.
var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// number is a whole number that is at least least.
func number(least int) shape[int] {
	s := map[string]any{"type": "integer", "minimum": least}
	return shape[int]{fmt.Sprintf("number from %d", least), s, func(r *reader, n *yaml.Node) (int, bool) {
		v, err := strconv.Atoi(n.Value)
		switch {
		case n.Kind != yaml.ScalarNode || !decimal.MatchString(n.Value):
			r.report(n, "is %s, not a whole number", describeNode(n))
		case n.ShortTag() == "!!str":
			r.report(n, "is %s, not a number: remove the quotes", describeNode(n))
		case err != nil:
			r.report(n, "is %s, which is too large", describeNode(n))
		case v < least:
			r.report(n, "is %d, below %d", v, least)
		default:
			return v, true
		}
		return 0, false
	}}
}

// fraction is a number from least on.
func fraction(least float64) shape[float64] {
	s := map[string]any{"type": "number", "minimum": least}
	return shape[float64]{fmt.Sprintf("number from %v", least), s, func(r *reader, n *yaml.Node) (float64, bool) {
		v, err := strconv.ParseFloat(n.Value, 64)
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" && n.ShortTag() != "!!float" || err != nil || !(v >= least) {
			r.report(n, "is %s, not a number from %v", describeNode(n), least)
			return 0, false
		}
		return v, true
	}}
}

const durationPattern = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`

// duration is a duration that is at least least.
func duration(least time.Duration) shape[time.Duration] {
	s := map[string]any{"type": "string", "pattern": durationPattern}
	return shape[time.Duration]{"duration, such as `30s`", s, func(r *reader, n *yaml.Node) (time.Duration, bool) {
		if n.Kind != yaml.ScalarNode {
			r.report(n, "is %s, not a duration such as 30s, 5m or 1h30m", describeNode(n))
			return 0, false
		}
		d, err := time.ParseDuration(n.Value)
		switch {
		case n.ShortTag() == "!!int" || n.ShortTag() == "!!float":
			r.report(n, "is %s, without a unit: write %ss, %sm or %sh", describeNode(n), n.Value, n.Value, n.Value)
		case err != nil && strings.HasSuffix(n.Value, "d"):
			r.report(n, "is %s, not a duration: there is no unit for days, write 24h", describeNode(n))
		case err != nil:
			r.report(n, "is %s, not a duration such as 30s, 5m or 1h30m", describeNode(n))
		case d < least:
			r.report(n, "is %v, below %v", d, least)
		default:
			return d, true
		}
		return 0, false
	}}
}

const instantPattern = `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$`

// instant is a time in the form of RFC 3339.
func instant() shape[time.Time] {
	s := map[string]any{"type": "string", "pattern": instantPattern}
	return shape[time.Time]{"time, such as `2026-01-02T03:04:05Z`", s, func(r *reader, n *yaml.Node) (time.Time, bool) {
		t, err := time.Parse(time.RFC3339, n.Value)
		if n.Kind != yaml.ScalarNode || err != nil {
			r.report(n, "is %s, not a time with date and zone such as 2026-01-02T03:04:05Z", describeNode(n))
			return time.Time{}, false
		}
		return t, true
	}}
}

// policy is a value with a text form. Forms describes the texts, pattern matches them.
func policy[V any, P interface {
	*V
	encoding.TextUnmarshaler
}](forms []string, pattern string,
) shape[V] {
	s := map[string]any{"type": "string", "pattern": pattern}
	return shape[V]{"`" + strings.Join(forms, "`, `") + "`", s, func(r *reader, n *yaml.Node) (v V, ok bool) {
		if n.Kind != yaml.ScalarNode || P(&v).UnmarshalText([]byte(n.Value)) != nil {
			r.report(n, "is %s, not %s", describeNode(n), listWords(forms))
			return v, false
		}
		return v, true
	}}
}

// listOf is a list of values of another shape, with at least one element.
func listOf[V any](of shape[V]) shape[[]V] {
	s := map[string]any{"type": "array", "items": of.schema, "minItems": 1}
	return shape[[]V]{"list of " + of.text, s, func(r *reader, n *yaml.Node) ([]V, bool) {
		if n.Kind != yaml.SequenceNode {
			r.report(n, "is %s, not a list", describeNode(n))
			return nil, false
		}
		if len(n.Content) == 0 {
			r.report(n, "is an empty list")
			return nil, false
		}
		all, sound := make([]V, len(n.Content)), true
		for i, c := range n.Content {
			r.within(fmt.Sprintf("%s[%d]", r.path, i), place{c, c}, func() {
				var ok bool
				all[i], ok = of.read(r, c)
				sound = sound && ok
			})
		}
		return all, sound
	}}
}

// mapOf is a map from names to values of another shape.
func mapOf[V any](name string, of shape[V]) shape[map[string]V] {
	s := map[string]any{"type": "object", "additionalProperties": of.schema}
	return shape[map[string]V]{fmt.Sprintf("map from %s to %s", name, of.text), s, func(r *reader, n *yaml.Node) (map[string]V, bool) {
		if n.Kind != yaml.MappingNode {
			r.report(n, "is %s, not a map from %s to %s", describeNode(n), name, plainText(of.text))
			return nil, false
		}
		all, sound := map[string]V{}, true
		for _, p := range r.entries(n) {
			r.within(joinPath(r.path, p.key.Value), p, func() {
				v, ok := of.read(r, p.value)
				all[p.key.Value] = v
				sound = sound && ok
			})
		}
		return all, sound
	}}
}

// either is a value of one of two shapes: the first if isFirst reports so for its node.
func either[V any](text string, isFirst func(n *yaml.Node) bool, first, second shape[V]) shape[V] {
	s := map[string]any{"oneOf": []any{first.schema, second.schema}}
	return shape[V]{text, s, func(r *reader, n *yaml.Node) (V, bool) {
		if isFirst(n) {
			return first.read(r, n)
		}
		return second.read(r, n)
	}}
}

// convert is a value of one shape as another type.
func convert[V, W any](s shape[V], f func(V) W) shape[W] {
	return shape[W]{s.text, s.schema, func(r *reader, n *yaml.Node) (w W, ok bool) {
		v, ok := s.read(r, n)
		if !ok {
			return w, false
		}
		return f(v), true
	}}
}

func isScalar(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode }

// field is a key of an object of type T.
type field[T any] struct {
	name     string
	text     string // the form of the value, for the documentation
	standard string // the default, for the documentation
	doc      string
	schema   map[string]any
	required bool
	// with lists keys of which the object needs one for this key to apply; nil means that it applies always.
	with []string
	// inDefaults reports whether the key may be in defaults.
	inDefaults bool
	// hidden leaves the key out of documentation and schema, as its use is an error.
	hidden bool
	read   func(r *reader, n *yaml.Node, into *T)
}

// key returns a field whose value has a shape and is stored at a place in the object.
func key[T, V any](name string, s shape[V], at func(*T) *V, standard, doc string) field[T] {
	return field[T]{
		name: name, text: s.text, standard: standard, doc: doc, schema: s.schema,
		read: func(r *reader, n *yaml.Node, into *T) {
			if v, ok := s.read(r, n); ok {
				*at(into) = v
			}
		},
	}
}

func (f field[T]) require() field[T]             { f.required = true; return f }
func (f field[T]) allowInDefaults() field[T]     { f.inDefaults = true; return f }
func (f field[T]) onlyWith(k ...string) field[T] { f.with = k; return f }

// refused returns a field whose use is an error.
func refused[T any](name, rule string) field[T] {
	return field[T]{name: name, hidden: true, read: func(r *reader, n *yaml.Node, _ *T) { r.report(n, "%s", rule) }}
}

// object is a map with known keys. Guesses maps names that users try to the keys that they mean.
func object[T any](text string, guesses map[string]string, fields []field[T]) shape[T] {
	return shape[T]{text, objectSchema(fields), func(r *reader, n *yaml.Node) (v T, ok bool) {
		if n.Kind != yaml.MappingNode {
			r.report(n, "is %s, not a map with keys such as %s", describeNode(n), fields[0].name)
			return v, false
		}
		before := len(r.problems)
		given := map[string]bool{}
		for _, p := range r.entries(n) {
			name := p.key.Value
			given[name] = true
			r.within(joinPath(r.path, name), p, func() { readField(r, p, fields, guesses, &v) })
		}
		for _, f := range fields {
			if f.required && !given[f.name] {
				r.report(n, "has no %s", f.name)
			}
		}
		return v, len(r.problems) == before
	}}
}

// readField reads the value of a key into an object.
func readField[T any](r *reader, p place, fields []field[T], guesses map[string]string, into *T) {
	i := slices.IndexFunc(fields, func(f field[T]) bool { return f.name == p.key.Value })
	switch {
	case i < 0:
		r.report(p.key, "unknown key%s", hint(p.key.Value, fields, guesses))
	case p.value.Kind == yaml.ScalarNode && p.value.ShortTag() == "!!null":
		r.report(p.value, "is empty: give a value, or remove the key")
	default:
		fields[i].read(r, p.value, into)
	}
}

// hint returns what to write instead of an unknown key.
func hint[T any](name string, fields []field[T], guesses map[string]string) string {
	if instead := guesses[name]; instead != "" {
		return ": use " + instead
	}
	var names []string
	for _, f := range fields {
		if !f.hidden {
			names = append(names, f.name)
		}
	}
	if instead := suggest(name, names); instead != "" {
		return fmt.Sprintf(": is it %s?", instead)
	}
	if len(names) > 12 {
		return `: "rota validate --schema" prints all keys`
	}
	return ": the keys here are " + strings.Join(names, ", ")
}

// objectSchema returns the JSON schema of an object.
func objectSchema[T any](fields []field[T]) map[string]any {
	properties, dependent := map[string]any{}, map[string]any{}
	var required []string
	for _, f := range fields {
		if f.hidden {
			continue
		}
		property := map[string]any{"description": plainText(f.doc)}
		if f.standard != "" {
			property["description"] = plainText(f.doc + " Default: " + f.standard + ".")
		}
		for k, v := range f.schema {
			property[k] = v
		}
		properties[f.name] = property
		if f.required {
			required = append(required, f.name)
		}
		if f.with != nil {
			dependent[f.name] = map[string]any{"anyOf": requireEach(f.with)}
		}
	}
	s := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if required != nil {
		s["required"] = required
	}
	if len(dependent) > 0 {
		s["dependentSchemas"] = dependent
	}
	return s
}

// requireEach returns a schema for each name that requires it.
func requireEach(names []string) (all []any) {
	for _, name := range names {
		all = append(all, map[string]any{"required": []string{name}})
	}
	return all
}

// plainText returns Markdown without code marks.
func plainText(markdown string) string { return strings.ReplaceAll(markdown, "`", "") }
