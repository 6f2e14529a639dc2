// Package importing converts the jobs of other schedulers to rota: a crontab to a jobs file, and a
// namespace of Elastic-Job-Lite to a jobs file or to definitions in Go.
//
// Conversions are pure functions from text, or from a tree of records, to text. Each setting that
// rota cannot keep becomes a note: a comment in the output.
package importing
