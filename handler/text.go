package handler

import (
	"fmt"
	"strings"
	"unicode"
)

// maxTail bounds the output of a program and the body of a response in an error.
const maxTail = 4 << 10

// maxExcerpt bounds the line of either in the text of an error, of which the records of a job
// keep 200 bytes.
const maxExcerpt = 120

// excerpt returns a line for the text of an error, or "". It has no control characters, which
// could forge lines of a log or reach a terminal.
func excerpt(line string) string {
	line = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(line, "?"))
	line = strings.TrimSpace(line)
	if len(line) > maxExcerpt {
		line = strings.ToValidUTF8(line[:maxExcerpt], "") + "..."
	}
	return line
}

// lastPart returns the part of a line that a terminal would show: progress is often written over
// and over, after carriage returns.
func lastPart(line string) string {
	line = strings.TrimRight(line, "\r")
	return line[strings.LastIndexByte(line, '\r')+1:]
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// addExcerpt appends the excerpt of a line to the text of an error.
func addExcerpt(text, line string) string {
	if line = excerpt(line); line != "" {
		return text + ": " + line
	}
	return text
}

// fieldError returns a problem of a field.
func fieldError(field string, problem error) error { return fmt.Errorf("%s: %w", field, problem) }
