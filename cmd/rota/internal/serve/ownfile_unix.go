//go:build unix

package serve

import (
	"fmt"
	"os"
	"path/filepath"
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

// checkDirectories returns an error if all users may write a directory above a file, and so put another file in its place. A path
// may have links, so the directories of its target count as well. In one with the sticky bit, as /tmp, only owners replace files;
// in a volume that is mounted for reading, as that of a ConfigMap, nobody does.
func checkDirectories(path string) error {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	for _, file := range []string{path, target} {
		dir, err := filepath.Abs(filepath.Dir(file))
		for ; err == nil; dir = filepath.Dir(dir) {
			var info os.FileInfo
			if info, err = os.Stat(dir); err == nil && info.Mode().Perm()&0o002 != 0 && info.Mode()&os.ModeSticky == 0 && !isMountedReadOnly(dir) {
				return fmt.Errorf("%s is refused: all users may write the directory %s (%v), and so replace the file, which determines which programs run here; remedy: chmod o-w %s",
					path, dir, info.Mode(), dir)
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
