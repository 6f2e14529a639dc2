// Package layout checks rules of this repository: which package may import which,
// constructs that tests and packages avoid, and that documents match the code. It
// contains only tests.
package layout
