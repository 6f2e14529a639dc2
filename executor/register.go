package executor

import (
	"fmt"

	"github.com/rota-dev/rota/internal/record"
)

// replacement is a job that is registered again with another definition.
type replacement struct {
	job         string
	differences []string
}

// replacedLocked returns those of jobs that replace another definition and are not an update,
// which has a higher Revision and comes while the executor runs. The caller holds e.mu.
func (e *Executor) replacedLocked(jobs []Job) []replacement {
	var all []replacement
	for _, j := range jobs {
		old, registered := e.jobs[j.Name]
		update := e.state == started && registered && j.Revision > old.Revision
		if !registered || e.withdrawn[j.Name] || update {
			continue
		}
		if d := differences(*old, j); len(d) > 0 {
			all = append(all, replacement{j.Name, d})
		}
	}
	return all
}

// differences describes how the definition of a job differs from an earlier one.
func differences(before, now Job) []string {
	first, _ := definitionOf(before).MarshalJSON() // both have been checked
	second, _ := definitionOf(now).MarshalJSON()
	all := record.Differences(first, "before", second, "now")
	if before.Revision != now.Revision {
		all = append(all, fmt.Sprintf("revision: %d before, %d now", before.Revision, now.Revision))
	}
	return all
}
