package contain

import (
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"

	"github.com/rota-dev/rota/internal/mutex"
)

// errGoexit is the error of a function that ended its goroutine instead of returning.
var errGoexit = errors.New("function called runtime.Goexit, as t.FailNow does")

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
	mutex.CheckFree(what)
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{v, debug.Stack(), what + " panicked: " + TextOf(v)}
		}
	}()
	return Settle(f())
}

// CallApart is Call in a goroutine of its own: if f calls runtime.Goexit, CallApart returns errGoexit.
func CallApart(what string, f func() error) error {
	mutex.CheckFree(what)
	err, done := errGoexit, make(chan struct{})
	go func() {
		defer close(done)
		err = Call(what, f)
	}()
	<-done
	return err
}

// TextOf returns the text of the argument of a panic. It is safe for values whose methods panic, and for those that
// contain themselves: package fmt would exhaust the stack, which ends the process.
func TextOf(v any) (text string) {
	text = fmt.Sprintf("a %T without a text", v)
	defer func() { _ = recover() }()
	switch v := v.(type) { // package fmt would print what their methods panic with
	case error:
		return v.Error()
	case fmt.Stringer:
		return v.String()
	}
	if count := maxTextParts; isSmall(reflect.ValueOf(v), &count) {
		return fmt.Sprint(v)
	}
	return text
}

// maxTextParts bounds the parts of a value of which TextOf makes a text.
const maxTextParts = 1000

// isSmall reports whether a value has at most so many parts.
func isSmall(v reflect.Value, parts *int) bool {
	if *parts--; *parts < 0 {
		return false
	}
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		return v.IsNil() || isSmall(v.Elem(), parts)
	case reflect.Struct:
		for i := range v.NumField() {
			if !isSmall(v.Field(i), parts) {
				return false
			}
		}
	case reflect.Array, reflect.Slice:
		for i := range v.Len() {
			if !isSmall(v.Index(i), parts) {
				return false
			}
		}
	case reflect.Map:
		for e := v.MapRange(); e.Next(); {
			if !isSmall(e.Key(), parts) || !isSmall(e.Value(), parts) {
				return false
			}
		}
	}
	return true
}
