package layout

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
)

// standard are methods that the standard library calls.
var standard = []string{"AppendText", "As", "Error", "Is", "MarshalJSON", "MarshalText", "String", "UnmarshalJSON", "UnmarshalText", "Unwrap"}

// exportedForTests are names without such users.
var exportedForTests = []string{
	// The exploration runs the steps of loops of several packages one at a time, in all orders.
	"claimer.ApplyPlans", "claimer.ApplyResult", "claimer.CopyJobState", "claimer.DrainInbox", "claimer.MarkDirty", "claimer.NextWrite", "claimer.NotifyWaiters",
	"elector.ReadFeed", "leader.CommitDecision", "leader.DecideWithReads", "leader.NewEdits", "leader.ShowDefined", "leader.StepDefined",
	"member.BuildJoinTxn", "member.ComposeState", "member.Fresh", "member.PublishState", "member.TryStoreDefinitions", "member.TryStoreKind",

	"view.Exact", "view.ShortSchedule", "view.Span", // for front ends that have no tables

	"explain.GateNames", // a test of the operator's answers compares them with a page
	"mutex.Fail",        // in the test build only
	"registryurl.Open",  // the tests and tools of fleets open etcd and ZooKeeper only
}

// exportsHaveUsers detects functions, methods and variables of internal packages that only their own package and tests use. Methods
// are compared by name alone. A constant may be exported so that tests of other packages need not repeat its value.
func exportsHaveUsers(tr *tree) (faults []string) {
	used := map[string]map[string]bool{} // directories without tests that select a name
	mayBeCalled := map[string]bool{}     // methods of interfaces
	for _, name := range standard {
		mayBeCalled[name] = true
	}
	for _, s := range tr.sources {
		for n := range ast.Preorder(s.file) {
			switch n := n.(type) {
			case *ast.InterfaceType:
				for _, m := range n.Methods.List {
					for _, name := range m.Names {
						mayBeCalled[name.Name] = true
					}
				}
			case *ast.SelectorExpr:
				names := []string{n.Sel.Name}
				if x, ok := n.X.(*ast.Ident); ok {
					names = append(names, x.Name+"."+n.Sel.Name)
				}
				for _, name := range names {
					if s.isTest() || matchesAny(s.dir(), testMachinery...) {
						continue
					}
					if used[name] == nil {
						used[name] = map[string]bool{}
					}
					used[name][s.dir()] = true
				}
			}
		}
	}
	for _, s := range tr.sources {
		if s.isTest() || !matchesPattern(s.dir(), "internal/...") || matchesAny(s.dir(), testMachinery...) {
			continue
		}
		pkg := s.file.Name.Name
		check := func(name *ast.Ident, qualified string) {
			users := used[qualified]
			if !name.IsExported() || len(users) > 1 || len(users) == 1 && !users[s.dir()] || slices.Contains(exportedForTests, pkg+"."+name.Name) {
				return
			}
			faults = append(faults, fmt.Sprintf("%s: %s.%s is exported, but only its package and tests use it", s.position(name), pkg, name.Name))
		}
		for _, decl := range s.file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				switch {
				case d.Recv == nil:
					check(d.Name, pkg+"."+d.Name.Name)
				case !mayBeCalled[d.Name.Name]:
					check(d.Name, d.Name.Name)
				}
			case *ast.GenDecl:
				if d.Tok != token.VAR {
					continue
				}
				for _, spec := range d.Specs {
					for _, name := range spec.(*ast.ValueSpec).Names {
						check(name, pkg+"."+name.Name)
					}
				}
			}
		}
	}
	return faults
}

// testMachinery are the packages for tests.
var testMachinery = []string{"internal/test/...", "internal/tools/...", "internal/group/coordtest", "internal/group/membertest"}
