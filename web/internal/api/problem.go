package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/rota-dev/rota/internal/acts"
	"github.com/rota-dev/rota/internal/look"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

// Problem is an answer to a request that failed, by RFC 9457. Its Type is stable, the texts are not.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Field  string `json:"field,omitempty"` // the parameter or the field of the body that is wrong
}

func (p Problem) Error() string { return p.Title + ": " + p.Detail }

// kind is a kind of problems. Its name follows problemTypes.
type kind struct {
	name   string
	status int
	title  string
}

// problemTypes begins the types of problems.
const problemTypes = "urn:rota:problem:"

// The kinds of problems.
var (
	badRequest       = kind{"bad-request", http.StatusBadRequest, "The request is malformed"}
	invalidArgument  = kind{"invalid-argument", http.StatusBadRequest, "An argument is wrong"}
	unknownField     = kind{"unknown-field", http.StatusBadRequest, "There is no such parameter or field"}
	unauthorized     = kind{"unauthorized", http.StatusUnauthorized, "The user is not known"}
	forbidden        = kind{"forbidden", http.StatusForbidden, "The role of the user does not allow this"}
	readOnly         = kind{"read-only", http.StatusForbidden, "The console is read-only"}
	notFound         = kind{"not-found", http.StatusNotFound, "There is no such path"}
	unknownJob       = kind{"unknown-job", http.StatusNotFound, "There is no such job"}
	noHistory        = kind{"no-history", http.StatusNotFound, "The console has no history"}
	noLogs           = kind{"no-logs", http.StatusNotFound, "The history has no logs"}
	methodNotAllowed = kind{"method-not-allowed", http.StatusMethodNotAllowed, "The path does not have this method"}
	conflict         = kind{"conflict", http.StatusConflict, "The state of the fleet does not allow the act"}
	keyInUse         = kind{"idempotency-key-in-use", http.StatusConflict, "The first request with the key has not ended"}
	tooLarge         = kind{"too-large", http.StatusRequestEntityTooLarge, "The body is too large"}
	notJSON          = kind{"unsupported-media-type", http.StatusUnsupportedMediaType, "The body is not JSON"}
	keyReused        = kind{"idempotency-key-reused", http.StatusUnprocessableEntity, "The key belongs to another request"}
	internalError    = kind{"internal", http.StatusInternalServerError, "The request failed"}
	tooManyStreams   = kind{"too-many-streams", http.StatusServiceUnavailable, "Too many streams are open"}
	unavailable      = kind{"unavailable", http.StatusServiceUnavailable, "The store did not answer"}
	noHistoryAnswer  = kind{"history-unavailable", http.StatusServiceUnavailable, "The history did not answer"}
	unknownOutcome   = kind{"unknown-outcome", http.StatusGatewayTimeout, "The act may or may not have been done"}
)

// kinds are all kinds.
var kinds = []kind{
	badRequest, invalidArgument, unknownField, unauthorized, forbidden, readOnly, notFound, unknownJob, noHistory, noLogs, methodNotAllowed, conflict,
	keyInUse, tooLarge, notJSON, keyReused, internalError, tooManyStreams, unavailable, noHistoryAnswer, unknownOutcome,
}

func problemOf(k kind, detail string) Problem {
	return Problem{Type: problemTypes + k.name, Title: k.title, Status: k.status, Detail: detail}
}

// wrong returns the problem of a parameter, or of a field of a body.
func wrong(k kind, field, detail string) Problem {
	p := problemOf(k, detail)
	p.Field = field
	return p
}

// historyError is an error of the history.
type historyError struct{ error }

func (e historyError) Unwrap() error { return e.error }

// findProblem returns the problem of an error.
func findProblem(err error) Problem {
	if p, ok := errors.AsType[Problem](err); ok {
		return p
	}
	if _, ok := errors.AsType[historyError](err); ok || errors.Is(err, acts.ErrHistory) {
		return problemOf(noHistoryAnswer, "see the log of the console") // the text may name the database
	}
	if _, ok := errors.AsType[look.ArgumentError](err); ok {
		return problemOf(invalidArgument, err.Error())
	}
	if wrongField, ok := errors.AsType[*acts.FieldError](err); ok {
		return wrong(invalidArgument, wrongField.Field, err.Error())
	}
	for _, row := range []struct {
		is   error
		kind kind
	}{
		{operator.ErrUnknownJob, unknownJob},
		{operator.ErrInvalidArgument, invalidArgument},
		{operator.ErrTooManyTriggers, conflict},
		{operator.ErrTooManyDisabled, conflict},
		{operator.ErrTooManyFires, conflict},
		{operator.ErrTooManyPools, conflict},
		{operator.ErrNotRunning, conflict},
		{operator.ErrOffered, conflict},
		{operator.ErrRetiring, conflict},
		{operator.ErrNoFailure, conflict},
		{operator.ErrRetryRefused, conflict},
		{operator.ErrExists, conflict},
		{operator.ErrOtherRevision, conflict},
		{operator.ErrRegistered, conflict},
		{operator.ErrDefined, conflict},
		{operator.ErrUnknownKind, conflict},
		{operator.ErrTooManyJobs, conflict},
		{operator.ErrTooManyChanges, conflict},
		{operator.ErrDeleting, conflict},
		{registry.ErrReadOnly, readOnly},
		{registry.ErrUnknownOutcome, unknownOutcome},
		{registry.ErrUnavailable, unavailable},
		{context.DeadlineExceeded, unavailable},
		{context.Canceled, unavailable},
	} {
		if errors.Is(err, row.is) {
			return problemOf(row.kind, err.Error())
		}
	}
	return problemOf(internalError, err.Error())
}

// writeProblem answers with a problem.
func writeProblem(w http.ResponseWriter, p Problem) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Del("ETag")
	if p.Status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "5")
	}
	w.WriteHeader(p.Status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	_ = e.Encode(p) // the client has gone
}

// WriteProblem answers with a problem in place of the API. The status is that of an unknown user, of a role that does not suffice, or
// of a store that does not answer; others are internal errors.
func WriteProblem(w http.ResponseWriter, status int, detail string) {
	k := internalError
	for _, other := range []kind{unauthorized, forbidden, unavailable} {
		if other.status == status {
			k = other
		}
	}
	writeProblem(w, problemOf(k, detail))
}
