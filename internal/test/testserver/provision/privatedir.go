package provision

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// MakePrivateDir creates a directory whose name others can predict, with its parents, for this user alone. A
// directory that exists must not be a link, must be of this user, and must not be writable by others: in a shared
// temporary directory, another user can create the name first, and what is executed from it or deleted below it
// would be that user's choice.
func MakePrivateDir(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	what := ""
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		what = "it is a link"
	case !info.IsDir():
		what = "it is not a directory"
	case !isOwn(info):
		what = "it belongs to another user"
	case isWritableByOthers(info):
		what = fmt.Sprintf("others may write to it (%v)", info.Mode())
	default:
		return nil
	}
	return fmt.Errorf("use directory %s: %s; remove it, or set TMPDIR or XDG_CACHE_HOME to a directory of your own", path, what)
}
