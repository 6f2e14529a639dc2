package api

import "github.com/rota-dev/rota/internal/acts"

// verbs are the acts of the tests.
var verbs = acts.Verbs
