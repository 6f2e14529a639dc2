package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"rota/release/internal/pack"
)

// parseTime reads seconds since 1970.
func parseTime(text string) (time.Time, error) {
	seconds, err := strconv.ParseInt(text, 10, 64)
	return time.Unix(seconds, 0).UTC(), err
}

// packArchive writes an archive of a binary and texts.
func packArchive(args []string) error {
	if len(args) < 4 {
		return errUsage
	}
	at, err := parseTime(args[2])
	if err != nil {
		return err
	}
	var files []pack.File
	for i, name := range args[3:] {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		mode := int64(0o644)
		if i == 0 {
			mode = 0o755 // the binary
		}
		files = append(files, pack.File{Name: filepath.Base(name), Data: data, Mode: mode})
	}
	return pack.WriteArchive(args[0], args[1], files, at)
}

// packImage writes a container image of binaries for Linux.
func packImage(args []string) error {
	if len(args) < 7 {
		return errUsage
	}
	at, err := parseTime(args[1])
	if err != nil {
		return err
	}
	zones, err := os.ReadFile(args[5])
	if err != nil {
		return err
	}
	im := pack.Image{Binaries: map[string][]byte{}, Copyrights: map[string][]byte{}, ZoneInfo: zones, Version: args[2], Commit: args[3], Source: args[4], Time: at}
	var architectures []string
	for _, arg := range args[6:] {
		part := strings.Split(arg, "=")
		if len(part) != 3 {
			return errUsage
		}
		arch := part[0]
		if im.Binaries[arch], err = os.ReadFile(part[1]); err != nil {
			return err
		}
		if im.Copyrights[arch], err = os.ReadFile(part[2]); err != nil {
			return err
		}
		architectures = append(architectures, arch)
	}
	return pack.WriteImage(args[0], im, architectures)
}

// packDeb writes a Debian package.
func packDeb(args []string) error {
	if len(args) != 9 {
		return errUsage
	}
	at, err := parseTime(args[1])
	if err != nil {
		return err
	}
	return pack.WriteDeb(args[0], pack.Deb{
		Arch: args[2], Version: args[3], Binary: args[4], Unit: args[5], Copyright: args[6], Scripts: args[7], Homepage: args[8], Time: at,
	})
}
