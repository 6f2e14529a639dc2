// Package licences lists the licences of the modules that are linked into programs.
package licences

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// allowed lists the licences that do not bind those who use the library.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSD-3-Clause-NoEndorsement", "ISC", "MIT", "Unlicense"}

// allowedInPrograms lists the licences that bind those who change the files of the module. Nothing that users import may link them.
var allowedInPrograms = []string{"MPL-2.0"}

// programs lists the directories of modules that nobody imports.
var programs = []string{"cmd/rota"}

// linked is a module that packages of the tree import.
type linked struct{ path, version, dir string }

// Page returns a page with the modules that each module in dirs links on any platform, without those of the tree itself.
func Page(tree, root string, dirs, platforms []string) (string, error) {
	users := map[linked][]string{}
	for _, dir := range dirs {
		for _, platform := range platforms {
			modules, err := list(filepath.Join(tree, dir), root, platform)
			if err != nil {
				return "", err
			}
			for _, m := range modules {
				if !slices.Contains(users[m], dir) {
					users[m] = append(users[m], dir)
				}
			}
		}
	}
	var rows []string
	var problems []error
	for m, by := range users {
		licence, err := read(m.dir, slices.Equal(by, programs))
		if err != nil {
			problems = append(problems, fmt.Errorf("%s %s: %w", m.path, m.version, err))
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s |\n", m.path, m.version, licence, strings.Join(by, ", ")))
	}
	slices.Sort(rows)
	return header + strings.Join(rows, ""), errors.Join(problems...)
}

const header = `# Licences

The modules that packages of the released modules link, on any platform, without their tests. "." is the library. ` + "`release/licences`" + ` writes this
page, and ` + "`release/licences --check`" + ` compares it and refuses licences that bind those who use the library.

| module | version | licence | linked by |
|---|---|---|---|
`

// list returns the modules of others that the packages in dir import, also indirectly. Test machinery is not linked.
func list(dir, root, platform string) (modules []linked, err error) {
	system, arch, _ := strings.Cut(platform, "/")
	patterns, err := packages(dir)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("go", append([]string{"list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}} {{.Dir}}{{end}}"}, patterns...)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w", dir, err)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] == root || strings.HasPrefix(f[0], root+"/") {
			continue
		}
		if m := (linked{f[0], f[1], f[2]}); !slices.Contains(modules, m) {
			modules = append(modules, m)
		}
	}
	return modules, nil
}

// packages returns the packages in dir without those that only tests and measurements import.
func packages(dir string) (all []string, err error) {
	cmd := exec.Command("go", "list", "./...")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=")
	out, err := cmd.Output()
	for p := range strings.FieldsSeq(string(out)) {
		if !strings.Contains(p, "/internal/") && !strings.Contains(p, "/examples/") && !strings.Contains(p, "/conformance") {
			all = append(all, p)
		}
	}
	return all, err
}

// read returns the licences of the module in dir, and an error if one is not allowed.
func read(dir string, inPrograms bool) (string, error) {
	var found []string
	files, err := licenceFiles(dir)
	if err != nil {
		return "", err
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		for _, match := range licensecheck.Scan(text).Match {
			if !slices.Contains(found, match.ID) {
				found = append(found, match.ID)
			}
		}
	}
	slices.Sort(found)
	licence := strings.Join(found, ", ")
	if len(found) == 0 {
		return "unknown", errors.New("no licence found")
	}
	for _, id := range found {
		if !slices.Contains(allowed, id) && !(inPrograms && slices.Contains(allowedInPrograms, id)) {
			return licence, fmt.Errorf("licence %s is not allowed", id)
		}
	}
	return licence, nil
}

// licenceFiles returns the files with licences in a directory.
func licenceFiles(dir string) (files []string, err error) {
	for _, pattern := range []string{"LICENSE*", "LICENCE*", "COPYING*", "License*", "UNLICENSE*"} {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, err
		}
		files = append(files, names...)
	}
	return files, nil
}
