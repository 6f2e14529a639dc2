package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/rota-dev/rota/internal/record"
)

// PauseGroup pauses all jobs of the group until ResumeGroup, as Pause does for one: present ones, and
// future ones from their first plan on. So a deployment can be made with everything paused, and resumed
// together. The pause of the group is apart from that of each job: calls for a job change the job's own
// intent, which is in force again after ResumeGroup.
//
// The leader pauses one job after another, each exactly. Status.GroupPaused reports whether it has paused a
// job. Intent for an empty job has who paused the group, and when.
func (o *Operator) PauseGroup(ctx context.Context) error {
	return o.holdGroup(ctx, "pause", true, time.Time{})
}

// PauseGroupUntil pauses all jobs of the group as PauseGroup does, until t, which must lie in the future. The
// leader then resumes the group by its clock, as ResumeGroup would.
func (o *Operator) PauseGroupUntil(ctx context.Context, t time.Time) error {
	if !t.After(time.Now()) {
		return fmt.Errorf("pause the group: %w", invalidArgument(fmt.Errorf("the end %v is not in the future", t.Format(time.RFC3339))))
	}
	return o.holdGroup(ctx, "pause", true, t)
}

// ResumeGroup ends PauseGroup. Each job goes on as after a Resume, except those that are paused, or whose
// schedules are stopped, themselves.
func (o *Operator) ResumeGroup(ctx context.Context) error {
	return o.holdGroup(ctx, "resume", false, time.Time{})
}

// holdGroup pauses or resumes the group.
func (o *Operator) holdGroup(ctx context.Context, verb string, paused bool, until time.Time) error {
	err := o.changeGroupControl(ctx, func(c *record.GroupControl) (string, error) {
		if !paused && !c.Paused && c.Hold == (record.Hold{}) {
			return "", ErrUnchanged
		}
		what := holdText(verb+" the group", until)
		c.Paused, c.Hold = paused, o.newHold(paused, until, what)
		return what, nil
	})
	if err != nil {
		return fmt.Errorf("%s the group: %w", verb, err)
	}
	return nil
}
