package contain_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/contain"
)

// badError panics in the method with this name.
type badError struct{ in string }

func (e badError) at(method string) {
	if e.in == method {
		panic("bad " + method)
	}
}
func (e badError) Error() string   { e.at("Error"); return "bad" }
func (e badError) Unwrap() error   { e.at("Unwrap"); return io.EOF }
func (e badError) Is(_ error) bool { e.at("Is"); return false }
func (e badError) As(_ any) bool   { e.at("As"); return false }

// fieldError is the classic slip: a nil pointer in an error.
type fieldError struct{ code int }

func (e *fieldError) Error() string { return fmt.Sprint("code ", e.code) }

func TestCall_EachMethodOfAnErrorThatPanicsIsAPanic(t *testing.T) {
	for _, method := range []string{"Error", "Unwrap", "Is", "As"} {
		for name, err := range map[string]error{"alone": badError{method}, "joined": errors.Join(io.EOF, badError{method})} {
			t.Run(method+" "+name, func(t *testing.T) {
				var p *contain.PanicError
				require.ErrorAs(t, contain.Call("f", func() error { return err }), &p)
				assert.Equal(t, "f panicked: bad "+method, p.Error())
				assert.Contains(t, string(p.Stack), "badError")
			})
		}
	}
	t.Run("a nil pointer", func(t *testing.T) {
		err := contain.Call("f", func() error { var e *fieldError; return e })
		assert.ErrorContains(t, err, "f panicked: runtime error: invalid memory address")
	})
}

// twice is a value whose text panics with itself.
type twice struct{}

func (twice) String() string { panic(twice{}) }

func TestCall_AnArgumentOfPanicWithoutATextIsNamedByItsType(t *testing.T) {
	err := contain.Call("f", func() error { panic(twice{}) })
	assert.EqualError(t, err, "f panicked: a contain_test.twice without a text")
}

func TestCall_PanicOfNil(t *testing.T) {
	assert.ErrorContains(t, contain.Call("f", func() error { panic(nil) }), "f panicked: panic called with nil argument")
}

func TestCallApart_GoexitIsAnError(t *testing.T) {
	err := contain.CallApart("f", func() error { runtime.Goexit(); return nil })
	assert.EqualError(t, err, "function called runtime.Goexit, as t.FailNow does")
	assert.NoError(t, contain.CallApart("f", func() error { return nil }))
}

// changing has another text at each call, and later panics.
type changing struct{ calls int }

func (c *changing) Error() string {
	if c.calls++; c.calls > 1 {
		panic("called again")
	}
	return fmt.Sprint("call ", c.calls)
}

func TestSettle_TakesTheTextOnce(t *testing.T) {
	err := contain.Settle(&changing{})
	for range 2 {
		assert.Equal(t, "call 1", err.Error())
	}
	assert.Equal(t, "more: call 1", fmt.Errorf("more: %w", err).Error())
	assert.Same(t, err, contain.Settle(err))
	assert.NoError(t, contain.Settle(nil))
}

func TestSettle_KeepsTheChain(t *testing.T) {
	err := contain.Settle(fmt.Errorf("read: %w", &fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}))
	var path *fs.PathError
	require.ErrorAs(t, err, &path)
	assert.Equal(t, "x", path.Path)
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.NotErrorIs(t, err, io.EOF)
	assert.NoError(t, errors.Unwrap(err))
}

// later panics in Is, As and Unwrap once it is armed.
type later struct{ armed bool }

func (l *later) check() {
	if l.armed {
		panic("armed")
	}
}
func (l *later) Error() string   { return "later" }
func (l *later) Unwrap() error   { l.check(); return io.EOF }
func (l *later) Is(_ error) bool { l.check(); return false }
func (l *later) As(_ any) bool   { l.check(); return false }

func TestSettle_AChainThatPanicsLaterHasNothing(t *testing.T) {
	l := &later{}
	err := contain.Settle(l)
	require.ErrorIs(t, err, io.EOF)
	l.armed = true
	assert.NotErrorIs(t, err, io.EOF)
	var path *fs.PathError
	assert.False(t, errors.As(err, &path))
}

// badHandler is a slog.Handler that panics in the method with this name.
type badHandler struct{ in string }

func (h badHandler) at(method string) {
	if h.in == method {
		panic(method)
	}
}
func (h badHandler) Enabled(context.Context, slog.Level) bool  { h.at("Enabled"); return true }
func (h badHandler) Handle(context.Context, slog.Record) error { h.at("Handle"); return nil }
func (h badHandler) WithAttrs([]slog.Attr) slog.Handler        { h.at("WithAttrs"); return h }
func (h badHandler) WithGroup(string) slog.Handler             { h.at("WithGroup"); return h }

func TestLogger_APanicOfTheHandlerDropsTheLine(t *testing.T) {
	for _, method := range []string{"Enabled", "Handle", "WithAttrs", "WithGroup"} {
		assert.NotPanics(t, func() {
			contain.Logger(slog.New(badHandler{method})).With("a", 1).WithGroup("g").Info("x")
		}, method)
	}
	log := contain.Logger(nil)
	assert.Same(t, log, contain.Logger(log))
}

func TestClock_APanicIsAnsweredByTheSystemsClock(t *testing.T) {
	at := time.Unix(1, 0)
	assert.Equal(t, at, contain.Clock(func() time.Time { return at })())
	assert.WithinDuration(t, time.Now(), contain.Clock(func() time.Time { panic("clock") })(), time.Minute)
	assert.WithinDuration(t, time.Now(), contain.Clock(nil)(), time.Minute)
}

func TestTextOf_EndsForAValueThatContainsItself(t *testing.T) {
	list, table := make([]any, 1), map[string]any{}
	list[0], table["self"] = list, table
	type node struct{ all []any }
	for want, v := range map[string]any{
		"a []interface {} without a text":          list,
		"a map[string]interface {} without a text": table,
		"a *contain.node without a text":           &node{list},
		"a [][]int without a text":                 make([][]int, 1_000_000),
		"map[a:1]":                                 map[string]int{"a": 1},
		"[1 2]":                                    []any{1, 2},
		"{[x]}":                                    node{[]any{"x"}},
		"EOF":                                      io.EOF,
		"<nil>":                                    nil,
	} {
		assert.Equal(t, want, strings.ReplaceAll(contain.TextOf(v), "contain_test.", "contain."))
	}
}
