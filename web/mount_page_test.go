package web_test

import (
	"net/http"

	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/web"
)

// mount is the code of docs/console.md.
//
// A document shows from here:

func mount(mux *http.ServeMux, op *operator.Operator, authorize func(*http.Request) (web.User, error)) (*web.Console, error) {
	console, err := web.New(op, web.Options{Authorize: authorize, Acts: true})
	if err != nil {
		return nil, err
	}
	mux.Handle("/ops/rota/", http.StripPrefix("/ops/rota", console))
	return console, nil // close it after the server
}

// To here.

var _ = mount
