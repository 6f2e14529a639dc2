package console

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

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
		console, err := web.New(op, pages)
		if err != nil {
			f.settings.Close()
			return nil, nil, err
		}
		return console, closer(func() {
			console.Close()
			f.settings.Close()
		}), nil
	}
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
