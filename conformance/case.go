package conformance

import "slices"

// Case is one test of the suite.
type Case struct {
	Group  string
	Code   string // stays when the name changes
	Name   string // the promise in words
	Safety bool   // may not be lacking
	Needs  []string
	Proves []Promise

	run func(*test)
}

// Title is the name of the case's subtest.
func (c Case) Title() string { return c.Code + " " + c.Name }

// Cases returns all cases in the order in which they are run.
func Cases() []Case {
	var all []Case
	for _, g := range []struct {
		name  string
		cases []Case
	}{
		{"Keys", keyCases},
		{"Transactions", txnCases},
		{"Reads", readCases},
		{"Watches", watchCases},
		{"Sessions", sessionCases},
		{"Owned keys", ownedCases},
		{"Locks", lockCases},
		{"Limits", limitCases},
		{"Faults", faultCases},
		{"Hygiene", hygieneCases},
	} {
		for _, c := range g.cases {
			c.Group = g.name
			all = append(all, c)
		}
	}
	return all
}

// lack returns why b does not run c, or "".
func (c Case) lack(b Backend) string {
	if reason := b.Lacks[c.Code]; reason != "" {
		return reason
	}
	for _, lever := range c.Needs {
		if reason := b.Lacks[lever]; reason != "" {
			return lever + ": " + reason
		}
	}
	return ""
}

func caseOf(code string) (Case, bool) {
	all := Cases()
	i := slices.IndexFunc(all, func(c Case) bool { return c.Code == code })
	if i < 0 {
		return Case{}, false
	}
	return all[i], true
}
