package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rota-dev/rota/internal/shell"
	"github.com/rota-dev/rota/operator"
)

// DescribeRetiring returns what the deletion of a retired job waits for.
func DescribeRetiring(st *operator.Status) string {
	var offers, owners []string
	for _, m := range st.Members {
		switch {
		case m.Alive && (m.Offers || m.Unsupported):
			offers = append(offers, m.Instance)
		case len(m.Shards) > 0:
			owners = append(owners, m.Instance)
		}
	}
	switch {
	case len(offers) > 0:
		return "deleted once no instance offers it; now " + someNames(offers)
	case st.Leader.Instance == "":
		return "there is no leader to delete it: start an instance"
	case len(owners) > 0:
		return "deleted once its last runs have ended, on " + someNames(owners)
	}
	return DeletedByLeader
}

// DeletedByLeader describes a retired job whose deletion waits for nothing. It may be deleted already.
const DeletedByLeader = "the leader deletes it"

// someNames joins names, sorted, and counts those after the first few.
func someNames(names []string) string {
	slices.Sort(names)
	names = slices.Compact(names)
	if more := len(names) - shownNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shownNames], ", "), more)
	}
	return strings.Join(names, ", ")
}

// shownNames bounds the names in a sentence.
const shownNames = 5

// describeUnoffered names the jobs that no live instance offers and that nobody has retired, and what to do; "" if
// there is none.
func describeUnoffered(jobs []operator.JobSummary) string {
	var names []string
	for i := range jobs {
		if j := &jobs[i]; !j.UnofferedSince.IsZero() && j.RetiredBy.At.IsZero() {
			names = append(names, j.Job)
		}
	}
	if len(names) == 0 {
		return ""
	}
	of := "JOB"
	if len(names) == 1 {
		of = shell.Quote(names[0])
	}
	return fmt.Sprintf("no live instance offers %s: start one that does; if it was removed or renamed on purpose: rota retire %s", someNames(names), of)
}
