package api

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/look"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/internal/view"
)

// A struct of parameters has a field for each. The tag query names it; default, min, max and doc are what openapi.json says of it.
// A field of type []string may be repeated.

// text is a parameter with a form of its own.
type text interface{ parse(string) error }

// age is a duration that may be in days.
type age time.Duration

func (a *age) parse(s string) error {
	d, err := look.ParseAge(s)
	*a = age(d)
	return err
}

// shards are numbers of shards; nil if the parameter is not given.
type shards []int

func (n *shards) parse(s string) error {
	set, err := shardset.ParseList(s, record.MaxShards)
	*n = slices.Collect(set.All())
	return err
}

// jobState is one of view.JobStates.
type jobState string

func (j *jobState) parse(s string) error {
	*j = jobState(s)
	return view.JobsFilter{State: s}.Check()
}

// glob is a pattern for names of jobs.
type glob string

func (g *glob) parse(s string) error {
	*g = glob(s)
	return view.JobsFilter{Glob: s}.Check()
}

// parameters returns the fields of a struct of parameters, also those of embedded structs.
func parameters(t reflect.Type) (fields []reflect.StructField) {
	for f := range t.Fields() {
		if f.Tag.Get("query") != "" {
			fields = append(fields, f)
		} else if f.Anonymous {
			for _, inner := range parameters(f.Type) {
				inner.Index = slices.Concat(f.Index, inner.Index)
				fields = append(fields, inner)
			}
		}
	}
	return fields
}

// parseQuery fills a struct of parameters. One that it does not have is an error.
func parseQuery(raw string, into any) error {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return problemOf(badRequest, "the query cannot be parsed")
	}
	v := reflect.ValueOf(into).Elem()
	fields := parameters(v.Type())
	for _, f := range fields {
		name := f.Tag.Get("query")
		given, isGiven := values[name]
		delete(values, name)
		if f.Type == reflect.TypeFor[[]string]() {
			v.FieldByIndex(f.Index).Set(reflect.ValueOf(given))
			continue
		}
		if len(given) > 1 {
			return wrong(invalidArgument, name, name+" is given more than once")
		}
		text := f.Tag.Get("default")
		if isGiven {
			text = given[0]
		}
		if text == "" && !isGiven {
			continue
		}
		if err := parseParameter(text, v.FieldByIndex(f.Index), f.Tag); err != nil {
			return wrong(invalidArgument, name, fmt.Sprintf("%s: %v", name, err))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		return wrong(unknownField, name, fmt.Sprintf("there is no parameter %.40q; there are: %s", name, cmp.Or(strings.Join(namesOf(fields), ", "), "none")))
	}
	return nil
}

func namesOf(fields []reflect.StructField) (names []string) {
	for _, f := range fields {
		names = append(names, f.Tag.Get("query"))
	}
	return names
}

func parseParameter(s string, v reflect.Value, tag reflect.StructTag) error {
	switch into := v.Addr().Interface().(type) {
	case text:
		return into.parse(s)
	case *time.Time:
		at, err := time.Parse(time.RFC3339, s)
		if err != nil {
			return fmt.Errorf("%.40q is no instant of RFC 3339", s)
		}
		*into = at
	case *string:
		*into = s
	case *bool:
		b, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("%.20q is neither true nor false", s)
		}
		*into = b
	case *uint64:
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return fmt.Errorf("%.20q is no number from 0", s)
		}
		*into = n
	case *int:
		return parseNumber(s, into, tag)
	default:
		return fmt.Errorf("no form for %T", into) // a fault of the table of routes, which each test of a route shows
	}
	return nil
}

func parseNumber(s string, into *int, tag reflect.StructTag) error {
	least, _ := strconv.Atoi(tag.Get("min"))
	most, _ := strconv.Atoi(tag.Get("max"))
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > most {
		return fmt.Errorf("%.20q is no number from %d to %d", s, least, most)
	}
	*into = n
	return nil
}
