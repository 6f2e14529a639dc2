package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/jobsfile"
	"github.com/rota-dev/rota/cmd/rota/internal/ownfile"
	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/internal/secret"
	"github.com/rota-dev/rota/notify"
)

// notifyStopTimeout bounds the wait at the end for a message that is being delivered.
const notifyStopTimeout = 3 * time.Second

// receivers are those of a file of --notify. They may change while notifiers run.
type receivers struct {
	path    string
	uid     int
	schemes registryurl.Schemes
	secrets *secret.Masker
	log     *slog.Logger

	mu        sync.Mutex
	current   jobsfile.Notify
	notifiers map[*notify.Notifier]bool
}

// read reads the file, and gives the notifiers what has changed. A file with a mistake changes nothing.
func (c *receivers) read() error {
	file := ownfile.File{Path: c.path, Determines: "who gets messages about the fleets", UID: c.uid, MaxBytes: jobsfile.MaxBytes}
	content, err := file.Read()
	if err != nil {
		return err
	}
	f, err := jobsfile.LoadNotify(c.path, content, jobsfile.Host{ReadFile: os.ReadFile, Secrets: c.secrets, Schemes: c.schemes})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := c.current.Digest != f.Notify.Digest
	c.current = f.Notify
	if !changed {
		return nil
	}
	var errs []error
	for n := range c.notifiers {
		errs = append(errs, n.Reconfigure(c.options()))
	}
	return errors.Join(errs...)
}

// options returns the settings of a notifier. c.mu is held.
func (c *receivers) options() notify.Options {
	o := c.current.Options
	o.Logger = c.log
	return o
}

// start starts the notifier of a fleet on a connection of its own: one that only looks cannot elect a sender. The closer ends both.
func (c *receivers) start(ctx context.Context, f *fleet) (io.Closer, error) {
	reg, err := f.settings.OpenWritable(ctx)
	if err != nil {
		return nil, err
	}
	closeRegistry := func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = reg.Close(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := notify.Start(context.WithoutCancel(ctx), reg, f.settings.Namespace, f.settings.Group, c.options())
	if err != nil {
		closeRegistry()
		return nil, err
	}
	c.notifiers[n] = true
	return closer(func() {
		c.mu.Lock()
		delete(c.notifiers, n)
		c.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), notifyStopTimeout)
		defer cancel()
		if err := n.Shutdown(ctx); err != nil {
			c.log.Warn("a receiver of messages has not answered before the end", "fleet", f.name, "error", err)
		}
		closeRegistry()
	}), nil
}

// names returns the names of the receivers.
func (c *receivers) names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.current.Options.Receivers))
}

// addReceivers gives each fleet the receivers of its file of --notify, which is FILE for all fleets, or CONTEXT=FILE.
func (s *server) addReceivers() (all []*receivers, err error) {
	byPath := map[string]*receivers{}
	own := map[*fleet]bool{}
	for _, arg := range s.notify {
		name, path, isOwn := strings.Cut(arg, "=")
		if !isOwn || !validName.MatchString(name) {
			name, path, isOwn = "", arg, false
		}
		if path == "" {
			return nil, exit.Usagef("--notify is %q, neither FILE nor CONTEXT=FILE", arg)
		}
		c := byPath[path]
		if c == nil {
			c = &receivers{path: path, uid: s.uid, schemes: s.fleets[0].settings.Schemes, secrets: s.secrets, log: s.log, notifiers: map[*notify.Notifier]bool{}}
			byPath[path] = c
			all = append(all, c)
		}
		found := !isOwn
		for _, f := range s.fleets {
			switch {
			case isOwn && f.name != name, !isOwn && own[f]:
				continue
			case isOwn && own[f], !isOwn && f.receivers != nil:
				return nil, exit.Usagef("--notify names two files for the fleet %s", f.name)
			}
			f.receivers, own[f], found = c, isOwn, true
		}
		if !found {
			return nil, exit.Usagef("--notify names the fleet %q, which is not served: there are %s", name, strings.Join(s.fleetNames(), ", "))
		}
	}
	return all, nil
}

func (s *server) fleetNames() (names []string) {
	for _, f := range s.fleets {
		names = append(names, f.name)
	}
	return names
}

// describeReceivers returns a line about the messages that the process sends, "" if it sends none.
func (s *server) describeReceivers() string {
	var parts []string
	for _, f := range s.fleets {
		if f.receivers != nil {
			parts = append(parts, fmt.Sprintf("%s to %s", f.name, strings.Join(f.receivers.names(), ", ")))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "It sends messages about " + strings.Join(parts, "; ") + ".\n"
}
