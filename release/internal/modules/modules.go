// Package modules writes the versions of a release into the modules of a tree.
package modules

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// Released lists the directories of the modules that a release tags. A module stands after those that it requires, since its go.sum
// has their sums.
var Released = []string{".", "registry/postgres", "rotaprom", "rotaotel", "web", "cmd/rota"}

// unreleased lists the directories of the other modules: tests, measurements, examples and tools, which are used in a checkout
// only. They keep their local replaces.
var unreleased = []string{
	"bench", "examples/settlement", "examples/sqlstore", "history/sqltest", "internal/tools", "internal/tools/...", "release",
	"rotaprom/alertstest", "web/browsertest",
}

// Path returns the module path of the root of the tree.
func Path(tree string) (string, error) {
	text, err := os.ReadFile(filepath.Join(tree, "go.mod"))
	if err != nil {
		return "", err
	}
	if p := modfile.ModulePath(text); p != "" {
		return p, nil
	}
	return "", fmt.Errorf("%s: no module line", filepath.Join(tree, "go.mod"))
}

// Tag returns the tag of the module in dir: modules below the root have their directory before the version.
func Tag(dir, version string) string {
	if dir == "." {
		return version
	}
	return dir + "/" + version
}

// Check fails if the tree has a module that is in neither list, or lacks one that is to be released.
func Check(tree string) error {
	found, err := find(tree)
	if err != nil {
		return err
	}
	var problems []error
	for _, dir := range found {
		if !slices.Contains(Released, dir) && !isUnreleased(dir) {
			problems = append(problems, fmt.Errorf("%s/go.mod: add the module to Released or unreleased in release/internal/modules", dir))
		}
	}
	for _, dir := range Released {
		if !slices.Contains(found, dir) {
			problems = append(problems, fmt.Errorf("%s/go.mod: missing, and the module is to be released", dir))
		}
	}
	return errors.Join(problems...)
}

func isUnreleased(dir string) bool {
	return slices.ContainsFunc(unreleased, func(pattern string) bool {
		below, ok := strings.CutSuffix(pattern, "...")
		return dir == pattern || ok && strings.HasPrefix(dir, below)
	})
}

// find returns the directories of all modules of the tree, in lexical order.
func find(tree string) (dirs []string, err error) {
	err = filepath.WalkDir(tree, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if d.Name() == "go.mod" {
			rel, err := filepath.Rel(tree, filepath.Dir(p))
			dirs = append(dirs, filepath.ToSlash(rel))
			return err
		}
		return nil
	})
	return dirs, err
}

// WriteVersions makes each module of the tree require the others at version. Those that are released lose their local replaces.
// The workspace replaces the same version, so that a checkout of the release builds from its own directories.
func WriteVersions(tree, version string) error {
	root, err := Path(tree)
	if err != nil {
		return err
	}
	found, err := find(tree)
	if err != nil {
		return err
	}
	for _, dir := range found {
		if err := writeModule(filepath.Join(tree, dir, "go.mod"), root, version, slices.Contains(Released, dir)); err != nil {
			return err
		}
	}
	return writeWorkspace(filepath.Join(tree, "go.work"), root, version)
}

func writeModule(file, root, version string, released bool) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	mod, err := modfile.Parse(file, text, nil)
	if err != nil {
		return err
	}
	for _, r := range slices.Clone(mod.Require) {
		if isLocal(r.Mod.Path, root) {
			if err := mod.AddRequire(r.Mod.Path, version); err != nil {
				return err
			}
		}
	}
	for _, r := range slices.Clone(mod.Replace) {
		if released && isLocal(r.Old.Path, root) {
			if err := mod.DropReplace(r.Old.Path, r.Old.Version); err != nil {
				return err
			}
		}
	}
	mod.Cleanup()
	return os.WriteFile(file, modfile.Format(mod.Syntax), 0o644)
}

func writeWorkspace(file, root, version string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	work, err := modfile.ParseWork(file, text, nil)
	if err != nil {
		return err
	}
	for _, r := range work.Replace {
		// The version stands after the path, in a block or in a line of its own.
		if i := slices.Index(r.Syntax.Token, r.Old.Path); isLocal(r.Old.Path, root) && i >= 0 && r.Old.Version != "" {
			r.Syntax.Token[i+1] = version
		}
	}
	return os.WriteFile(file, modfile.Format(work.Syntax), 0o644)
}

func isLocal(module, root string) bool {
	return module == root || strings.HasPrefix(module, root+"/")
}

// PathOf returns the path of the module in dir.
func PathOf(root, dir string) string { return path.Join(root, dir) }
