package console

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"sync"
	"time"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/settings"
	"github.com/rota-dev/rota/web"
)

// fleet is a fleet that the console shows.
type fleet struct {
	name     string // the first part of its path
	settings *settings.Settings
	// receivers get messages about the fleet; nil: nobody does.
	receivers *receivers

	mu      sync.Mutex
	handler http.Handler // nil until its store has answered
	problem string       // why there is no handler
}

// opener opens a fleet. The pages of the handler are below its path. The closer ends their streams and closes the store.
type opener func(ctx context.Context, f *fleet) (http.Handler, io.Closer, error)

// validName matches the names that can be the first part of a path. Those that begin with "-" are the console's own.
var validName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._~-]*$`)

// unnamed is the name of a fleet that no context has.
const unnamed = "fleet"

// newFleets returns the fleets of contexts; for none, that of the current context, the environment and the flags.
func newFleets(s *settings.Settings, contexts []string, acts bool, log *slog.Logger) ([]*fleet, error) {
	all, err := s.OfContexts(contexts)
	if err != nil {
		return nil, err
	}
	var fleets []*fleet
	seen := map[string]bool{}
	for _, each := range all {
		f := &fleet{name: each.Context, settings: each, problem: "The console has not reached its store yet."}
		f.name = cmp.Or(f.name, unnamed)
		switch {
		case !validName.MatchString(f.name):
			return nil, exit.Usagef("the context %q cannot be a part of a URL: name it with letters, digits and ._~-", f.name)
		case seen[f.name]:
			return nil, exit.Usagef("the context %q is named twice", f.name)
		}
		seen[f.name] = true
		each.Logger = log.With("fleet", f.name)
		if acts {
			if err := each.CheckProtection(); err != nil {
				return nil, err
			}
			each.AllowWrites()
		}
		fleets = append(fleets, f)
	}
	return fleets, nil
}

// target names the fleet for people.
func (f *fleet) target() string { return f.settings.Namespace + "/" + f.settings.Group }

// roleOf returns the role of a user in the fleet, 0 if there is none.
func (f *fleet) roleOf(id identity) web.Role { return id.roles.In(f.settings.Namespace) }

// state returns the handler, or why there is none.
func (f *fleet) state() (http.Handler, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.handler, f.problem
}

// The pauses between attempts to open a fleet.
const (
	firstPause = time.Second
	maxPause   = 30 * time.Second
)

// serve opens the fleet, as often as it takes, and closes it when ctx ends.
func (f *fleet) serve(ctx context.Context, open opener, log *slog.Logger) {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		handler, closer, err := open(ctx, f)
		if err == nil {
			defer closer.Close()
			f.mu.Lock()
			f.handler = handler
			f.mu.Unlock()
			log.Info("serving a fleet", "fleet", f.name, "registry", f.settings.Registry, "namespace", f.settings.Namespace, "group", f.settings.Group)
			<-ctx.Done()
			return
		}
		if ctx.Err() != nil {
			return
		}
		f.mu.Lock()
		isNew := f.problem != err.Error()
		f.problem = err.Error()
		f.mu.Unlock()
		if isNew {
			log.Warn("a fleet cannot be opened yet", "fleet", f.name, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// authorize returns the user of a request to the fleet.
func (f *fleet) authorize(r *http.Request) (web.User, error) {
	id := identityOf(r)
	role := f.roleOf(id)
	if role < web.Look {
		return web.User{}, fmt.Errorf("%q has no role in the namespace %q", id.name, f.settings.Namespace)
	}
	return web.User{Name: id.name, Role: role}, nil
}
