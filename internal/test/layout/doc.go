// Package layout holds the repository to what is said about it: which package may import
// which, what no test does, where the module's path is written. It has tests only.
package layout
