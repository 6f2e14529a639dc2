package console

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/rota-dev/rota/cmd/rota/internal/historyurl"
	"github.com/rota-dev/rota/history"
	"github.com/rota-dev/rota/web"
)

// openConsole returns the opener of the pages of package web.
func openConsole(o *options, log *slog.Logger) opener {
	return func(ctx context.Context, f *fleet) (http.Handler, io.Closer, error) {
		op, err := f.settings.Operator(ctx)
		if err != nil {
			return nil, nil, err
		}
		log := log.With("fleet", f.name)
		past, closeHistory, err := f.openHistory()
		if err != nil {
			log.Warn("serving a fleet without its history", "error", err)
		}
		pages := web.Options{History: past, Authorize: f.authorize, Acts: o.allowActs, Fleets: o.links(f), Zone: time.Local, Logger: log}
		if f.settings.Time == "utc" {
			pages.Zone = time.UTC
		}
		console, err := web.New(op, pages)
		if err != nil {
			closeHistory()
			f.settings.Close()
			return nil, nil, err
		}
		opened := closer(func() {
			console.Close()
			closeHistory()
			f.settings.Close()
		})
		if f.receivers == nil {
			return console, opened, nil
		}
		notifier, err := f.receivers.start(ctx, f)
		if err != nil {
			opened()
			return nil, nil, err
		}
		return console, closer(func() {
			notifier.Close()
			opened()
		}), nil
	}
}

// maxHistoryConnections bounds the connections to the database of runs, whatever the number of viewers.
const maxHistoryConnections = 4

// openHistory returns the history of the fleet, nil if it has none. It makes no connection.
func (f *fleet) openHistory() (reader history.Reader, closeHistory func(), err error) {
	nothing := func() {}
	if f.settings.History == "" {
		return nil, nothing, nil
	}
	db, dialect, err := historyurl.Open(f.settings.History, historyurl.Options{ReadOnly: true})
	if err != nil {
		return nil, nothing, err
	}
	db.SetMaxOpenConns(maxHistoryConnections)
	store, err := history.SQL(db, dialect, history.SQLOptions{})
	if err != nil {
		_ = db.Close()
		return nil, nothing, err
	}
	return store.Reader(f.settings.Namespace, f.settings.Group), func() { _ = db.Close() }, nil
}

// closer is a function as an io.Closer.
type closer func()

func (c closer) Close() error {
	c()
	return nil
}

// links returns the links at the top of the pages of a fleet. The other fleets are on a page of their own, which knows the roles of
// its viewer.
func (o *options) links(f *fleet) (links []web.Link) {
	if len(o.contexts) > 1 {
		links = []web.Link{{Name: f.name}, {Name: "all fleets", URL: o.path}}
	}
	if o.hasLogins() {
		links = append(links, web.Link{Name: "log out", URL: o.path + "-/logout"})
	}
	return links
}
