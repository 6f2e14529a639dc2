package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

// Preview holds the moves of shards that a leader would make.
type Preview struct {
	At    time.Time `json:"at"`    // when the records were read, by the local clock
	Added []string  `json:"added"` // the names that the instances of With have in Moves
	// Jobs are the jobs with moves, with shards that would have no owner, with a problem, or whose moves
	// are not known, sorted by name. Other jobs stay as they are.
	Jobs []JobMoves `json:"jobs"`
}

// JobMoves holds the moves of one job.
type JobMoves struct {
	Job   string `json:"job"`
	Moves []Move `json:"moves"` // sorted by From and To
	// Unowned are the shards that would have no owner, in ascending order.
	Unowned []int `json:"unowned"`
	// Problem is the problem that the job would have; docs/operating/messages.md lists the texts.
	Problem string `json:"problem,omitempty"`
	// Unknown is the reason why the moves of the job are not known, such as a strategy that this program
	// does not have. It is empty if they are known.
	Unknown string `json:"unknown,omitempty"`
}

// Move is shards that would change their owner.
type Move struct {
	Shards []int  `json:"shards"`         // in ascending order
	From   string `json:"from,omitempty"` // instances; empty for no owner
	To     string `json:"to,omitempty"`   // instances; empty for no owner
}

// MovesOption is an option of Operator.Moves: a change of the fleet, or a bound of the answer.
type MovesOption func(*movesInput) error

type movesInput struct {
	view       planning.View
	added      []string
	job        string
	strategies map[string]strategy.Func
}

// Without removes instances from the fleet, by name. An instance that the group does not have is an
// error.
func Without(instances ...string) MovesOption {
	return func(in *movesInput) error {
		for _, name := range instances {
			found := false
			for inc, m := range in.view.Members {
				if m.Name == name {
					found = true
					delete(in.view.Members, inc)
					delete(in.view.Live, m.Session)
				}
			}
			if !found {
				return invalidArgument(fmt.Errorf("there is no instance %q", name))
			}
		}
		return nil
	}
}

// With adds n instances to the fleet, with labels, weight 1 and all jobs that a live instance offers.
func With(n int, labels map[string]string) MovesOption {
	return func(in *movesInput) error {
		if n < 1 || n > maxAdded {
			return invalidArgument(fmt.Errorf("%d more instances: not from 1 to %d", n, maxAdded))
		}
		if err := errors.Join(record.CheckLabels(labels, record.MaxLabels)...); err != nil {
			return invalidArgument(fmt.Errorf("labels of the added instances: %w", err))
		}
		taken, offered := map[string]bool{}, map[string]bool{}
		for inc, m := range in.view.Members {
			taken[m.Name] = true
			for _, job := range m.Jobs {
				if in.view.Alive(inc) {
					offered[job] = true
				}
			}
		}
		jobs := slices.Sorted(maps.Keys(offered))
		for number := 1; n > 0; number++ {
			name := fmt.Sprintf("new-%d", number)
			if taken[name] {
				continue
			}
			session := registry.SessionID(name)
			in.view.Live[session] = true
			in.view.Members[record.Incarnation(name, session)] = planning.MemberRecord{
				Member: record.Member{Name: name, Session: session, Jobs: jobs, Labels: maps.Clone(labels)},
			}
			in.added = append(in.added, name)
			n--
		}
		return nil
	}
}

// maxAdded bounds the instances of With.
const maxAdded = 1000

// OfJob reports one job only. The other jobs count towards the balance of the instances as before.
func OfJob(job string) MovesOption {
	return func(in *movesInput) error {
		in.job = job
		return nil
	}
}

// KnowingStrategies adds strategies of your own, by name, as the instances of the fleet have them in
// their options.
func KnowingStrategies(strategies map[string]strategy.Func) MovesOption {
	return func(in *movesInput) error {
		in.strategies = strategies
		return nil
	}
}

// Moves returns which shards the leader would move, and changes nothing. Without an option that changes
// the fleet, these are the moves that are about to happen. The assignment is computed by the functions
// that leaders use, from records that may have changed since; a later decision may differ.
//
// The options apply in their order, such as Moves(ctx, Without("web-3"), With(2, nil)).
//
// For shards of an instance that is away and has a RestartGrace, Moves assumes that they wait for its
// return. The moves of a job whose strategy is not known here are Unknown; its shards count for the
// balance as if they stayed. See KnowingStrategies.
//
// The cost is one list of each directory of the group: at most nine reads for any number of jobs. Moves fails
// with ErrUnknownJob if OfJob names a job that is not stored.
func (o *Operator) Moves(ctx context.Context, options ...MovesOption) (Preview, error) {
	p, err := o.previewMoves(ctx, options)
	if err != nil {
		return Preview{}, fmt.Errorf("preview moves: %w", err)
	}
	return p, nil
}

func (o *Operator) previewMoves(ctx context.Context, options []MovesOption) (Preview, error) {
	s, err := o.listGroup(ctx)
	if err != nil {
		return Preview{}, err
	}
	if err := s.Check(o.keys.Meta()); err != nil && !errors.Is(err, registry.ErrForeign) {
		return Preview{}, err
	}
	now := time.Now()
	in := movesInput{view: s.View(o.compile)}
	in.view.Now = record.InstantOf(now)
	if o.compile == nil {
		in.view.Compile = func(json.RawMessage) (due.Program, error) { return nil, errors.New("schedules are not known") }
	}
	for _, option := range options {
		if err := option(&in); err != nil {
			return Preview{}, err
		}
	}
	known, err := strategy.Known(in.strategies)
	if err != nil {
		return Preview{}, err
	}
	in.view.Strategies = known
	in.view.BeginAbsences()
	out := Preview{At: now, Added: in.added}
	found := in.job == ""
	for _, t := range planning.FindTargets(&in.view) {
		job := in.view.InForce(t.Segment)
		if in.job != "" && job.Name != in.job {
			continue
		}
		found = true
		var owners map[string]shardset.Set
		shards := in.view.Jobs[t.Segment].Shards
		if plan, ok := in.view.Plans[t.Segment]; ok {
			owners, shards = plan.Owners, plan.Shards()
		}
		j := JobMoves{Job: job.Name}
		if _, ok := known[cmp.Or(job.Strategy, "sticky")]; !ok {
			j.Unknown = fmt.Sprintf("strategy %q is not known here, so its moves are not known; see KnowingStrategies", job.Strategy)
		} else {
			j.Problem = t.Problem
			j.Moves, j.Unowned = compareOwners(owners, t.Owners, shards)
		}
		if len(j.Moves) > 0 || len(j.Unowned) > 0 || j.Problem != "" || j.Unknown != "" {
			out.Jobs = append(out.Jobs, j)
		}
	}
	if !found {
		return Preview{}, fmt.Errorf("%w: %q", ErrUnknownJob, in.job)
	}
	slices.SortFunc(out.Jobs, func(a, b JobMoves) int { return strings.Compare(a.Job, b.Job) })
	return out, nil
}

// compareOwners returns the moves from one assignment of shards to another, and the shards that the
// other one assigns to no instance.
func compareOwners(before, after map[string]shardset.Set, shards int) (moves []Move, unowned []int) {
	all := shardset.Range(0, shards)
	withNone := func(owners map[string]shardset.Set) map[string]shardset.Set {
		rest, byName := all, map[string]shardset.Set{}
		for inc, set := range owners {
			byName[record.InstanceOf(inc)] = byName[record.InstanceOf(inc)].Union(set.Intersect(all))
			rest = rest.Minus(set)
		}
		byName[""] = rest
		return byName
	}
	from, to := withNone(before), withNone(after)
	for _, a := range slices.Sorted(maps.Keys(from)) {
		for _, b := range slices.Sorted(maps.Keys(to)) {
			if set := from[a].Intersect(to[b]); a != b && !set.IsZero() {
				moves = append(moves, Move{shardList(set), a, b})
			}
		}
	}
	return moves, shardList(to[""])
}
