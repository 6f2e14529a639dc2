package postgres

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rota-dev/rota/registry"
)

// errStandby is the error of a server that is a standby.
var errStandby = errors.New("the server is a standby")

// The codes of errors, SQLSTATE.
const (
	codeReadOnly         = "25006"
	codeUnauthenticated  = "28" // a class
	codeNoDatabase       = "3D000"
	codeNoSchema         = "3F000"
	codeNoTable          = "42P01"
	codeNoFunction       = "42883"
	codePermission       = "42501"
	codeDiskFull         = "53100"
	codeTooLarge         = "54" // a class
	codeConnection       = "08" // a class
	codeCompletionUnsure = "40003"
	codeRollback         = "40" // a class
	codeResources        = "53" // a class
	codeIntervention     = "57" // a class: shut down, canceled
)

// translate is the only place where this package turns the server's errors into the registry's. An error without a translation, such as a
// lost connection, is returned as it is: its meaning depends on the request, which only the caller knows.
func translate(err error) error {
	var answer *pgconn.PgError
	if !errors.As(err, &answer) {
		return err
	}
	text := serverError{answer}
	for _, m := range []struct {
		code  string // or the beginning
		means error
	}{
		{codeUnauthenticated, registry.ErrUnauthenticated},
		{codePermission, registry.ErrPermission},
		{codeDiskFull, registry.ErrQuota},
		{codeTooLarge, registry.ErrTooLarge},
		{codeReadOnly, errStandby},
	} {
		if strings.HasPrefix(answer.Code, m.code) {
			return fmt.Errorf("%w: %w", m.means, text)
		}
	}
	return text
}

// serverError is an error of the server with its hint.
type serverError struct{ *pgconn.PgError }

func (e serverError) Error() string {
	text := e.Message + " (SQLSTATE " + e.Code + ")"
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

func (e serverError) Unwrap() error { return e.PgError }

// isFatal reports whether the server ends the connection after an error. Such an error does not say what became of the statement.
func isFatal(e *pgconn.PgError) bool {
	return e.SeverityUnlocalized == "FATAL" || e.SeverityUnlocalized == "PANIC"
}

// refused reports whether err proves that the server has rolled the statement back: an error of the statement, after which the
// connection goes on.
func refused(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && answer.SeverityUnlocalized == "ERROR" &&
		!strings.HasPrefix(answer.Code, codeConnection) && answer.Code != codeCompletionUnsure
}

// worthRetrying reports whether a read, or another request that may be repeated, may succeed a moment later.
func worthRetrying(err error) bool {
	var answer *pgconn.PgError
	if !errors.As(err, &answer) || !refused(err) {
		return true
	}
	for _, class := range []string{codeRollback, codeResources, codeIntervention, codeReadOnly} {
		if strings.HasPrefix(answer.Code, class) {
			return answer.Code != codeDiskFull
		}
	}
	return false
}

// isLasting reports whether no connection can be made until somebody changes something.
func isLasting(err error) bool {
	return errors.Is(err, registry.ErrUnauthenticated) || errors.Is(err, registry.ErrPermission)
}

// isStandby reports whether err shows that the server is a standby, or refuses writes.
func isStandby(err error) bool {
	var answer *pgconn.PgError
	return errors.Is(err, errStandby) || errors.As(err, &answer) && answer.Code == codeReadOnly
}
