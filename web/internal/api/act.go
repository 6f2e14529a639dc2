package api

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"runtime/debug"
	"strings"
	"time"

	"github.com/rota-dev/rota/internal/acts"
	"github.com/rota-dev/rota/internal/look"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/web/internal/role"
)

// pathOfVerb returns the path of an act.
func pathOfVerb(v *acts.Verb) string {
	switch v.On {
	case acts.OnJob:
		return "/jobs/{job}/" + v.Name
	case acts.OnInstance:
		return "/instances/{name}/" + v.Name
	default:
		return "/" + v.Name
	}
}

// actOf returns the route of an act.
func actOf(v *acts.Verb) route {
	return route{
		method: http.MethodPost, path: pathOfVerb(v), needs: role.For(v.Name), short: v.Short, verb: v,
		query: reflect.TypeFor[struct{}](), answer: reflect.TypeFor[view.Done](), media: "application/json",
		serve: func(c *call, w http.ResponseWriter) error { return c.act(v, w) },
	}
}

// act does an act, or answers as it did before for the same Idempotency-Key.
func (c *call) act(v *acts.Verb, w http.ResponseWriter) error {
	if c.ReadOnly {
		return problemOf(readOnly, "it was started so")
	}
	if err := parseQuery(c.r.URL.RawQuery, &struct{}{}); err != nil {
		return err
	}
	// A form of another site cannot have this type; a script of another site needs leave that no answer gives.
	if media, _, _ := mime.ParseMediaType(c.r.Header.Get("Content-Type")); media != "application/json" {
		return problemOf(notJSON, "send Content-Type: application/json")
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, c.r.Body, maxBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return problemOf(tooLarge, fmt.Sprintf("it has more than %d bytes", maxBody))
	}
	if err != nil {
		return problemOf(badRequest, "the body could not be read")
	}
	request, reason, err := parseBody(body, v, v.For(cmp.Or(c.job(), c.r.PathValue("name"))))
	if err == nil {
		err = v.Check(request)
	}
	if err != nil {
		return err
	}
	answer, err := c.doOnce(v, request, reason, sha256.Sum256(body), w.Header())
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // the client has gone
	return nil
}

// doOnce does an act, unless the user has sent it with the same Idempotency-Key before: then it returns the answer to that.
func (c *call) doOnce(v *acts.Verb, request acts.Request, reason string, sum [sha256.Size]byte, h http.Header) ([]byte, error) {
	key := c.r.Header.Get("Idempotency-Key")
	if key == "" {
		return c.do(v, request, reason)
	}
	if len(key) > 255 || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, wrong(invalidArgument, "Idempotency-Key", "it has up to 255 printable characters of ASCII")
	}
	kept, first, err := c.keys.begin(c.user, c.r.URL.EscapedPath()+"\n"+key, sum)
	if err != nil {
		return nil, err
	}
	if !first {
		h.Set("Idempotency-Replayed", "true")
		return kept.answer, kept.err
	}
	kept.answer, kept.err = c.do(v, request, reason)
	c.keys.end(kept)
	return kept.answer, kept.err
}

// mayBeDone reports whether an act that failed may have been done, in part or later.
func mayBeDone(err error) bool {
	return errors.Is(err, registry.ErrUnknownOutcome) || findProblem(err).Status >= http.StatusInternalServerError
}

// do does an act. It goes on if the client leaves: its outcome would not be known.
func (c *call) do(v *acts.Verb, request acts.Request, reason string) (_ []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			c.Logger.Error("an act by the HTTP API panicked", "user", c.user, "verb", v.Name, "panic", p, "stack", string(debug.Stack()))
			err = problemOf(unknownOutcome, "it failed; see the log of the console")
		}
	}()
	ctx, cancel := contextWith(context.WithoutCancel(c.r.Context()), actTimeout)
	defer cancel()
	done, err := v.DoByHistory(ctx, c.Op.As(c.user, reason), request, look.FindFailed(c.History))
	if err != nil {
		return nil, err
	}
	c.Logger.Info("act by the HTTP API", "user", c.user, "verb", v.Name, "job", request.Job, "instance", request.Instance, "reason", reason, "result", done.Text)
	var answer bytes.Buffer
	err = view.WriteJSON(&answer, done)
	return answer.Bytes(), err
}

// reasonField is the field of a body that each act has besides its own.
const reasonField = "reason"

// parseBody adds the arguments of an act to a request: a JSON object has the fields of the verb and a reason. A field that the verb
// does not have is an error.
func parseBody(body []byte, v *acts.Verb, request acts.Request) (_ acts.Request, reason string, err error) {
	fields := map[string]reflect.Value{reasonField: reflect.ValueOf(&reason).Elem()}
	names := []string{}
	for _, f := range v.Fields {
		if value, ok := requestField(reflect.ValueOf(&request).Elem(), f.Name); ok {
			fields[f.Name] = value
			names = append(names, f.Name)
		}
	}
	names = append(names, reasonField)
	d := json.NewDecoder(bytes.NewReader(body))
	malformed := func(err error) (acts.Request, string, error) {
		return request, "", problemOf(badRequest, fmt.Sprintf("the body is not one JSON object: %v", err))
	}
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return malformed(errors.New("it does not begin with {"))
	}
	given := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return malformed(err)
		}
		name := t.(string) // since a name follows in an object
		value, ok := fields[name]
		switch {
		case !ok:
			return request, "", wrong(unknownField, name, fmt.Sprintf("%s has no field %.40q; it has: %s", v.Name, name, strings.Join(names, ", ")))
		case given[name]:
			return request, "", wrong(invalidArgument, name, name+" is given twice")
		}
		given[name] = true
		if err := d.Decode(value.Addr().Interface()); err != nil {
			if _, syntax := errors.AsType[*json.SyntaxError](err); syntax || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return malformed(err)
			}
			return request, "", wrong(invalidArgument, name, fmt.Sprintf("%s is %s", name, describeType(value.Type())))
		}
	}
	if _, err := d.Token(); err != nil {
		return malformed(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return malformed(errors.New("something follows it"))
	}
	return request, reason, nil
}

// requestField returns the field of a request with a JSON name.
func requestField(request reflect.Value, name string) (reflect.Value, bool) {
	for f, value := range request.Fields() {
		if jsonName, _, _ := strings.Cut(f.Tag.Get("json"), ","); jsonName == name {
			return value, true
		}
	}
	return reflect.Value{}, false
}

// describeType returns the form of a field in words.
func describeType(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return "an instant of RFC 3339"
	case t.Kind() == reflect.Pointer:
		return describeType(t.Elem())
	case t.Kind() == reflect.Slice:
		return "a list, or has an element of another type"
	case t.Kind() == reflect.Int:
		return "a whole number"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "a text"
	}
	return "of another type"
}
