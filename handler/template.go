package handler

import (
	"fmt"
	"reflect"
	"strings"
	"text/template"
	"text/template/parse"
)

// parseTemplate parses a template of a run. Errors begin with its name.
func parseTemplate(name, text string) (*template.Template, error) {
	t, err := template.New(name).Funcs(template.FuncMap{"json": toJSON}).Parse(text)
	if err != nil {
		return nil, err
	}
	if err := checkFields(t.Root, viewType); err != nil {
		return nil, fmt.Errorf("template: %s: %w", name, err)
	}
	return t, nil
}

func render(t *template.Template, v view) (string, error) {
	var b strings.Builder
	if err := t.Execute(&b, v); err != nil {
		return "", err
	}
	return b.String(), nil
}

var viewType = reflect.TypeFor[view]()

// checkFields returns an error if a template uses a field or method that its data does not
// have, which text/template reports only when it executes that part. dot is the type of the
// present data, nil if unknown.
func checkFields(n parse.Node, dot reflect.Type) error {
	switch n := n.(type) {
	case *parse.FieldNode:
		return checkPath(dot, n.Ident)
	case *parse.VariableNode:
		if n.Ident[0] == "$" {
			return checkPath(viewType, n.Ident[1:])
		}
	case *parse.ChainNode:
		return checkFields(n.Node, dot)
	case *parse.CommandNode:
		return checkAll(n.Args, dot)
	case *parse.PipeNode:
		for _, c := range n.Cmds {
			if err := checkFields(c, dot); err != nil {
				return err
			}
		}
	case *parse.ActionNode:
		return checkFields(n.Pipe, dot)
	case *parse.ListNode:
		if n != nil {
			return checkAll(n.Nodes, dot)
		}
	case *parse.IfNode:
		return checkAll([]parse.Node{n.Pipe, n.List, n.ElseList}, dot)
	case *parse.WithNode:
		return checkBranches(&n.BranchNode, dot)
	case *parse.RangeNode:
		return checkBranches(&n.BranchNode, dot)
	}
	return nil
}

func checkAll(nodes []parse.Node, dot reflect.Type) error {
	for _, n := range nodes {
		if err := checkFields(n, dot); err != nil {
			return err
		}
	}
	return nil
}

// checkBranches checks a with or range, whose first branch has other data.
func checkBranches(n *parse.BranchNode, dot reflect.Type) error {
	if err := checkFields(n.List, nil); err != nil {
		return err
	}
	return checkAll([]parse.Node{n.Pipe, n.ElseList}, dot)
}

func checkPath(t reflect.Type, names []string) error {
	for _, name := range names {
		if t == nil {
			return nil
		}
		if m, ok := t.MethodByName(name); ok {
			t = m.Type.Out(0)
		} else if f, ok := fieldOf(t, name); ok {
			t = f.Type
		} else {
			return fmt.Errorf("a run has no .%s", strings.Join(names, "."))
		}
	}
	return nil
}

func fieldOf(t reflect.Type, name string) (reflect.StructField, bool) {
	if t.Kind() != reflect.Struct {
		return reflect.StructField{}, false
	}
	f, ok := t.FieldByName(name)
	return f, ok && f.IsExported()
}
