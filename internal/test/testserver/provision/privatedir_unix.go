//go:build unix

package provision

import (
	"io/fs"
	"os"
	"syscall"
)

func isOwn(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

func isWritableByOthers(info fs.FileInfo) bool { return info.Mode().Perm()&0o022 != 0 }
