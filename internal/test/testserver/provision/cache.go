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

// cached returns the cache's directory of that name. If it does not exist, fill creates
// its content in another directory, which is then renamed. log, which may be nil,
// receives a line about it.
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
	if isDir(dir) { // created by another process meanwhile
		return dir, nil
	}
	aside := dir + ".part"
	defer os.RemoveAll(aside)
	if err := os.RemoveAll(aside); err != nil { // left by a killed process
		return "", err
	}
	if err := os.Mkdir(aside, 0o755); err != nil {
		return "", err
	}
	if log != nil {
		fmt.Fprintf(log, "%s into %s\n", doing, dir)
	}
	if err := fill(ctx, aside); err != nil {
		return "", err
	}
	return dir, os.Rename(aside, dir)
}

// cacheRoot returns the directory of the cache. Its content is executed, so it has no replacement below a directory
// that other users may write.
func cacheRoot() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the directory of the cache: %w; set HOME or XDG_CACHE_HOME", err)
	}
	root := filepath.Join(base, "rota")
	return root, MakePrivateDir(root)
}

// digest returns a hash short enough for a file name.
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
