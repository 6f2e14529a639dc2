//go:build !linux

package nice

// Lower does nothing.
func Lower() {}
