// Package alertstest evaluates rotaprom's alerts.yaml with the rule engine of Prometheus, as promtool
// does. It has a module of its own, since that engine depends on about a hundred modules. The
// module is not tidy, as go mod tidy wants tests of all of them: add what is missing with go get -t.
package alertstest
