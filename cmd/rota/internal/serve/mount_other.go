//go:build unix && !linux

package serve

func isMountedReadOnly(string) bool { return false }
