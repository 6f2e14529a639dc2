package handler

import (
	"context"
	"errors"
	"reflect"

	"github.com/robfig/cron/v3"

	"github.com/rota-dev/rota/executor"
)

// Cron returns a handler that calls the Run method of a job of github.com/robfig/cron. So a
// program that schedules jobs with that library runs each fire once in a fleet, by other lines
// of registration.
//
// The job does not learn about the run and about the end of its context: a Timeout does not
// stop it, and a shutdown gives it DrainTimeout and 5 s. Only a panic fails the run.
func Cron(job cron.Job) executor.Handler { return cronJob{job} }

type cronJob struct{ job cron.Job }

func (c cronJob) Check() error {
	if v := reflect.ValueOf(c.job); !v.IsValid() || v.Kind() == reflect.Func && v.IsNil() {
		return errors.New("the cron.Job is nil")
	}
	return nil
}

func (c cronJob) Handle(context.Context, *executor.Run) error {
	c.job.Run()
	return nil
}

// Func returns a handler that calls f. As with [Cron], f does not learn about the run and the
// end of its context, and only a panic fails the run. A function that can fail, or runs for long, is
// better an [executor.HandlerFunc].
func Func(f func()) executor.Handler { return function(f) }

type function func()

func (f function) Check() error {
	if f == nil {
		return errors.New("the func() is nil")
	}
	return nil
}

func (f function) Handle(context.Context, *executor.Run) error {
	f()
	return nil
}
