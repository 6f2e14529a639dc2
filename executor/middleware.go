package executor

import (
	"errors"
	"fmt"
)

// Middleware returns a handler that adds to next: work before and after a run, measurements,
// tracing, or a change of the error. The error that the returned handler returns is that of the
// run. A panic in it fails the run, as in a handler. It should pass ctx, or a context derived
// from it, to next.
//
// Register calls each Middleware once for each job, so the returned handler serves all runs of
// the job in this process.
type Middleware func(next Handler) Handler

// Checker is an optional interface of a Handler. Register calls Check before it applies any
// Middleware, and refuses the job if Check returns an error. The errors of an errors.Join are
// reported one by one.
type Checker interface {
	Check() error
}

// checkHandler returns the problems of a job's handler.
func checkHandler(h Handler) []problem {
	if f, ok := h.(HandlerFunc); h == nil || ok && f == nil {
		return []problem{{"Handler", errors.New("is nil")}}
	}
	c, ok := h.(Checker)
	if !ok {
		return nil
	}
	err := c.Check()
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []problem
		for _, err := range joined.Unwrap() {
			all = append(all, problem{"Handler", err})
		}
		return all
	}
	return []problem{{"Handler", err}}
}

// checkMiddleware returns an error that lists the nil entries, or nil.
func checkMiddleware(list []Middleware) error {
	var missing []int
	for i, m := range list {
		if m == nil {
			missing = append(missing, i)
		}
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("nil entries: %v", missing)
}

// applyMiddleware returns h within list, of which the first entry is the outermost.
func applyMiddleware(list []Middleware, h Handler) (Handler, error) {
	for i := len(list) - 1; i >= 0; i-- {
		h = list[i](h)
		if f, ok := h.(HandlerFunc); h == nil || ok && f == nil {
			return nil, fmt.Errorf("entry %d returned a nil handler", i)
		}
	}
	return h, nil
}

// wrapHandlers returns the handlers of jobs within the middleware of each job, and all that
// within the middleware of the executor.
func (e *Executor) wrapHandlers(jobs []Job) ([]Handler, error) {
	handlers := make([]Handler, len(jobs))
	var errs []error
	for i, j := range jobs {
		h, err := applyMiddleware(j.Middleware, j.Handler)
		if err != nil {
			errs = append(errs, fmt.Errorf("%w %.100q: Middleware: %w", ErrInvalidJob, j.Name, err))
			continue
		}
		if handlers[i], err = applyMiddleware(e.opts.Middleware, h); err != nil {
			errs = append(errs, fmt.Errorf("%w %.100q: Options.Middleware: %w", ErrInvalidJob, j.Name, err))
		}
	}
	return handlers, errors.Join(errs...)
}
