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
	kinds                   kindChange
}

// kindChange is the effect of a reload on the kinds.
type kindChange struct {
	register                []executor.Kind
	added, changed, removed []string
}

// planKinds is planReload for kinds.
func planKinds(now, next *jobsfile.File, gone map[string]*jobsfile.Kind, inMemory bool) (c kindChange, err error) {
	var errs []error
	stored, present := map[string]*jobsfile.Kind{}, map[string]bool{}
	maps.Copy(stored, gone)
	for i := range now.Kinds {
		k := &now.Kinds[i]
		stored[k.Name], present[k.Name] = k, true
	}
	for i := range next.Kinds {
		k := &next.Kinds[i]
		if old := stored[k.Name]; old != nil {
			differing := jobsfile.DifferingKindKeys(old.Kind, k.Kind)
			switch {
			case inMemory && len(differing) == 0:
				k.Revision = old.Revision
			case inMemory:
				k.Revision = old.Revision + 1
			case k.Revision < old.Revision:
				errs = append(errs, fmt.Errorf("kind %q: revision %d is below %d, which is in force", k.Name, k.Revision, old.Revision))
			case k.Revision == old.Revision && len(differing) > 0:
				errs = append(errs, fmt.Errorf("kind %q: it differs in %s and its revision %d does not; raise it", k.Name, strings.Join(differing, ", "), k.Revision))
			}
			if present[k.Name] && !k.Equal(old) {
				c.changed = append(c.changed, k.Name)
			}
		}
		if !present[k.Name] {
			c.added = append(c.added, k.Name)
		}
		delete(present, k.Name)
		c.register = append(c.register, k.Kind)
	}
	c.removed = slices.Sorted(maps.Keys(present))
	return c, errors.Join(errs...)
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
