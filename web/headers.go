package web

import (
	"net/http"

	"github.com/rota-dev/rota/web/internal/api"
)

// securityHeaders hold for every answer. The policy allows nothing inline, so text of a fleet that looked like markup could not act. It
// allows pictures in an address for the empty icon, without which browsers ask for one.
var securityHeaders = map[string]string{
	"Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; " +
		"form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
	"Referrer-Policy":              "same-origin",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Cache-Control":                "no-store",
}

// SetSecurityHeaders sets the headers of each answer of a Console, for the pages that a service adds to it, such as that of a login.
func SetSecurityHeaders(h http.Header) {
	for name, value := range securityHeaders {
		h.Set(name, value)
	}
}

// WriteProblem answers a request to the HTTP API with a problem as the API has it, for a service that answers in place of a Console: of the
// status 401, 403 or 503.
func WriteProblem(w http.ResponseWriter, status int, detail string) {
	api.WriteProblem(w, status, detail)
}
