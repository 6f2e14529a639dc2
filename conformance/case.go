package conformance

import "slices"

// Case is one test of the suite.
type Case struct {
	Group  string
	Code   string // stable; Name may be reworded
	Name   string // the tested promise, in words
	Safety bool   // must not be declared lacking
	Needs  []string
	Proves []Promise

	// alone keeps the case apart from the cases of parallel runs: it looks at all goroutines of the
	// process, or all servers have to restart within a session's TTL.
	alone bool
	run   func(*test)
}

// Title is the name of the case's subtest.
func (c Case) Title() string { return c.Code + " " + c.Name }

// Cases returns all cases in the order in which they run.
func Cases() []Case {
	var all []Case
	for _, g := range []struct {
		name  string
		cases []Case
	}{
		{"Keys", keyCases},
		{"Transactions", slices.Concat(txnCases, txnFormCases)},
		{"Reads", readCases},
		{"Watches", slices.Concat(watchCases, deliveryCases)},
		{"Sessions", slices.Concat(sessionCases, suspendedCases, lifetimeCases)},
		{"Owned keys", slices.Concat(ownedCases, sessionEndCases)},
		{"Locks", lockCases},
		{"Limits", limitCases},
		{"Faults", slices.Concat(faultCases, delayCases, cutOffCases)},
		{"Members", memberCases},
		{"Histories", historyCases},
		{"Hygiene", hygieneCases},
	} {
		for _, c := range g.cases {
			c.Group = g.name
			all = append(all, c)
		}
	}
	return all
}

// lackReason returns why b skips c, or "" if it runs c.
func (c Case) lackReason(b Backend) string {
	names := c.lacking(b.Lacks)
	switch {
	case len(names) == 0:
		return ""
	case names[0] == c.Code:
		return b.Lacks[c.Code]
	}
	return names[0] + ": " + b.Lacks[names[0]]
}

// lacking returns the entries of lacks that exclude c: its code or a fault control that
// it needs.
func (c Case) lacking(lacks Lacks) []string {
	var names []string
	for _, name := range append([]string{c.Code}, c.Needs...) {
		if lacks[name] != "" {
			names = append(names, name)
		}
	}
	return names
}

func findCase(code string) (Case, bool) {
	all := Cases()
	i := slices.IndexFunc(all, func(c Case) bool { return c.Code == code })
	if i < 0 {
		return Case{}, false
	}
	return all[i], true
}
