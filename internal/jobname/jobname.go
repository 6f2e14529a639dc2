// Package jobname checks the names of jobs.
package jobname

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxBytes bounds the names of jobs.
const MaxBytes = 100

// Check checks the name of a job, which has to be readable in a log line.
func Check(name string) error {
	if name == "" {
		return errors.New("is empty")
	}
	return CheckLine(name, MaxBytes)
}

// CheckNew checks a name that a program chooses now: people must be able to tell it from others. Stored names
// may be of an earlier version, which accepted more.
func CheckNew(name string) error {
	switch {
	case strings.TrimSpace(name) != name:
		return fmt.Errorf("%q begins or ends with a space", name)
	case strings.ContainsFunc(name, func(r rune) bool { return r != utf8.RuneError && !unicode.IsGraphic(r) }):
		return fmt.Errorf("%+q has a control or format character", name)
	}
	return nil
}

// CheckLine checks a text for a log line.
func CheckLine(text string, maxBytes int) error {
	switch {
	case strings.ContainsFunc(text, unicode.IsControl):
		return errors.New("has a control character")
	case len(text) > maxBytes:
		return fmt.Errorf("has %d bytes, at most %d", len(text), maxBytes)
	case !utf8.ValidString(text):
		return errors.New("is not UTF-8")
	}
	return nil
}
