package importing

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// node is a record of a registry with the records below it. A nil node is one that does not exist.
type node struct {
	value    string
	children map[string]*node
}

// at returns the node at a relative path, or nil.
func (n *node) at(path string) *node {
	for name := range strings.SplitSeq(path, "/") {
		if n == nil {
			return nil
		}
		n = n.children[name]
	}
	return n
}

func (n *node) text() string {
	if n == nil {
		return ""
	}
	return n.value
}

// names returns the names of the nodes below n, in order.
func (n *node) names() []string {
	if n == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(n.children))
}

// items returns the nodes below n whose names are numbers, by number.
func (n *node) items() map[int]*node {
	items := map[int]*node{}
	if n == nil {
		return items
	}
	for name, child := range n.children {
		if i, err := strconv.Atoi(name); err == nil && i >= 0 {
			items[i] = child
		}
	}
	return items
}

// set adds a record at a relative path.
func (n *node) set(path, value string) {
	for name := range strings.SplitSeq(path, "/") {
		if n.children == nil {
			n.children = map[string]*node{}
		}
		if n.children[name] == nil {
			n.children[name] = &node{}
		}
		n = n.children[name]
	}
	n.value = value
}
