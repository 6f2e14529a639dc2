package fleet

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// BuildBase builds the command chaos of a commit of this repository, which is the program of a version that a fleet has beside this one.
// chaos is its directory in the repository. The program is in dir and has the commit's name.
//
// It takes the history from the repository of the working directory, and fails if that lacks the commit.
func BuildBase(ctx context.Context, commit, chaos, dir string) (program string, err error) {
	root, err := output(ctx, ".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return "", fmt.Errorf("build base %s: no repository: %w", commit, err)
	}
	repository := strings.TrimSpace(string(root))
	if _, err := output(ctx, repository, "git", "cat-file", "-e", commit+"^{commit}"); err != nil {
		return "", fmt.Errorf("build base %s: the history has no such commit; in a shallow clone, git fetch --unshallow adds it", commit)
	}
	source := filepath.Join(dir, "source")
	files, err := output(ctx, repository, "git", "archive", commit)
	if err == nil {
		err = unpack(files, source)
	}
	if err != nil {
		return "", fmt.Errorf("build base %s: %w", commit, err)
	}
	program = filepath.Join(dir, commit)
	build := exec.CommandContext(ctx, "go", "build", "-o", program, ".")
	build.Dir = filepath.Join(source, chaos)
	build.Env = append(os.Environ(), "GOWORK=", "GOFLAGS=-mod=readonly") // its own go.work, of which it needs the modules
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build base %s: %w: %s", commit, err, out)
	}
	return program, os.RemoveAll(source)
}

// output returns the standard output of a command, and has its standard error in the error.
func output(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	return out, err
}

// unpack writes the files of a tar archive below a directory.
func unpack(archive []byte, dir string) error {
	for all := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := all.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(path, 0o700)
		case tar.TypeReg:
			var content []byte
			if content, err = io.ReadAll(all); err == nil {
				err = os.WriteFile(path, content, 0o600)
			}
		}
		if err != nil {
			return err
		}
	}
}

// roll replaces each process by one of the same version, in random order: of this version if most are of the base, else of the
// base. Every other one is killed, and so is another process at times, while the versions are mixed; that one keeps its version.
func (f *Faults) roll(ctx context.Context) error {
	old := 0
	for _, base := range f.ofBase {
		if base {
			old++
		}
	}
	down := 2*old < f.Instances
	f.noteFault("roll the fleet %s", map[bool]string{true: "down to the base", false: "up to this version"}[down])
	what := f.LastFault
	for i, slot := range f.Rand.Perm(f.Instances) {
		if err := f.rollOne(ctx, slot, down); err != nil {
			return err
		}
		if i < f.Instances-1 && f.Rand.IntN(2) == 0 {
			other := f.Rand.IntN(f.Instances)
			if err := f.killAndReplace(ctx, other, f.ofBase[other]); err != nil {
				return err
			}
		}
	}
	f.LastFault = what
	return nil
}

// rollOne replaces a process, which leaves or is killed.
func (f *Faults) rollOne(ctx context.Context, slot int, base bool) error {
	if f.Rand.IntN(2) == 0 {
		return f.killAndReplace(ctx, slot, base)
	}
	p := f.Process(slot)
	f.addNote("%s leaves", f.describe(p))
	if err := p.Leave(leaving); err != nil {
		return err
	}
	if err := f.replaceBy(slot, base); err != nil {
		return err
	}
	return f.awaitWhole(ctx)
}

// killAndReplace kills a process and starts another at once, beside the session of the first.
func (f *Faults) killAndReplace(ctx context.Context, slot int, base bool) error {
	f.suspendPromises()
	p := f.Process(slot)
	id, err := f.liveSession(p)
	if err != nil {
		return err
	}
	f.addNote("kill %s", f.describe(p))
	p.Kill()
	if err := f.replaceBy(slot, base); err != nil {
		return err
	}
	if _, err := f.awaitSessionEnd(ctx, id); err != nil {
		return err
	}
	return f.awaitWhole(ctx)
}
