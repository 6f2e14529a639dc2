//go:build !unix

package filelock

import (
	"errors"
	"os"
)

func flock(*os.File) error { return errors.New("not supported on this system") }
