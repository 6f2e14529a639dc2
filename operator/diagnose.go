package operator

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rota-dev/rota/internal/group/diagnosis"
	"github.com/rota-dev/rota/internal/parallel"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// Diagnosis holds the faults found in the records of a group.
type Diagnosis struct {
	At time.Time `json:"at"` // when the records were read, by the local clock
	// Findings are sorted by severity, the most severe first. They are empty if nothing is wrong.
	Findings []Finding `json:"findings"`
}

// Finding is something in the records of a group that an operator should know. Its texts are for people
// and not stable across versions.
type Finding struct {
	Severity Severity     `json:"severity"`
	Kind     FindingKind  `json:"kind"`
	Job      string       `json:"job,omitempty"` // empty if it concerns no job, or if the job's name cannot be read
	Key      registry.Key `json:"key,omitempty"` // of the record; empty if it concerns no single record
	What     string       `json:"what"`
	Do       string       `json:"do"` // the remedy
}

// Severity is how much a Finding matters.
type Severity int

// The severities, in ascending order.
const (
	SeverityInfo    Severity = iota + 1 // it may be intended, or passes by itself
	SeverityWarning                     // fires may be late
	SeverityError                       // fires do not run, or a record is damaged
)

// String returns "info", "warning" or "error".
func (s Severity) String() string {
	switch s {
	case SeverityInfo:
		return "info"
	case SeverityWarning:
		return "warning"
	case SeverityError:
		return "error"
	}
	return fmt.Sprintf("Severity(%d)", int(s))
}

// MarshalText returns the String of a severity, which is its JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses what MarshalText returns.
func (s *Severity) UnmarshalText(text []byte) error {
	for _, known := range []Severity{SeverityInfo, SeverityWarning, SeverityError} {
		if known.String() == string(text) {
			*s = known
			return nil
		}
	}
	return fmt.Errorf("there is no severity %.20q", text)
}

// FindingKind is the kind of a Finding.
type FindingKind string

// The kinds of findings.
const (
	FindingUnreadable  FindingKind = "unreadable"  // a record cannot be decoded or breaks a rule
	FindingForeign     FindingKind = "foreign"     // another program wrote a record
	FindingFormat      FindingKind = "format"      // a newer version wrote a record
	FindingOrphaned    FindingKind = "orphaned"    // a record whose counterpart does not exist
	FindingMissing     FindingKind = "missing"     // a record that should exist
	FindingExpired     FindingKind = "expired"     // a member whose session does not exist
	FindingLeaderless  FindingKind = "leaderless"  // the group has no leader
	FindingClock       FindingKind = "clock"       // clocks differ, or did
	FindingUnoffered   FindingKind = "unoffered"   // no live instance offers a job
	FindingRetiring    FindingKind = "retiring"    // operators have retired a job, and it is not deleted yet
	FindingUnsupported FindingKind = "unsupported" // an instance, or this program, cannot compile a definition
	FindingDiffers     FindingKind = "differs"     // an instance has another definition than the stored one
	FindingUnowned     FindingKind = "unowned"     // shards have no owner
	FindingStuck       FindingKind = "stuck"       // shards are blocked or frozen, or runs wait for a worker, or for a pool without a size
	FindingProblem     FindingKind = "problem"     // a plan names another problem
	FindingLost        FindingKind = "lost"        // the store has lost records, see StoreLoss
	FindingUndelivered FindingKind = "undelivered" // a receiver of package notify gets no messages
	FindingCollision   FindingKind = "collision"   // a job is registered in code and defined as data
	FindingLimit       FindingKind = "limit"       // nearly as many jobs are defined as may be
)

// Diagnose checks all records of the group. None of the states that it finds, such as a damaged record or
// a namespace of a newer version, makes it fail; it fails if the store does.
//
// Each directory is read at an instant of its own, so a state that is just changing may appear as a
// finding. A finding that a second call repeats persists.
//
// Once a job has been defined as data, the cost includes a list of each of the 256 directories of definitions; of them, only faults are
// kept in memory. Otherwise, the cost is one list for each directory of the group, for the claims of each member and for each receiver of messages, and one read
// for each record that should exist and does not, up to 1000. Records that nothing refers to are not
// found: the claims of an incarnation that no plan and no member record names, and the states that
// shards have saved.
func (o *Operator) Diagnose(ctx context.Context) (Diagnosis, error) {
	r := diagnosis.Records{Compile: o.compile}
	var err error
	if r.Snapshot, err = o.listGroup(ctx); err == nil {
		err = o.list(ctx, r.Snapshot, registry.ReadOptions{Fresh: true}, o.keys.Ends())
	}
	if err == nil {
		err = o.listClaims(ctx, r.Snapshot, r.Incarnations())
	}
	if err == nil { // lists leave out values that another program wrote
		err = o.getEach(ctx, r.Snapshot, r.MissingCounterparts())
	}
	if err == nil {
		r.Receivers, err = o.listReceivers(ctx)
	}
	if err == nil {
		err = o.listDefined(ctx, &r)
	}
	if err != nil {
		return Diagnosis{}, fmt.Errorf("diagnose: %w", err)
	}
	return findings(&r), nil
}

// JobFindings returns the findings of Operator.Diagnose that are about jobs, by the records that the view has: it reads nothing from the
// store. A record whose value another program wrote is missing in a view.
func (v *GroupView) JobFindings() []Finding {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := findings(&diagnosis.Records{Snapshot: v.answers.records, Compile: v.op.compile}).Findings
	return slices.DeleteFunc(all, func(f Finding) bool { return f.Job == "" })
}

// findings returns what is wrong in the records.
func findings(r *diagnosis.Records) Diagnosis {
	now := time.Now()
	r.Now = record.InstantOf(now)
	out := Diagnosis{At: now}
	for _, f := range diagnosis.Diagnose(r) {
		out.Findings = append(out.Findings, Finding{Severity(f.Severity), FindingKind(f.Kind), f.Job, f.Key, f.What, f.Do})
	}
	return out
}

// listDefined reads the jobs that are defined as data. Without the record of their counts, none was ever defined.
func (o *Operator) listDefined(ctx context.Context, r *diagnosis.Records) error {
	kinds, err := o.reg.List(ctx, o.keys.Kinds(), registry.ReadOptions{})
	if err != nil {
		return err
	}
	defined := false
	for _, e := range kinds.Entries {
		if e.Key == o.keys.KindCounts() {
			defined = true
			continue
		}
		if k, err := decodeKind(e); err != nil {
			r.Defined.PutDamaged(e.Key, err)
		} else {
			r.Defined.Use(k.Name).Kind = k
		}
	}
	if !defined {
		return nil
	}
	isBeside := func(segment string) bool {
		_, controlled := r.Control[segment]
		return controlled || r.Jobs[segment].Name != ""
	}
	return o.eachDefined(ctx, func(e registry.Entry) bool {
		if d, err := decodeDefined(e); err != nil {
			r.Defined.PutDamaged(e.Key, err)
		} else {
			r.Defined.Put(e, d, isBeside)
		}
		return true
	})
}

// listReceivers returns the receivers of messages that a process has, or had, in its configuration.
func (o *Operator) listReceivers(ctx context.Context) (map[string]diagnosis.Receiver, error) {
	records, err := o.reg.List(ctx, o.keys.Receivers(), registry.ReadOptions{})
	if err != nil {
		return nil, err
	}
	all := make(map[string]diagnosis.Receiver, len(records.Entries))
	var mu sync.Mutex
	return all, parallel.Each(ctx, maxListings, records.Entries, func(ctx context.Context, e registry.Entry) error {
		places, err := o.reg.List(ctx, o.keys.Sender(e.Key.Name()), registry.ReadOptions{})
		if err != nil {
			return err
		}
		var r diagnosis.Receiver
		if r.Receiver, r.Err = record.DecodeReceiver(e.Value); r.Err != nil {
			r.Receiver = nil
		}
		r.HasSender = slices.ContainsFunc(places.Entries, func(e registry.Entry) bool { return e.Key.Owned() }) // of the lock's holder
		mu.Lock()
		defer mu.Unlock()
		all[e.Key.Name()] = r
		return nil
	})
}
