// Package exit defines the exit codes of the command and the errors that carry them.
package exit

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

// The exit codes of all commands but check, which has those of Nagios.
const (
	OK      = 0
	Failed  = 1 // the command could not do its work
	Usage   = 2 // a flag, an argument or a setting is wrong; nothing was done
	NoJob   = 3 // no process has stored a definition of the job
	NotMet  = 4 // the command did its work, and the condition it checks does not hold
	Unknown = 5 // a write may or may not have been stored
)

// Meanings lists the exit codes and their meanings; the help and the page of the command have the same.
var Meanings = []struct {
	Code  int
	Short string
}{
	{OK, "done"},
	{Failed, "failed"},
	{Usage, "usage"},
	{NoJob, "no such job"},
	{NotMet, "condition not met"},
	{Unknown, "outcome unknown"},
}

// Help returns the codes in one line.
func Help() string {
	var all []string
	for _, m := range Meanings {
		all = append(all, fmt.Sprintf("%d %s", m.Code, m.Short))
	}
	return strings.Join(all, "; ")
}

// Error is an error with an exit code. A nil Err ends the command with the code and without a
// message.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Usagef returns an error with the code Usage.
func Usagef(format string, args ...any) error {
	return &Error{Usage, fmt.Errorf(format, args...)}
}

// NotMetf returns an error with the code NotMet.
func NotMetf(format string, args ...any) error {
	return &Error{NotMet, fmt.Errorf(format, args...)}
}

// CodeOf returns the exit code of an error: that of the first Error in its tree, or one derived
// from the errors of the library.
func CodeOf(err error) int {
	var e *Error
	switch {
	case err == nil:
		return OK
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, operator.ErrInvalidArgument):
		return Usage
	case errors.Is(err, operator.ErrUnknownJob):
		return NoJob
	case errors.Is(err, operator.ErrRetiring):
		return NotMet
	case errors.Is(err, registry.ErrUnknownOutcome):
		return Unknown
	}
	return Failed
}

// Interrupted reports whether err is the end of ctx by a signal, which needs no message.
func Interrupted(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Canceled)
}
