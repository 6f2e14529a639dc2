package provision

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const javaPackage = "openjdk-17-jre-headless"

// Java returns the path of a java binary. log, which may be nil, receives a line about
// each slow step.
func Java(ctx context.Context, log io.Writer) (string, error) {
	if path := os.Getenv(JavaVariable); path != "" {
		if !isFile(path) {
			return "", fmt.Errorf("provide Java: no file at %s, the value of %s", path, JavaVariable)
		}
		return path, nil
	}
	if !ignoreSystem() {
		if path := systemJava(); path != "" {
			return path, nil
		}
	}
	root, err := cachedPackages(ctx, log, "java", []string{javaPackage}, func(root string) error {
		if _, err := javaBelow(root); err != nil {
			return err
		}
		return relink(root)
	})
	if err != nil {
		return "", fmt.Errorf("provide Java: %w; %s can name a binary instead", err, JavaVariable)
	}
	return javaBelow(root)
}

func systemJava() string {
	if home := os.Getenv("JAVA_HOME"); home != "" {
		if path := filepath.Join(home, "bin", "java"); isFile(path) {
			return path
		}
	}
	path, err := exec.LookPath("java")
	if err != nil {
		return ""
	}
	return path
}

func javaBelow(root string) (string, error) {
	pattern := filepath.Join(root, "usr/lib/jvm/*/bin/java")
	found, err := filepath.Glob(pattern)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("no file matches %s", pattern)
	}
	if err != nil {
		return "", err
	}
	return found[0], nil
}

// relink makes absolute links relative if they lead out of root, to the configuration
// that the package would install, so that they lead to the extracted files even after
// root is moved.
func relink(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type() != fs.ModeSymlink {
			return err
		}
		target, err := os.Readlink(path)
		if err != nil || !filepath.IsAbs(target) || strings.HasPrefix(target, root) {
			return err
		}
		relative, err := filepath.Rel(filepath.Dir(path), filepath.Join(root, target))
		if err != nil {
			return err
		}
		if err := os.Remove(path); err != nil {
			return err
		}
		return os.Symlink(relative, path)
	})
}
