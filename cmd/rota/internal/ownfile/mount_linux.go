package ownfile

import "syscall"

// isMountedReadOnly reports whether the file system of a directory is mounted for reading.
func isMountedReadOnly(dir string) bool {
	const stRDONLY = 1 // of statvfs(3)
	var fs syscall.Statfs_t
	return syscall.Statfs(dir, &fs) == nil && fs.Flags&stRDONLY != 0
}
