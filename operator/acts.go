package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/record"
)

// Act is an operator's act on a job or on a group: a call of a method of Operator that changed the intent.
// The leader adds an act when it ends a pause at its time.
type Act struct {
	At     time.Time `json:"at"`               // by the clock of the process that called
	By     string    `json:"by,omitempty"`     // as given to Operator.As; "the leader" for an act of the leader
	Reason string    `json:"reason,omitempty"` // as given to Operator.As
	What   string    `json:"what"`             // the call and its arguments. The text is not stable across versions
}

// As returns a copy of o whose calls are recorded with the name of the person or program that makes them, and
// with a reason. Either may be empty. By is cut at 64 bytes, the reason at 256. Rota does not check who calls.
//
//	err := op.As("kim", "quarter end").Pause(ctx, "settle")
func (o *Operator) As(by, reason string) *Operator {
	with := *o
	with.by, with.reason = by, reason
	return &with
}

// ReportingUnchanged returns a copy of o whose calls fail with ErrUnchanged if they change nothing: Resume, ResumeGroup, Enable, Undrain,
// Unretire and AcknowledgeLoss without anything to end, Override of the zero value without an override, and a repeated Retire. Without
// it they return nil. In both cases no act is recorded.
func (o *Operator) ReportingUnchanged() *Operator {
	with := *o
	with.reportUnchanged = true
	return &with
}

// orNil returns nil for an ErrUnchanged that is not to be reported.
func (o *Operator) orNil(err error) error {
	if !o.reportUnchanged && errors.Is(err, ErrUnchanged) {
		return nil
	}
	return err
}

// newAct returns an act of this operator.
func (o *Operator) newAct(what string) record.Act {
	at := time.Now().Truncate(time.Millisecond) // finer, it would only make the record longer
	return record.Act{At: record.InstantOf(at), By: o.by, Reason: o.reason, What: what}.Shortened()
}

// Acts returns the last 32 acts on a job, oldest first. For an empty job, it returns those on all jobs
// of the group, which are not included in those of a single job. Acts are deleted with the job's control
// record. Of a defined job, the last Define is among them. Acts of versions of rota that do not record them are missing.
func (o *Operator) Acts(ctx context.Context, job string) ([]Act, error) {
	if job == "" {
		c, err := o.readGroupControl(ctx)
		if err != nil {
			return nil, fmt.Errorf("acts on all jobs: %w", err)
		}
		return actsOf(c.Acts), nil
	}
	def, err := o.readDefinition(ctx, record.Segment(job))
	if err != nil {
		return nil, fmt.Errorf("acts on %q: %w", job, err)
	}
	c, err := o.readControl(ctx, &def)
	if err != nil {
		return nil, fmt.Errorf("acts on %q: %w", job, err)
	}
	acts := actsOf(c.Acts)
	if d := def.defined.Defined; d != nil {
		acts = slices.Insert(acts, 0, actOf(&d.By))
		slices.SortStableFunc(acts, func(a, b Act) int { return a.At.Compare(b.At) })
	}
	return acts, nil
}

// PauseUntil pauses a job as Pause does, until t, which must lie in the future. The leader then resumes the
// job by its clock, as Resume would; a group without a leader does so after the next election. A later Pause,
// PauseUntil, StopSchedule or Resume replaces t.
//
// Leaders of a version without PauseUntil do not end the pause.
func (o *Operator) PauseUntil(ctx context.Context, job string, t time.Time) error {
	if !t.After(time.Now()) {
		return fmt.Errorf("pause %q: %w", job, invalidArgument(fmt.Errorf("the end %v is not in the future", t.Format(time.RFC3339))))
	}
	return o.hold(ctx, "pause", job, true, false, t)
}

// hold pauses a job, stops its schedule, or ends both.
func (o *Operator) hold(ctx context.Context, verb, job string, paused, stopped bool, until time.Time) error {
	err := o.changeControl(ctx, job, func(c *record.Control, _ record.Job) (string, error) {
		if !paused && !stopped && !c.Paused && !c.Stopped && c.Hold == (record.Hold{}) {
			return "", ErrUnchanged
		}
		c.Paused, c.Stopped = paused, stopped
		what := holdText(strings.TrimSuffix(verb, " of"), until)
		c.Hold = o.newHold(paused || stopped, until, what)
		return what, nil
	})
	if err != nil {
		return fmt.Errorf("%s %q: %w", verb, job, err)
	}
	return nil
}

// newHold returns the Hold of a pause or of a stopped schedule, empty if neither is in force.
func (o *Operator) newHold(held bool, until time.Time, what string) record.Hold {
	if !held {
		return record.Hold{}
	}
	act := o.newAct(what)
	return record.Hold{Until: record.InstantOf(until), HeldBy: &act}
}

func holdText(verb string, until time.Time) string {
	if until.IsZero() {
		return verb
	}
	return fmt.Sprintf("%s until %v", verb, record.InstantOf(until))
}

// describe names the shards, instances and hosts of s, for an act. Acts on record are read by this text, also by other
// versions, so that one shard is "shards 7".
func (s *Scope) describe() string {
	var parts []string
	if len(s.Shards) > 0 {
		parts = append(parts, "shards "+strings.Trim(fmt.Sprint(s.Shards), "[]"))
	}
	if len(s.Instances) > 0 {
		parts = append(parts, "instances "+strings.Join(s.Instances, " "))
	}
	if len(s.Hosts) > 0 {
		parts = append(parts, "hosts "+strings.Join(s.Hosts, " "))
	}
	return strings.Join(parts, ", ")
}

func intentOfGroup(c *record.GroupControl) Intent {
	return Intent{
		Paused: c.Paused, Disabled: Scope{Instances: c.Instances, Hosts: c.Hosts}, Until: c.Until.Time(), HeldBy: actOf(c.HeldBy),
	}
}

func actOf(a *record.Act) Act {
	if a == nil {
		return Act{}
	}
	return Act{a.At.Time(), a.By, a.Reason, a.What}
}

func actsOf(acts record.Acts) []Act {
	out := make([]Act, 0, len(acts))
	for i := range acts {
		out = append(out, actOf(&acts[i]))
	}
	return out
}
