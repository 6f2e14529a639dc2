package serve

import (
	"fmt"
	"io"
	"os"

	"github.com/rota-dev/rota/cmd/rota/internal/jobsfile"
)

// readOwnFile reads a file that determines which programs this process runs. It refuses a file that
// other users may write.
func readOwnFile(path string, uid int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat() // of the open file: another one may get the name
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	if err := checkWriters(path, info, uid); err != nil {
		return nil, err
	}
	if err := checkDirectories(path); err != nil {
		return nil, err
	}
	return readBounded(f)
}

// readBounded reads a file up to a byte more than a file may have, which Load refuses.
func readBounded(r io.Reader) ([]byte, error) {
	return io.ReadAll(io.LimitReader(r, jobsfile.MaxBytes+1))
}
