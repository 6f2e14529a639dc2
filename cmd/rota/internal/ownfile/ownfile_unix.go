//go:build unix

package ownfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Check returns an error if users other than root and UID may write the file with this state, or put another file in its place.
func (f File) Check(info os.FileInfo) error {
	return errors.Join(f.checkMode(info), f.checkDirectories())
}

func (f File) checkMode(info os.FileInfo) error {
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is refused: group or others may write it (%v), and it determines %s; remedy: chmod go-w %s",
			f.Path, info.Mode(), f.Determines, f.Path)
	}
	if f.Private && info.Mode().Perm()&0o004 != 0 {
		return fmt.Errorf("%s is refused: all users may read it (%v); remedy: chmod o-r %s", f.Path, info.Mode(), f.Path)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid != 0 && int(stat.Uid) != f.UID {
		return fmt.Errorf("%s is refused: user %d owns it, and it determines %s; remedy: chown it to user %d or to root",
			f.Path, stat.Uid, f.Determines, f.UID)
	}
	return nil
}

// checkDirectories returns an error if all users may write a directory above the file, and so put another file in its place. A path
// may have links, so the directories of its target count as well. In one with the sticky bit, as /tmp, only owners replace files;
// in a volume that is mounted for reading, as that of a ConfigMap, nobody does.
func (f File) checkDirectories() error {
	target, err := filepath.EvalSymlinks(f.Path)
	if err != nil {
		return err
	}
	for _, file := range []string{f.Path, target} {
		dir, err := filepath.Abs(filepath.Dir(file))
		for ; err == nil; dir = filepath.Dir(dir) {
			var info os.FileInfo
			if info, err = os.Stat(dir); err == nil && info.Mode().Perm()&0o002 != 0 && info.Mode()&os.ModeSticky == 0 && !isMountedReadOnly(dir) {
				return fmt.Errorf("%s is refused: all users may write the directory %s (%v), and so replace the file, which determines %s; remedy: chmod o-w %s",
					f.Path, dir, info.Mode(), f.Determines, dir)
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
