package screen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/term"

	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/internal/view"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

// Read reads what a screen shows. Group returns the state of the group: by listings or, on a screen
// that is shown again, by watches.
type Read func(ctx context.Context, op *operator.Operator, group func() (operator.GroupStatus, error)) (View, error)

// Output is where a screen is printed.
type Output struct {
	Out, Err io.Writer
	// Every is how often a screen is shown again at most. Zero means one second.
	Every time.Duration
}

// Show prints a screen once or, with --watch, after each change until ctx ends.
func Show(ctx context.Context, s *settings.Settings, o Output, read Read) error {
	op, err := s.Operator(ctx)
	if err != nil {
		return err
	}
	if s.Watch {
		return Follow(ctx, s, o, func(group *operator.GroupView) (View, error) {
			return read(ctx, op, func() (operator.GroupStatus, error) { return group.Status(), nil })
		})
	}
	printTarget(s, o)
	// The process is about to end, so fewer collections are worth their memory: of 10,000 jobs they take a
	// quarter of the time.
	defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	v, err := read(ctx, op, func() (operator.GroupStatus, error) { return op.Group(ctx) })
	if err != nil {
		return s.ExplainFailure(err)
	}
	return Print(o.Out, v, s.Output, TimesOf(s))
}

// printTarget prints the name of the fleet above a table.
func printTarget(s *settings.Settings, o Output) {
	if Form(s.Output) == "table" {
		fmt.Fprintf(o.Err, "# %s\n", s.Target())
	}
}

// gcPercent is the growth of the heap between two garbage collections, for a screen that is shown once.
const gcPercent = 400

// Form returns "table" for both forms of tables, and other forms as they are.
func Form(output string) string {
	if output == "wide" {
		return "table"
	}
	return output
}

// TimesOf returns the format of instants.
func TimesOf(s *settings.Settings) view.Times {
	return view.Times{Now: time.Now(), Mode: s.Time, Zone: time.Local}
}

// Follow prints a screen of a view that watches keep current: after each change, and as often as Every for
// times that are relative.
func Follow(ctx context.Context, s *settings.Settings, o Output, read func(group *operator.GroupView) (View, error)) error {
	op, err := s.Operator(ctx)
	if err != nil {
		return err
	}
	printTarget(s, o)
	first, cancel := context.WithTimeout(ctx, s.Timeout)
	group, err := op.Watch(first)
	cancel()
	if err != nil {
		return s.ExplainFailure(err)
	}
	defer group.Close()
	terminal := isTerminal(o.Out)
	every := o.Every
	if every <= 0 {
		every = time.Second
	}
	for {
		changed := group.Changed()
		if err := group.Err(); err != nil {
			return err
		}
		v, err := read(group)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, registry.ErrUnavailable): // for a while
			fmt.Fprintln(o.Err, err)
			if !pause(ctx, every) {
				return nil
			}
			continue
		case err != nil:
			return err
		}
		if terminal {
			fmt.Fprint(o.Out, "\x1b[H\x1b[J") // to the corner, and clear
		}
		if err := Print(o.Out, v, s.Output, TimesOf(s)); err != nil {
			return err
		}
		if Form(s.Output) == "table" && !terminal {
			fmt.Fprintln(o.Out)
		}
		if !pause(ctx, every) {
			return nil
		}
		if terminal {
			continue // relative times have changed
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// pause waits, and returns false if ctx ends.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Height returns the height of the terminal, or fallback if w is none.
func Height(w io.Writer, fallback int) int {
	f, ok := w.(*os.File)
	if !ok {
		return fallback
	}
	if _, height, err := term.GetSize(int(f.Fd())); err == nil {
		return height
	}
	return fallback
}
