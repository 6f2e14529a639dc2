package planning

import (
	"fmt"
	"maps"
	"slices"

	"github.com/rota-dev/rota/internal/group/balance"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// Problems of jobs that no member may own.
const (
	// UnsupportedProblem: members would offer the job if they supported its definitions.
	UnsupportedProblem = "no live instance that offers the job supports all definitions in force"
	// UnofferedProblem: no live instance offers the job, nor an awaited one.
	UnofferedProblem = "no live instance offers the job"
	allDisabled      = "every live instance that offers the job is disabled"
)

// labelsProblem returns the problem of a job that no enabled member with its labels offers.
func labelsProblem(wanted map[string]string, someDisabled bool) string {
	format := "no live instance that offers the job has the labels %.1000s"
	if someDisabled {
		format = "every live instance that offers the job is disabled or lacks the labels %.1000s"
	}
	return fmt.Sprintf(format, record.LabelsText(wanted))
}

// unreadableProblem returns the problem of a job of which a record cannot be read.
func unreadableProblem(key registry.Key) string { return fmt.Sprintf("%s cannot be read", key) }

// MaxWeight bounds MemberOptions.Weight, whatever a record holds.
const MaxWeight = 1000

// weightOf returns the weight of a member. Most records hold none.
func weightOf(m *record.Member) int { return min(max(m.Weight, 1), MaxWeight) }

// offer is a set of members that offer the same jobs, as nearly all of a fleet do.
type offer struct {
	of           *record.Member
	members      []int // indexes of assigner.members, ascending
	someDisabled bool  // more members offer them, which are disabled for all jobs
}

// assigner assigns the shards of all jobs.
type assigner struct {
	*round
	members []balance.Member
	offers  []offer
	labels  []map[string]string // by index of members
	load    map[string]int      // shards that jobs with a strategy of their own have assigned

	strategyErrors   map[string]error  // see Decision
	strategyProblems map[string]string // see Decision
}

// newAssigner returns an assigner with the members that may own shards.
func newAssigner(r *round) *assigner {
	a := &assigner{round: r, load: map[string]int{}, strategyErrors: map[string]error{}, strategyProblems: map[string]string{}}
	for _, inc := range slices.Sorted(maps.Keys(r.Members)) {
		m := r.Members[inc]
		if _, skewed := r.Skewed[inc]; skewed || m.Draining || !r.Alive(inc) {
			continue
		}
		same := slices.IndexFunc(a.offers, func(o offer) bool { return o.of.OffersSame(&m.Member) })
		if same == -1 {
			same = len(a.offers)
			a.offers = append(a.offers, offer{of: &m.Member})
		}
		if r.GroupExclusion.Excludes(&m.Member) {
			a.offers[same].someDisabled = true
			continue
		}
		a.offers[same].members = append(a.offers[same].members, len(a.members))
		a.members = append(a.members, balance.Member{ID: inc, Weight: weightOf(&m.Member)})
		a.labels = append(a.labels, m.Labels)
	}
	return a
}

// findEligible returns the indexes of the members that offer a job, are not disabled and have its
// labels, ascending, or the problem if only other members offer it. The slice is shared.
func (a *assigner) findEligible(segment string, job record.Job) (eligible []int, problem string) {
	someDisabled := false
	for _, o := range a.offers {
		if !o.of.Offers(job) {
			continue
		}
		someDisabled = someDisabled || o.someDisabled
		if eligible == nil {
			eligible = o.members
			continue
		}
		eligible = slices.Concat(eligible, o.members)
		slices.Sort(eligible)
	}
	if c, ok := a.Control[segment]; ok && !c.Exclusion.IsZero() {
		offering := len(eligible)
		eligible = slices.DeleteFunc(slices.Clone(eligible), func(i int) bool { return a.isDisabledFor(segment, a.members[i].ID) })
		someDisabled = someDisabled || len(eligible) < offering
	}
	if len(job.RunOn) == 0 {
		if len(eligible) == 0 && someDisabled {
			problem = allDisabled
		}
		return eligible, problem
	}
	offered := someDisabled || len(eligible) > 0
	eligible = slices.DeleteFunc(slices.Clone(eligible), func(i int) bool { return !record.HasLabels(a.labels[i], job.RunOn) })
	if len(eligible) == 0 && offered {
		problem = labelsProblem(job.RunOn, someDisabled)
	}
	return eligible, problem
}
