//go:build !linux

package testserver

// listens has no way to tell. A server whose port is another's ends by itself.
func listens(int, int) (bool, error) { return true, nil }
