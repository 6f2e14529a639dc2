// Package alertstest evaluates rotaprom's alerts.yaml with the rule engine of Prometheus, as promtool
// does. It has a module of its own, since that engine depends on about a hundred modules.
//
// After an upgrade of Prometheus, run go get -t ./... instead of go mod tidy. The latter also
// downloads dependencies of the tests of those modules, and some are not available.
package alertstest
