// Package serve has the commands "rota run", a process of a fleet whose jobs come from a file, and
// "rota validate", which checks such a file.
package serve
