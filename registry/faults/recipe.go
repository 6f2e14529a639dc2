package faults

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// String returns r in one line, as Parse reads it: the name of the fault, then the fields that
// are not zero.
func (r Rule) String() string {
	var b strings.Builder
	b.WriteString(r.Fault.String())
	field := func(set bool, name, value string) {
		if set {
			b.WriteString(" " + name + "=" + value)
		}
	}
	field(r.Client != "", "client", r.Client)
	field(r.Ops != 0, "ops", r.Ops.String())
	field(r.Key != "", "key", r.Key)
	field(r.Skip != 0, "skip", strconv.Itoa(r.Skip))
	field(r.Times != 0, "times", strconv.Itoa(r.Times))
	field(r.Chance != 0, "chance", strconv.FormatFloat(r.Chance, 'g', -1, 64))
	field(r.From != 0, "from", r.From.String())
	field(r.Until != 0, "until", r.Until.String())
	length := r.For.String()
	if r.UpTo != 0 {
		length += ".." + r.UpTo.String()
	}
	field(r.For != 0 || r.UpTo != 0, "for", length)
	return b.String()
}

// String returns the seed and the rules in the order of Add, ended ones too, a line each. Parse
// reads it.
func (in *Injector) String() string {
	in.mu.Lock()
	defer in.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "seed=%d\n", in.seed)
	for _, r := range in.rules {
		b.WriteString(r.String() + "\n")
	}
	return b.String()
}

// Parse returns an Injector with the seed and the rules of a text, such as
//
//	seed=7
//	lose-reply client=web-* ops=txn key=jobs/... chance=0.05
//	cut ops=txn chance=0.001 for=1s..20s
//
// Lines are separated by newlines or semicolons. The first one is the seed, each other line is
// a Rule: the name of its fault, and fields by name. The lengths For and UpTo are one field.
func Parse(text string) (*Injector, error) {
	var in *Injector
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == ';' })
	for _, line := range lines {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if in == nil {
			digits, ok := strings.CutPrefix(words[0], "seed=")
			seed, err := strconv.ParseUint(digits, 10, 64)
			if !ok || err != nil || len(words) > 1 {
				return nil, fmt.Errorf("faults: %q is not seed=N", strings.TrimSpace(line))
			}
			in = New(seed)
			continue
		}
		r, err := parseRule(words)
		if err == nil {
			err = r.check()
		}
		if err != nil {
			return nil, fmt.Errorf("faults: %q: %w", strings.TrimSpace(line), err)
		}
		in.Add(r)
	}
	if in == nil {
		return nil, fmt.Errorf("faults: no seed=N")
	}
	return in, nil
}

func parseRule(words []string) (Rule, error) {
	var r Rule
	for _, k := range kinds {
		if k.name == words[0] {
			r.Fault = k.fault
		}
	}
	if r.Fault == 0 {
		return Rule{}, fmt.Errorf("unknown fault %q", words[0])
	}
	seen := map[string]bool{}
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		if seen[name] {
			return Rule{}, fmt.Errorf("%s is set twice", name)
		}
		seen[name] = true
		if err := r.parseField(name, value); err != nil {
			return Rule{}, fmt.Errorf("%q: %w", word, err)
		}
	}
	return r, nil
}

func (r *Rule) parseField(name, value string) (err error) {
	switch name {
	case "client":
		r.Client = value
	case "ops":
		r.Ops, err = parseOps(value)
	case "key":
		r.Key = value
	case "skip":
		r.Skip, err = strconv.Atoi(value)
	case "times":
		r.Times, err = strconv.Atoi(value)
	case "chance":
		r.Chance, err = strconv.ParseFloat(value, 64)
	case "from":
		r.From, err = time.ParseDuration(value)
	case "until":
		r.Until, err = time.ParseDuration(value)
	case "for":
		length, upTo, ranged := strings.Cut(value, "..")
		if r.For, err = time.ParseDuration(length); err == nil && ranged {
			r.UpTo, err = time.ParseDuration(upTo)
		}
	default:
		err = fmt.Errorf("unknown field %q", name)
	}
	return err
}

func parseOps(text string) (Ops, error) {
	var ops Ops
	for name := range strings.SplitSeq(text, ",") {
		found := false
		for _, n := range opNames {
			if n.name == name {
				ops |= n.op
				found = true
			}
		}
		if !found {
			return 0, fmt.Errorf("unknown operation %q", name)
		}
	}
	return ops, nil
}
