package importing

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"strings"
	"unicode"
)

// maxDerivedName bounds derived names, in bytes; a name of a job may have 100.
const maxDerivedName = 60

var (
	assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
	// wrappers are programs that run another, with the number of arguments before it that are neither
	// options nor amounts.
	wrappers = map[string]int{
		"sudo": 0, "nice": 0, "ionice": 0, "env": 0, "exec": 0, "nohup": 0, "time": 0, "command": 0, "chronic": 0,
		"timeout": 0, "chrt": 0, "flock": 1,
		"sh": 0, "bash": 0, "dash": 0, "zsh": 0, "python": 0, "php": 0, "perl": 0, "ruby": 0, "node": 0,
	}
	// amount is an argument such as a priority or a duration.
	amount = regexp.MustCompile(`^[0-9.]+[a-z]?$`)
)

// deriveName returns a name for a command: the program that does the work.
func deriveName(command string) string {
	command, _ = splitInput(command)
	name := ""
	for part := range strings.FieldsFuncSeq(command, func(r rune) bool { return strings.ContainsRune("&|;(){}<>", r) }) {
		words := strings.Fields(part)
		if len(words) == 0 || isPreparation(words[0]) {
			continue
		}
		if name = programName(words); name != "" {
			break
		}
	}
	return cmp.Or(sanitizeName(name), "job")
}

// isPreparation reports whether a command only prepares for the one that does the work.
func isPreparation(word string) bool {
	switch word {
	case "cd", "test", "[", "[[", ".", "source", "set", "export", "umask", "ulimit", "sleep", "if", "then", "!", "exit", "true", "false":
		return true
	}
	return false
}

// programName returns the program that the words run.
func programName(words []string) string {
	program := ""
	skip := 0
	for _, word := range words {
		word = strings.Trim(word, `'"`)
		switch {
		case word == "-u" || word == "-g": // of sudo
			skip++
			continue
		case assignment.MatchString(word) || strings.HasPrefix(word, "-") || amount.MatchString(word):
			continue
		case skip > 0:
			skip--
			continue
		}
		program = strings.TrimSuffix(path.Base(word), path.Ext(word))
		arguments, ok := wrappers[strings.TrimRight(path.Base(word), "0123456789.")]
		if !ok {
			return program
		}
		skip = arguments
	}
	return program
}

// sanitizeName keeps letters and digits, in lower case, and joins them by "-".
func sanitizeName(s string) string {
	words := strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	name := strings.Join(words, "-")
	for len(name) > maxDerivedName {
		name = name[:strings.LastIndexFunc(name, func(rune) bool { return true })]
	}
	return name
}

// uniqueName returns name, with a number if it has been used, and counts it.
func uniqueName(used map[string]int, name string) string {
	unique := name
	for used[unique] > 0 {
		used[name]++
		unique = fmt.Sprintf("%s-%d", name, used[name])
	}
	used[unique]++
	return unique
}
