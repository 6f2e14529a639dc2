package fleet

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/test/judge"
)

// Kind is a kind of round: a fault or a planned change of a fleet.
type Kind struct {
	Name    string
	Members int // the least number of members of the store
	inject  func(*Faults, context.Context) error
	store   bool // a fault of the store, which affects all times measured meanwhile
	mixed   bool // needs a base
	fleet   sort // see fleetSort
}

// fleetSort returns the sort of fleet for the kind.
func (k *Kind) fleetSort() sort { return cmp.Or(k.fleet, faults) }

// sort is a sort of fleet.
type sort string

const (
	faults  sort = "faults"
	planned sort = "planned" // whose schedule is dense, so that it does not affect measured times
	named   sort = "named"   // whose processes keep their names and have a restart grace
	lengthy sort = "lengthy" // whose runs outlast a drain
	edited  sort = "edits"   // whose records are edited: see edits.go
)

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{
		{Name: "kill", Members: 1, inject: (*Faults).killOne},
		{Name: "pause", Members: 1, inject: (*Faults).pauseOne},
		{Name: "cut", Members: 1, inject: (*Faults).cutOff},
		{Name: "cut-short", Members: 1, inject: (*Faults).cutOffShortly},
		{Name: "member", Members: 3, inject: (*Faults).killMember, store: true},
		{Name: "restart-fleet", Members: 1, inject: (*Faults).restartFleet},
		{Name: "restart-servers", Members: 1, inject: (*Faults).restartServers, store: true},
		{Name: "full", Members: 1, inject: (*Faults).fillStore, store: true},
		{Name: "roll", Members: 1, inject: (*Faults).roll, mixed: true},
		{Name: "total", Members: 1, inject: (*Faults).changeTotal},
		{Name: "leave", Members: 1, inject: (*Faults).leaveAndJoin, fleet: planned},
		{Name: "named", Members: 1, inject: (*Faults).restartNamed, fleet: named},
		{Name: "deploy", Members: 1, inject: (*Faults).deploy, fleet: lengthy},
		{Name: "edits", Members: 1, fleet: edited},
	}
}

// Trial is a number of rounds of some kinds on one fleet and one store.
type Trial struct {
	Store    Store
	Members  int    // of the store
	Kinds    []Kind // all for the same sort of fleet
	Rounds   int
	Small    int           // jobs of one shard beside those of the sort of fleet, which all fire each second
	Chains   int           // of three jobs beside those; none where records are edited or the outcomes of all runs are counted
	Pool     int           // the size of a pool of further jobs; 0: there is none; where Chains are
	Defines  int           // names that two programs define, change and delete as data; where Chains are
	Base     string        // the program of another version, which half of the processes run, see BuildBase; "": there is none
	TTL      time.Duration // of sessions
	Seed     uint64
	Dir      string       // for the logs of the processes; it is created
	Progress func(string) // receives a line for each round; may be nil
}

// Trials splits t into trials with one sort of fleet each. Kinds for which the store has too few members, or that need a base and
// have none, are left out.
func Trials(t Trial) []Trial {
	kinds := slices.DeleteFunc(slices.Clone(t.Kinds), func(k Kind) bool { return k.Members > t.Members || k.mixed && t.Base == "" })
	var all []Trial
	for _, fleet := range []sort{faults, planned, named, lengthy, edited} {
		part := t
		part.Kinds = slices.DeleteFunc(slices.Clone(kinds), func(k Kind) bool { return k.fleetSort() != fleet })
		if len(part.Kinds) == 0 {
			continue
		}
		switch fleet {
		case edited, lengthy:
			part.Chains, part.Pool, part.Defines = 0, 0, 0
		case named: // where no shard may move, not even to balance more jobs
			part.Defines = 0
		}
		part.Rounds = max(1, t.Rounds*len(part.Kinds)/len(kinds))
		all = append(all, part)
	}
	return all
}

func (t Trial) fleet() sort { return t.Kinds[0].fleetSort() }

// String names the trial.
func (t Trial) String() string {
	name := fmt.Sprintf("%s-%d-%s", t.Store.Name, t.Members, t.fleet())
	if t.Base != "" {
		name += "-" + filepath.Base(t.Base)
	}
	return name
}

// config returns the configuration of the fleet.
func (t Trial) config() Config {
	c := Config{
		Instances: 3, Jobs: 4, Shards: 4, Every: time.Second, Takes: 400 * time.Millisecond, Often: 200 * time.Millisecond,
		Small: t.Small, Chains: t.Chains, Pool: t.Pool, Defines: t.Defines, Base: t.Base, TTL: t.TTL, Drain: 10 * time.Second, Dir: t.Dir, Trail: 24,
	}
	switch t.fleet() {
	case planned:
		c.Jobs, c.Shards, c.Every, c.Takes, c.Often = 1, 12, 20*time.Millisecond, time.Millisecond, 0
	case edited:
		c.Often = 0
	case named:
		c.Grace = t.TTL + recovery
	case lengthy:
		c.Jobs, c.Shards, c.Every, c.Takes, c.Often, c.Drain = 1, 8, 6*time.Second, 4*time.Second, 0, 100*time.Millisecond
	}
	return c
}

// Outcome is the outcome of a trial.
type Outcome struct {
	Trial
	*judge.Report
	LateBytes                   int64           // bytes of dead sessions' requests that reached the store
	TimesToExpire, TimesToRerun []time.Duration // as of Faults
	TimesToLeave, TimesToJoin   []time.Duration
	Edits                       []EditsRow
	Deletes                     int             // of defined jobs, that have returned
	Answers                     []time.Duration // how long the store took to answer observations; shows how busy the machine was
	Took                        time.Duration
}

// Run runs the trial and judges the fleet. The outcome is valid with an error too, up to the error.
func (t Trial) Run(ctx context.Context) (Outcome, error) {
	begun := time.Now()
	out := Outcome{Trial: t, Report: &judge.Report{Seed: t.Seed}}
	if err := os.MkdirAll(t.Dir, 0o700); err != nil {
		return out, err
	}
	server, err := t.Store.Start(ctx, t.Members)
	if err != nil {
		return out, err
	}
	defer server.Stop()
	fl, err := Start(ctx, server, t.config())
	if err != nil {
		return out, err
	}
	defer fl.Close()
	f := &Faults{Fleet: fl, Rand: rand.New(rand.NewPCG(t.Seed, 0))}
	fl.Judge.Report().Seed = t.Seed
	if t.fleet() == edited {
		out.Edits, err = t.runEdits(ctx, f)
	} else if err = t.runRounds(ctx, f); err == nil {
		err = fl.Finish(ctx)
	}
	out.Report, out.LateBytes = fl.Judge.Report(), f.LateBytes
	out.TimesToExpire, out.TimesToRerun, out.TimesToLeave, out.TimesToJoin = f.TimesToExpire, f.TimesToRerun, f.TimesToLeave, f.TimesToJoin
	out.Deletes = fl.Deletes
	out.Answers, out.Took = fl.answers, time.Since(begun)
	return out, err
}

func (t Trial) runRounds(ctx context.Context, f *Faults) error {
	err := f.Until(ctx, "the fleet claims its first run", recovery, func() bool {
		return f.Judge.IsWhole(f.Instances) && f.Judge.Report().Claims > 0
	})
	if err != nil {
		return err
	}
	var turn []Kind // the remaining kinds of a turn, in which each kind has a round
	for i := range t.Rounds {
		if len(turn) == 0 {
			turn = slices.Clone(t.Kinds)
			f.Rand.Shuffle(len(turn), func(i, j int) { turn[i], turn[j] = turn[j], turn[i] })
		}
		k := turn[0]
		turn = turn[1:]
		if err := t.runRound(ctx, f, i, k); err != nil {
			return fmt.Errorf("seed %d, round %d, %s (%s): %w", t.Seed, i+1, k.Name, f.LastFault, err)
		}
	}
	return nil
}

func (t Trial) runRound(ctx context.Context, f *Faults, i int, k Kind) error {
	r := f.Judge.Report()
	r.Faults[k.Name]++
	begun, reruns, answers := time.Now(), len(r.Rerun), len(f.answers)
	if i%2 == 1 {
		if err := f.replaceProgram(); err != nil {
			return err
		}
	}
	if err := k.inject(f, ctx); err != nil {
		return err
	}
	again := slices.Clone(r.Rerun[reruns:])
	if !k.store && t.fleet() != named { // there the claim waits for the return of the instance
		f.TimesToRerun = append(f.TimesToRerun, again...)
	}
	if t.Progress != nil {
		t.Progress(fmt.Sprintf("%s round %d of %d: %s; took %v; re-runs %s; answers %s",
			t, i+1, t.Rounds, f.LastFault, time.Since(begun).Round(time.Millisecond), quantiles(again), quantiles(f.answers[answers:])))
	}
	return nil
}
