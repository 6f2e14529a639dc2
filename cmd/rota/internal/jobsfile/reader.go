package jobsfile

import (
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/rota-dev/rota/cmd/rota/internal/spelling"
	"github.com/rota-dev/rota/internal/registryurl"
)

// reader reads the nodes of a file. It collects problems, and the places of all keys.
type reader struct {
	problems []Problem
	path     string
	places   map[string]place
	muted    bool // problems have been reported before
	schemes  registryurl.Schemes
}

// place is where a key and its value are.
type place struct{ key, value *yaml.Node }

// plainName matches names that a path shows without quotes.
var plainName = regexp.MustCompile(`^[\pL\pN_/-]+$`)

// joinPath returns the path of a key below another.
func joinPath(path, key string) string {
	if !plainName.MatchString(key) {
		key = fmt.Sprintf("%.100q", key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// within calls f with the path of a key or element, which is at p.
func (r *reader) within(path string, p place, f func()) {
	before := r.path
	r.path = path
	if !r.muted {
		r.places[path] = p
	}
	f()
	r.path = before
}

// report adds a problem at n.
func (r *reader) report(n *yaml.Node, format string, args ...any) {
	r.reportAt(r.path, n, format, args...)
}

func (r *reader) reportAt(path string, n *yaml.Node, format string, args ...any) {
	if !r.muted {
		r.problems = append(r.problems, Problem{Line: n.Line, Column: n.Column, Key: path, Rule: fmt.Sprintf(format, args...)})
	}
}

// describeNode names the kind of a value in an error.
func describeNode(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		if len(n.Content) > 0 && n.Content[0].Kind == yaml.MappingNode {
			return "a map (a text that begins with {{ needs quotes)"
		}
		return "a map"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!null":
		if n.Value != "" {
			return n.Value
		}
		return "empty"
	case "!!int", "!!float":
		return "the number " + n.Value
	case "!!bool":
		return n.Value
	}
	return fmt.Sprintf("the text %.100q", n.Value)
}

// refuseIndirection reports anchors, aliases and tags below n: a file is data, and an alias could
// stand for a large amount of it. It returns false if there are any.
func (r *reader) refuseIndirection(n *yaml.Node) bool {
	sound := true
	refuse := func(rule string) {
		sound = false
		r.report(n, "%s", rule)
	}
	switch {
	case n.Kind == yaml.AliasNode:
		refuse(fmt.Sprintf("the alias *%s is not allowed: repeat the value, or put it into defaults", n.Value))
		return false // its target is checked at its own place
	case n.Anchor != "":
		refuse(fmt.Sprintf("the anchor &%s is not allowed: there are no aliases in this file", n.Anchor))
	case n.Style&yaml.TaggedStyle != 0:
		refuse(fmt.Sprintf("the tag %s is not allowed", n.Tag))
	}
	for _, c := range n.Content {
		sound = r.refuseIndirection(c) && sound
	}
	return sound
}

// entries returns the keys and values of a map, and reports keys that are no texts or are double.
func (r *reader) entries(n *yaml.Node) (all []place) {
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.ShortTag() == "!!null" {
			r.report(key, "a key is %s; keys are texts, in quotes if need be", describeNode(key))
			continue
		}
		if line, again := first[key.Value]; again {
			r.reportAt(joinPath(r.path, key.Value), key, "is given twice, first in line %d", line)
			continue
		}
		first[key.Value] = key.Line
		all = append(all, place{key, value})
	}
	return all
}

// suggest returns the key among keys that a misspelt one probably means, or "".
func suggest(key string, keys []string) string {
	return spelling.Nearest(strings.ToLower(strings.ReplaceAll(key, "-", "_")), keys)
}
