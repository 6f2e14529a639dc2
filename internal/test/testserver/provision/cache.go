package provision

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rota-dev/rota/internal/test/testserver/filelock"
)

// cached returns the cache's directory of that name. If there is none, fill makes its
// content in another one, which becomes it in one step. log, which may be nil, gets what
// it is doing.
func cached(ctx context.Context, log io.Writer, name, doing string, fill func(ctx context.Context, dir string) error) (string, error) {
	root, err := cacheRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, name)
	if isDir(dir) {
		return dir, nil
	}
	lock, err := filelock.Acquire(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer lock.Release()
	if isDir(dir) { // somebody else made it
		return dir, nil
	}
	aside := dir + ".part"
	defer os.RemoveAll(aside)
	if err := os.RemoveAll(aside); err != nil { // of one who died
		return "", err
	}
	if err := os.Mkdir(aside, 0o755); err != nil {
		return "", err
	}
	if log != nil {
		fmt.Fprintf(log, "%s, to be kept in %s\n", doing, dir)
	}
	if err := fill(ctx, aside); err != nil {
		return "", err
	}
	return dir, os.Rename(aside, dir)
}

func cacheRoot() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil { // an account without a home
		base = filepath.Join(os.TempDir(), fmt.Sprintf("cache-%d", os.Getuid()))
	}
	root := filepath.Join(base, "rota")
	return root, os.MkdirAll(root, 0o755)
}

// digest is short enough for a file's name.
func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:8])
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&fs.ModeType == 0
}
