package licences

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/module"
)

// Notices returns the licences and notices of the modules that are linked into a binary, and of Go, which must go with it. cache is the
// directory of modules (GOMODCACHE), goroot that of Go. Modules whose paths begin with root are left out.
func Notices(binary, root, cache, goroot string) (string, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	if err := appendNotices(&out, "Go "+info.GoVersion, goroot); err != nil {
		return "", err
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if m.Path == root || strings.HasPrefix(m.Path, root+"/") {
			continue
		}
		path, err := module.EscapePath(m.Path)
		if err != nil {
			return "", err
		}
		version, err := module.EscapeVersion(m.Version)
		if err != nil {
			return "", err
		}
		if err := appendNotices(&out, m.Path+" "+m.Version, filepath.Join(cache, path+"@"+version)); err != nil {
			return "", err
		}
	}
	return out.String(), nil
}

// appendNotices appends the texts in a directory. It is an error if there are none.
func appendNotices(out *strings.Builder, name, dir string) error {
	files, err := licenceFiles(dir)
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s: no licence in %s", name, dir)
	}
	if err != nil {
		return err
	}
	notices, err := filepath.Glob(filepath.Join(dir, "NOTICE*"))
	if err != nil {
		return err
	}
	for _, file := range append(files, notices...) {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "==== %s: %s\n\n%s\n\n", name, filepath.Base(file), strings.TrimSpace(string(text)))
	}
	return nil
}
