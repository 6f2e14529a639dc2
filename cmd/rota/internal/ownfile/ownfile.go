// Package ownfile reads files that determine what a process does, and that other users must therefore not write.
package ownfile

import (
	"fmt"
	"io"
	"os"
)

// File is such a file.
type File struct {
	Path string
	// Determines completes "it determines" in errors.
	Determines string
	// UID is the user who, besides root, may own the file.
	UID int
	// Private refuses a file that all users may read.
	Private bool
	// MaxBytes bounds what Read returns, which may be one byte more.
	MaxBytes int64
}

// Read reads the file. It refuses a file that other users may write.
func (f File) Read() ([]byte, error) {
	file, err := os.Open(f.Path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat() // of the open file: another one may get the name
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", f.Path)
	}
	if err := f.Check(info); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(file, f.MaxBytes+1))
}
