package executor

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
)

// PanicError is the error of a run whose handler panicked.
type PanicError struct {
	Value any    // the argument of panic
	Stack []byte // the stack of the handler's goroutine at the panic
}

func (e *PanicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.Value) }

// Unwrap returns Value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// errGoexit is the error of a run whose handler ended its goroutine instead of returning.
var errGoexit = errors.New("handler called runtime.Goexit, as t.FailNow does")

// callHandler returns the result of h, or a *PanicError. If h calls Goexit, call does not return.
func callHandler(ctx context.Context, h Handler, r *Run) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return h.Handle(ctx, r)
}

// reportResult calls done with the result of do, or with errGoexit if do does not return.
func reportResult(do func() error, done func(error)) {
	err := errGoexit
	defer func() { done(err) }()
	err = do()
}
