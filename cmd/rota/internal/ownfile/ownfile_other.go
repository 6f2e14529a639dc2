//go:build !unix

package ownfile

import "os"

// Check accepts each file, since modes do not show the writers here.
func (f File) Check(os.FileInfo) error { return nil }
