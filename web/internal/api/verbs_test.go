package api

import (
	"context"

	"github.com/rota-dev/rota/internal/acts"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
)

// verbs are acts of each target, to try how requests become acts.
var verbs = []acts.Verb{
	{Name: "trigger", On: acts.OnJob, Short: "Run a job now", Fields: []acts.Field{{Name: "param", Label: "Parameter"}, {Name: "shards", Label: "Shards"}}, Do: func(ctx context.Context, op *operator.Operator, r acts.Request) (view.Done, error) {
		param := ""
		if r.Param != nil {
			param = *r.Param
		}
		n, err := op.Trigger(ctx, r.Job, param, r.Shards)
		return view.Done{Verb: "trigger", Jobs: []string{r.Job}, Trigger: n, Text: "triggered"}, err
	}},
	{Name: "pause", On: acts.OnJob, Short: "Pause a job", Fields: []acts.Field{{Name: "until", Label: "Until"}}, Do: func(ctx context.Context, op *operator.Operator, r acts.Request) (view.Done, error) {
		return view.Done{Verb: "pause", Jobs: []string{r.Job}, Text: "paused"}, op.Pause(ctx, r.Job)
	}},
	{Name: "retry", On: acts.OnJob, Short: "Retry a fire", Fields: []acts.Field{{Name: "fire", Label: "Fire", Required: true}, {Name: "shards", Label: "Shards"}, {Name: "again", Label: "Again"}}, Do: func(ctx context.Context, op *operator.Operator, r acts.Request) (view.Done, error) {
		return view.Done{Verb: "retry", Jobs: []string{r.Job}, Text: "retried"}, func() error {
			_, err := op.Retry(ctx, r.Job, r.Fire, operator.RetryOptions{Shards: r.Shards})
			return err
		}()
	}},
	{Name: "reset", On: acts.OnJob, Short: "Reset", Do: func(ctx context.Context, op *operator.Operator, r acts.Request) (view.Done, error) {
		return view.Done{Verb: "reset", Jobs: []string{r.Job}, Text: "reset"}, op.Reset(ctx, r.Job)
	}},
	{Name: "pause", On: acts.OnGroup, Short: "Pause all jobs", Fields: []acts.Field{{Name: "until", Label: "Until"}}, Do: func(ctx context.Context, op *operator.Operator, r acts.Request) (view.Done, error) {
		return view.Done{Verb: "pause", Text: "paused all"}, op.PauseGroup(ctx)
	}},
	{Name: "drain", On: acts.OnInstance, Short: "Drain", Do: func(ctx context.Context, op *operator.Operator, r acts.Request) (view.Done, error) {
		return view.Done{Verb: "drain", Text: "drained " + r.Instances[0]}, op.Disable(ctx, operator.Scope{Instances: r.Instances})
	}},
}
