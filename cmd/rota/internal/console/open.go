package console

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
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
		pages := web.Options{Authorize: f.authorize, Acts: o.allowActs, Fleets: o.links(f), Zone: time.Local, Logger: log.With("fleet", f.name)}
		if f.settings.Time == "utc" {
			pages.Zone = time.UTC
		}
		past, closePast, err := openHistory(f)
		if err != nil {
			f.settings.Close()
			return nil, nil, err
		}
		pages.History = past
		console, err := web.New(op, pages)
		if err != nil {
			closePast()
			f.settings.Close()
			return nil, nil, err
		}
		return console, closer(func() {
			console.Close()
			closePast()
			f.settings.Close()
		}), nil
	}
}

// openHistory returns the reader of the fleet's history, nil if none is named. It makes no connection.
func openHistory(f *fleet) (history.Reader, func(), error) {
	if f.settings.History == "" {
		return nil, func() {}, nil
	}
	db, dialect, err := historyurl.Open(f.settings.History, historyurl.Options{ReadOnly: true})
	if err != nil {
		return nil, nil, &exit.Error{Code: exit.Usage, Err: err}
	}
	db.SetMaxOpenConns(historyConns)
	store, err := history.SQL(db, dialect, history.SQLOptions{})
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return store.Reader(f.settings.Namespace, f.settings.Group), func() { _ = db.Close() }, nil
}

// historyConns bounds the connections to the database of a history, which the jobs need too.
const historyConns = 4

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
