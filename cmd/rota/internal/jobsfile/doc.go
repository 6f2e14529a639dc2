// Package jobsfile reads the file of "rota run": jobs whose work is a command, a script or an HTTP
// request.
//
// One table of keys (table.go) determines what the parser accepts, the JSON schema and the tables of
// docs/jobs-file/keys.md. Load reports all problems of a file together, each with its position, its key
// and the rule.
package jobsfile
