//go:build !linux

package background

// GiveWay does nothing.
func GiveWay() {}
