// Package goproxy writes modules of a git repository into a directory that the go command reads as a proxy (GOPROXY=file://DIR).
package goproxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// Module is one version of one module of a repository.
type Module struct {
	Repository string // directory of the repository
	Revision   string // a commit or tree of it
	Dir        string // directory of the module in it
	Version    string
	Time       time.Time // of the version, for the file .info
}

// Add writes m to the proxy in dir, instead of the version that was there, and returns the hash that a go.sum has for its zip file.
// The zip file has the content that the go command makes of the same revision.
func Add(dir string, m Module) (sum string, err error) {
	mod, err := goMod(m)
	if err != nil {
		return "", err
	}
	v := module.Version{Path: modfile.ModulePath(mod), Version: m.Version}
	if err := module.Check(v.Path, v.Version); err != nil {
		return "", err
	}
	versions, err := versionsDir(dir, v.Path)
	if err != nil {
		return "", err
	}
	subdir := m.Dir
	if subdir == "." {
		subdir = ""
	}
	var archive bytes.Buffer
	if err := zip.CreateFromVCS(&archive, v, m.Repository, m.Revision, subdir); err != nil {
		return "", fmt.Errorf("zip %s: %w", v, err)
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{v.Version, m.Time.UTC()})
	if err != nil {
		return "", err
	}
	base := filepath.Join(versions, v.Version)
	for suffix, content := range map[string][]byte{".info": info, ".mod": mod, ".zip": archive.Bytes()} {
		if err := os.WriteFile(base+suffix, content, 0o644); err != nil {
			return "", err
		}
	}
	if err := writeList(versions); err != nil {
		return "", err
	}
	return dirhash.HashZip(base+".zip", dirhash.Hash1)
}

// goMod returns the go.mod of m.
func goMod(m Module) ([]byte, error) {
	object := m.Revision + ":" + path.Join(m.Dir, "go.mod")
	out, err := exec.Command("git", "-C", m.Repository, "show", object).Output()
	if err != nil {
		return nil, fmt.Errorf("git show %s: %w", object, err)
	}
	return out, nil
}

// versionsDir creates the directory of the versions of a module.
func versionsDir(dir, modulePath string) (string, error) {
	escaped, err := module.EscapePath(modulePath)
	if err != nil {
		return "", err
	}
	versions := filepath.Join(dir, filepath.FromSlash(escaped), "@v")
	return versions, os.MkdirAll(versions, 0o755)
}

// writeList writes the file that names all versions.
func writeList(versions string) error {
	mods, err := fs.Glob(os.DirFS(versions), "*.mod")
	if err != nil {
		return err
	}
	var list bytes.Buffer
	for _, name := range mods {
		fmt.Fprintln(&list, name[:len(name)-len(".mod")])
	}
	return os.WriteFile(filepath.Join(versions, "list"), list.Bytes(), 0o644)
}
