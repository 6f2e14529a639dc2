package contain

import "errors"

// Settle returns an error with the present text of err, in whose chain errors.Is and errors.As find what
// they find in that of err. No method of the result panics, and none calls err.Error again. It has no Unwrap:
// a caller of that would call methods of err without protection.
//
// Settle calls the methods Error, Unwrap, Is and As of err and of the errors that err wraps. If one of them
// panics, Settle panics. It returns nil for nil.
func Settle(err error) error {
	if err == nil {
		return nil
	}
	if s, ok := err.(*settled); ok { //nolint:errorlint // one inside another error does not settle that error
		return s
	}
	var none interface{ isNoError() }
	_, _ = errors.Is(err, errNone), errors.As(err, &none)
	return Guard(err)
}

// Guard is Settle for an error whose Error does not panic. It calls no method of the errors that err wraps.
func Guard(err error) error { return &settled{err.Error(), err} }

// errNone is in no chain: to look for it calls every Is and Unwrap.
var errNone = errors.New("none")

type settled struct {
	text string
	err  error
}

func (s *settled) Error() string { return s.text }

// Is reports whether errors.Is finds target in the chain. A panic there means that it does not.
func (s *settled) Is(target error) (found bool) {
	defer func() {
		if recover() != nil {
			found = false
		}
	}()
	return errors.Is(s.err, target)
}

// As is errors.As for the chain. A panic there means that nothing is found.
func (s *settled) As(target any) (found bool) {
	defer func() {
		if recover() != nil {
			found = false
		}
	}()
	return errors.As(s.err, target)
}
