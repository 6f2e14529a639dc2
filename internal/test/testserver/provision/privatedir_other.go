//go:build !unix

package provision

import "io/fs"

// Modes do not show owners and writers here; the directories for temporary files are the user's own.
func isOwn(fs.FileInfo) bool { return true }

func isWritableByOthers(fs.FileInfo) bool { return false }
