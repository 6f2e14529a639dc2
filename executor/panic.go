package executor

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
)

// PanicError is the error of a run whose handler panicked.
type PanicError struct {
	Value any    // given to panic
	Stack []byte // of the handler's goroutine, from the place of the panic
}

func (e *PanicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.Value) }

// Unwrap returns Value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// errGoexit is the error of a run whose handler ended its goroutine instead of returning.
var errGoexit = errors.New("handler called runtime.Goexit, as t.FailNow does")

// call returns what h returns, or an error if h does not: a *PanicError, or errGoexit. h
// has a goroutine of its own, because nothing can keep a goroutine alive that has called
// Goexit, and the caller has other runs to see to.
func call(ctx context.Context, h Handler, r *Run) error {
	ended := make(chan error, 1)
	go func() {
		err := errGoexit
		defer func() {
			if v := recover(); v != nil {
				err = &PanicError{Value: v, Stack: debug.Stack()}
			}
			ended <- err
		}()
		err = h.Handle(ctx, r)
	}()
	return <-ended
}
