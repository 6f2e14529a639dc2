package main

import (
	"errors"
	"os"
	"path/filepath"

	"rota/release/internal/licences"
	"rota/release/internal/modules"
)

// writeLicences writes the page of licences of a tree, or compares it.
func writeLicences(args []string) error {
	if len(args) != 2 || args[1] != "write" && args[1] != "check" {
		return errUsage
	}
	root, err := modules.Path(args[0])
	if err != nil {
		return err
	}
	page, err := licences.Page(args[0], root, modules.Released, []string{"linux/amd64", "darwin/arm64", "windows/amd64"})
	if err != nil {
		return err
	}
	file := filepath.Join(args[0], "release", "licences.md")
	if args[1] == "write" {
		return os.WriteFile(file, []byte(page), 0o644)
	}
	if old, err := os.ReadFile(file); err != nil || string(old) != page {
		return errors.Join(errors.New("release/licences.md is not what is linked: run release/licences"), err)
	}
	return nil
}

// writeNotices writes the licences of what a binary links.
func writeNotices(args []string) error {
	if len(args) != 5 {
		return errUsage
	}
	text, err := licences.Notices(args[0], args[1], args[2], args[3])
	if err != nil {
		return err
	}
	return os.WriteFile(args[4], []byte(text), 0o644)
}
