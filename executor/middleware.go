package executor

import (
	"errors"
	"fmt"
)

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
