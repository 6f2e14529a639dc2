package contain

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrGoexit is the error of a function that ended its goroutine instead of returning.
var ErrGoexit = errors.New("function called runtime.Goexit, as t.FailNow does")

// PanicError is the error of a function that panicked.
type PanicError struct {
	Value any    // the argument of panic
	Stack []byte // of the goroutine at the panic
	text  string
}

// Error returns the text of Value as it was at the panic. It calls no code of users.
func (e *PanicError) Error() string { return e.text }

// Call calls f, and returns its error or a *PanicError, whose text begins with what. The methods of the
// error call no code of users that may panic; see Settle. If f calls runtime.Goexit, Call does not return.
func Call(what string, f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{v, debug.Stack(), what + " panicked: " + TextOf(v)}
		}
	}()
	return Settle(f())
}

// CallApart is Call in a goroutine of its own: if f calls runtime.Goexit, CallApart returns ErrGoexit.
func CallApart(what string, f func() error) error {
	err, done := ErrGoexit, make(chan struct{})
	go func() {
		defer close(done)
		err = Call(what, f)
	}()
	<-done
	return err
}

// TextOf returns the text of the argument of a panic. It is safe for values whose methods panic.
func TextOf(v any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a %T without a text", v)
		}
	}()
	return fmt.Sprint(v)
}
