package diagnosis

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rota-dev/rota/internal/record"
)

// isRetiring reports whether operators have retired a job. Nothing else about such a job is a finding: it is not to run.
func (d *diagnosis) isRetiring(segment string) bool {
	c, found := d.Control[segment]
	return found && c.Retiring != nil
}

// checkRetiring reports what the deletion of retired jobs waits for.
func (d *diagnosis) checkRetiring() {
	for _, segment := range slices.Sorted(maps.Keys(d.Control)) {
		if !d.isRetiring(segment) {
			continue
		}
		c := d.Control[segment]
		waits, do := d.explainRetiring(segment, c.Job)
		what := "the job is retiring"
		if c.Retiring.By != "" {
			what += ", by " + c.Retiring.By
		}
		d.add(Finding{Info, Retiring, c.Job, d.Keys.Control(segment), what + ": " + waits, do})
	}
}

// explainRetiring returns why a retired job is not deleted yet, and what to do.
func (d *diagnosis) explainRetiring(segment, job string) (waits, do string) {
	var offers, owners []string
	for _, m := range d.Members {
		if inForce := d.InForce(segment, job); d.IsLive(m.Session) && (m.Offers(inForce) || m.LacksSupport(inForce)) {
			offers = append(offers, m.Name)
		}
	}
	for inc := range d.Owners(segment) {
		owners = append(owners, record.InstanceOf(inc))
	}
	switch {
	case len(offers) > 0:
		return "registered by " + nameSome(offers), fmt.Sprintf("deploy without the job; to keep it: rota unretire %s", job)
	case len(owners) > 0:
		return "shards are owned by " + nameSome(owners) + " until their runs have ended, or a restart grace", d.byLeader("deletes the job then; to end the runs: rota cancel " + job)
	}
	return "it is to be deleted", d.byLeader("deletes it; if it stays so, look at its log")
}

// nameSome joins names, sorted, and counts those after the first few.
func nameSome(names []string) string {
	const most = 5
	slices.Sort(names)
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
