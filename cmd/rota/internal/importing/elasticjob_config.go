package importing

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// jobConfig is the configuration of a job of Elastic-Job, by the names of its fields there.
type jobConfig struct {
	version configVersion
	fields  map[string]string
	lists   map[string][]string
	// props are those of props (3.x) or jobProperties (2.x).
	props map[string]string
}

// configVersion is the form in which a configuration is stored.
type configVersion int

const (
	fieldsVersion configVersion = 1 // a node for each field
	jsonVersion   configVersion = 2
	yamlVersion   configVersion = 3
)

// readConfig reads the node config of a job, in the form of any version.
func readConfig(n *node) (c jobConfig, err error) {
	c = jobConfig{fields: map[string]string{}, lists: map[string][]string{}, props: map[string]string{}}
	if strings.TrimSpace(n.text()) == "" {
		c.version = fieldsVersion
		for _, name := range n.names() {
			c.fields[name] = n.children[name].value
		}
		if len(c.fields) == 0 {
			return c, errors.New("the configuration is empty")
		}
		return c, nil
	}
	c.version = yamlVersion
	if strings.HasPrefix(strings.TrimSpace(n.value), "{") {
		c.version = jsonVersion
	}
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(n.value), &document); err != nil { // JSON is YAML
		return c, err
	}
	if len(document.Content) == 0 {
		return c, errors.New("the configuration is empty")
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		return c, errors.New("the configuration is no mapping")
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		c.add(root.Content[i].Value, root.Content[i+1])
	}
	return c, nil
}

// add adds a field of a configuration. Java's types in tags are not evaluated.
func (c *jobConfig) add(name string, value *yaml.Node) {
	if value.Kind == yaml.AliasNode {
		value = value.Alias
	}
	switch value.Kind {
	case yaml.SequenceNode:
		for _, e := range value.Content {
			if e.Kind == yaml.ScalarNode {
				c.lists[name] = append(c.lists[name], e.Value)
			} else {
				c.lists[name] = append(c.lists[name], strings.TrimLeft(e.Tag, "!"))
			}
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(value.Content); i += 2 {
			if name == "props" || name == "jobProperties" {
				c.props[value.Content[i].Value] = scalarValue(value.Content[i+1])
			} else {
				c.lists[name] = append(c.lists[name], value.Content[i].Value)
			}
		}
	default:
		c.fields[name] = scalarValue(value)
	}
}

func scalarValue(n *yaml.Node) string {
	if n.Tag == "!!null" {
		return ""
	}
	return n.Value
}

// first returns the first field or property of the names that is not empty, with its name.
func (c *jobConfig) first(names ...string) (name, value string) {
	for _, name := range names {
		if v := c.fields[name]; v != "" {
			return name, v
		}
		if v := c.props[name]; v != "" {
			return name, v
		}
	}
	return "", ""
}

func (c *jobConfig) text(names ...string) string {
	_, value := c.first(names...)
	return value
}

// flag returns a field that is true or false.
func (c *jobConfig) flag(name string, missing bool) (bool, error) {
	text := c.text(name)
	if text == "" {
		return missing, nil
	}
	v, err := strconv.ParseBool(strings.ToLower(text))
	if err != nil {
		return false, fmt.Errorf("%s is %q, not true or false", name, text)
	}
	return v, nil
}

// number returns a field that is a number.
func (c *jobConfig) number(name string, missing int) (int, error) {
	text := c.text(name)
	if text == "" {
		return missing, nil
	}
	v, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%s is %q, not a number", name, text)
	}
	return v, nil
}
