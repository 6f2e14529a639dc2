//go:build !linux

package serve

// hideProcess does nothing: only Linux has /proc with the environment of a process.
func hideProcess() error { return nil }
