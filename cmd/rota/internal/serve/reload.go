package serve

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rota-dev/rota/cmd/rota/internal/jobsfile"
	"github.com/rota-dev/rota/executor"
)

// change is the effect of a reload on the jobs.
type change struct {
	register                []executor.Job
	added, changed, removed []string // names, for the log
}

// planReload returns the change from one valid file to another, or why the other cannot apply. In a
// fleet, a changed definition needs a higher revision; in memory it gets one. Gone has the jobs that
// earlier reloads withdrew, whose definitions are still stored.
func planReload(now, next *jobsfile.File, gone map[string]jobsfile.Job, inMemory bool) (change, error) {
	var c change
	var errs []error
	present := map[string]bool{}
	stored := maps.Clone(gone)
	if stored == nil {
		stored = map[string]jobsfile.Job{}
	}
	for _, j := range now.Jobs {
		stored[j.Name], present[j.Name] = j, true
	}
	for i := range next.Jobs {
		j := &next.Jobs[i]
		old, isStored := stored[j.Name]
		switch {
		case !isStored:
		case inMemory && equalDefinitions(old.Job, j.Job):
			j.Revision = old.Revision
		case inMemory:
			j.Revision = old.Revision + 1
		case j.Revision < old.Revision:
			errs = append(errs, fmt.Errorf("job %q: revision %d is below %d, which is in force", j.Name, j.Revision, old.Revision))
		case j.Revision == old.Revision && !equalDefinitions(old.Job, j.Job):
			errs = append(errs, fmt.Errorf("job %q: its definition differs in %s and its revision %d does not; raise it",
				j.Name, strings.Join(jobsfile.DifferingKeys(old.Job, j.Job), ", "), j.Revision))
		}
		switch {
		case !present[j.Name]:
			c.added = append(c.added, j.Name)
		case j.Digest != old.Digest || j.MaxRunning != old.MaxRunning || !equalDefinitions(old.Job, j.Job):
			c.changed = append(c.changed, j.Name)
		}
		delete(present, j.Name)
		c.register = append(c.register, j.Job)
	}
	for name := range present {
		c.removed = append(c.removed, name)
	}
	slices.Sort(c.removed)
	return c, errors.Join(errs...)
}

// equalDefinitions reports whether the stored parts of two jobs are equal apart from the revision.
func equalDefinitions(a, b executor.Job) bool {
	return len(jobsfile.DifferingKeys(a, b)) == 0
}

// listNames returns names for the log, at most 20.
func listNames(names []string) string {
	const most = 20
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
