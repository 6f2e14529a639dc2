package executor

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"

	"github.com/rota-dev/rota/internal/contain"
	"github.com/rota-dev/rota/internal/mutex"
)

// PanicError is the error of a run whose handler panicked, or returned an error of which a method panics:
// Error, Unwrap, Is or As. The classic one is a nil pointer to an error type, returned as an error.
type PanicError struct {
	Value any    // the argument of panic
	Stack []byte // the stack of the handler's goroutine at the panic

	returned error // the error of which a method panicked; nil if the handler panicked
}

// Error returns the text of Value, and the type of the error that the handler returned, if that panicked.
func (e *PanicError) Error() string {
	if e.returned == nil {
		return "handler panicked: " + contain.TextOf(e.Value)
	}
	what := "an error"
	if v := reflect.ValueOf(e.returned); v.Kind() == reflect.Pointer && v.IsNil() {
		what = "a nil pointer as an error"
	}
	return fmt.Sprintf("handler returned %s of type %T, which panics: %s", what, e.returned, contain.TextOf(e.Value))
}

// Unwrap returns Value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// isPanic reports whether err is that of a handler that panicked.
func isPanic(err error) bool {
	_, ok := errors.AsType[*PanicError](err)
	return ok
}

// errGoexit is the error of a run whose handler ended its goroutine instead of returning.
var errGoexit = errors.New("handler called runtime.Goexit, as t.FailNow does")

// callHandler returns the result of h; see containHandler.
func callHandler(ctx context.Context, h Handler, r *Run) error {
	return containHandler(func() error { return h.Handle(ctx, r) })
}

// containHandler returns the result of call, which calls a handler, or a *PanicError, as an error whose methods do not panic:
// the loops of this process call them later, where nothing recovers. If the handler calls Goexit, containHandler does not return.
func containHandler(call func() error) (err error) {
	var returned error
	defer func() {
		if v := recover(); v != nil {
			err = contain.Guard(&PanicError{v, debug.Stack(), returned})
		}
	}()
	mutex.CheckFree("a handler")
	returned = call()
	return contain.Settle(returned)
}

// reportResult calls done with the result of do, or with errGoexit if do does not return.
func reportResult(do func() error, done func(error)) {
	err := errGoexit
	defer func() { done(err) }()
	err = do()
}
