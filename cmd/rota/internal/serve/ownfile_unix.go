//go:build unix

package serve

import (
	"fmt"
	"os"
	"syscall"
)

// checkWriters returns an error if users other than root and uid may write a file.
func checkWriters(path string, info os.FileInfo, uid int) error {
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is refused: group or others may write it (%v), and it determines which programs run here; remedy: chmod go-w %s",
			path, info.Mode(), path)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 && int(stat.Uid) != uid {
		return fmt.Errorf("%s is refused: user %d owns it, and it determines which programs run here as user %d; remedy: chown it to that user or to root",
			path, stat.Uid, uid)
	}
	return nil
}
