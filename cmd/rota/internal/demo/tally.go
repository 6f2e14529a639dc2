package demo

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// tally is the totals of some files.
type tally struct {
	Files  int    `json:"files"`
	Bytes  int64  `json:"bytes"`
	Lines  int64  `json:"lines"`
	Digest string `json:"digest"` // of the files' digests, added up: the order does not matter
}

// listFiles returns the regular files below dir, sorted.
func listFiles(dir string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("list files: there are none in %s", dir)
	}
	slices.Sort(files)
	return files, nil
}

// counter adds up files.
type counter struct {
	tally
	sum [sha256.Size]byte
}

// add counts a file.
func (c *counter) add(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	hash := sha256.New()
	lines := lineCounter{}
	n, err := io.Copy(io.MultiWriter(hash, &lines), bufio.NewReader(f))
	if err != nil {
		return err
	}
	c.Files++
	c.Bytes += n
	c.Lines += lines.n
	c.addDigest([sha256.Size]byte(hash.Sum(nil)))
	return nil
}

// addDigest adds a number of 256 bits to the sum.
func (c *counter) addDigest(d [sha256.Size]byte) {
	carry := 0
	for i := len(d) - 1; i >= 0; i-- {
		carry += int(c.sum[i]) + int(d[i])
		c.sum[i] = byte(carry)
		carry >>= 8
	}
	c.Digest = hex.EncodeToString(c.sum[:])
}

// merge adds another tally.
func (c *counter) merge(t tally) error {
	d, err := hex.DecodeString(t.Digest)
	if t.Files == 0 {
		d, err = make([]byte, sha256.Size), nil
	}
	if err != nil || len(d) != sha256.Size {
		return fmt.Errorf("digest %q: %w", t.Digest, err)
	}
	c.Files += t.Files
	c.Bytes += t.Bytes
	c.Lines += t.Lines
	c.addDigest([sha256.Size]byte(d))
	return nil
}

type lineCounter struct{ n int64 }

func (l *lineCounter) Write(p []byte) (int, error) {
	for _, b := range p {
		if b == '\n' {
			l.n++
		}
	}
	return len(p), nil
}
