package importing

import (
	"encoding/json"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// plainScalar matches texts that YAML reads as the same string without quotes, except for reserved
// words.
var plainScalar = regexp.MustCompile(`^[A-Za-z_/][A-Za-z0-9_/.@+-]*( [A-Za-z0-9_/.@+-]+)*$`)

var reservedScalars = map[string]bool{
	"true": true, "false": true, "yes": true, "no": true, "on": true, "off": true, "y": true, "n": true, "null": true,
}

// scalar returns s as a YAML scalar within a line.
func scalar(s string) string {
	switch {
	case plainScalar.MatchString(s) && !reservedScalars[strings.ToLower(s)]:
		return s
	case !isPrintable(s):
		return doubleQuoted(s)
	case !strings.ContainsAny(s, `"\`):
		return `"` + s + `"`
	}
	return "'" + strings.ReplaceAll(s, "'", "''") + "'"
}

// doubleQuoted returns s with the escapes of JSON, which are those of YAML.
func doubleQuoted(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // no string fails
	}
	return strings.NewReplacer("\u007f", `\x7f`, "\u0085", `\N`, "\ufeff", `\uFEFF`).Replace(strings.TrimSpace(b.String()))
}

// block returns s as a block of lines below a key, or false if only a scalar in a line can hold it.
func block(s, indent string) (string, bool) {
	lines := strings.Split(s, "\n")
	if len(lines) == 1 || lines[0] == "" || strings.HasPrefix(lines[0], " ") || lines[len(lines)-1] == "" {
		return "", false
	}
	var b strings.Builder
	b.WriteString("|-")
	for _, line := range lines {
		if strings.HasPrefix(line, "\t") || !isPrintable(strings.ReplaceAll(line, "\t", " ")) {
			return "", false
		}
		b.WriteByte('\n')
		if line != "" {
			b.WriteString(indent + line)
		}
	}
	return b.String(), true
}

func isPrintable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError })
}

// commentWidth is the length of a line of a comment, in bytes, with its indentation.
const commentWidth = 100

// wrapComment returns text as lines that begin with first, then with rest.
func wrapComment(first, rest, text string) string {
	var b strings.Builder
	line := first
	empty := true
	for _, word := range strings.FieldsFunc(strings.ToValidUTF8(text, "?"), isBlank) {
		if !empty && len(line)+1+len(word) > commentWidth {
			b.WriteString(line + "\n")
			line, empty = rest, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	return b.String() + strings.TrimRight(line, " ") + "\n"
}

// isBlank reports whether r separates words: a comment must not hold a line break of any kind.
func isBlank(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) }
