// Package web is a console for a fleet: pages that show its state and act on it, for any Go service to mount.
//
//	console, err := web.New(op, web.Options{History: reader})
//	mux.Handle("/rota/", http.StripPrefix("/rota", console))
//
// Pages are made on the server and work without scripts. With them, a page follows the fleet: one stream tells the browser when to
// fetch it again. All viewers share one snapshot, read from watches at most once a second.
package web

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/rota-dev/rota/history"
)

// Role is what a user may do. Each role includes those below it. The console enforces them, and nothing else does: who can write to
// the store can do everything.
type Role int

const (
	// Look sees the fleet without parameters, outputs, logs and errors.
	Look Role = iota + 1
	// Reveal sees these too.
	Reveal
	// Operate may act: trigger, pause, retry and the like.
	Operate
	// Admin may also do what cannot be undone: override, forget, retire, reset.
	Admin
)

// User is who makes a request.
type User struct {
	Name string // for the record of acts
	Role Role
}

// Options are the options of New. The zero value shows the fleet to requests from this machine, and acts for nobody.
type Options struct {
	// History answers what has ended. Without it, the pages show what the records of the fleet know.
	History history.Reader
	// Authorize returns the user of a request, or an error: the request is answered 401. Nil gives the role Look to requests from
	// loopback addresses whose Host is a loopback name, and refuses others.
	Authorize func(*http.Request) (User, error)
	// ReadOnly refuses every act, whatever the role.
	ReadOnly bool
	// Fleets are links to other fleets, for the list at the top of each page.
	Fleets []Link
	// Zone is the zone of instants in pages unless the viewer chooses another. Nil means UTC.
	Zone *time.Location
	// Logger gets a line for each act and each failed request. Nil means slog.Default.
	Logger *slog.Logger
}

// Link names a page elsewhere.
type Link struct{ Name, URL string }
