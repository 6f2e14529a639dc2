package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"rota/release/internal/goproxy"
	"rota/release/internal/modules"
)

// listModules prints the path, directory and tag prefix of each released module.
func listModules(args []string) error {
	if len(args) != 1 {
		return errUsage
	}
	if err := modules.Check(args[0]); err != nil {
		return err
	}
	root, err := modules.Path(args[0])
	if err != nil {
		return err
	}
	for _, dir := range modules.Released {
		fmt.Println(modules.PathOf(root, dir), dir, modules.Tag(dir, ""))
	}
	return nil
}

// writeVersions changes a tree to that of a release, and adds its modules to a proxy on the way: go mod tidy in a module needs those
// that it requires. It leaves the changes in git's index.
func writeVersions(args []string) error {
	if len(args) != 3 {
		return errUsage
	}
	tree, version, proxy := args[0], args[1], args[2]
	if err := modules.Check(tree); err != nil {
		return err
	}
	if err := modules.WriteVersions(tree, version); err != nil {
		return err
	}
	for _, dir := range modules.Released {
		if err := command(filepath.Join(tree, dir), "go", "mod", "tidy"); err != nil {
			return fmt.Errorf("tidy %s: %w", dir, err)
		}
		if err := command(tree, "git", "add", "--all"); err != nil {
			return err
		}
		revision, err := output(tree, "git", "write-tree")
		if err != nil {
			return err
		}
		sum, err := goproxy.Add(proxy, goproxy.Module{Repository: tree, Revision: revision, Dir: dir, Version: version, Time: time.Now()})
		if err != nil {
			return err
		}
		fmt.Println(modules.Tag(dir, version), sum)
	}
	return nil
}

// fillProxy adds the tagged modules of a repository to a proxy, and fails if a go.sum has another sum for one of them.
func fillProxy(args []string) error {
	if len(args) != 3 {
		return errUsage
	}
	tree, version, proxy := args[0], args[1], args[2]
	root, err := modules.Path(tree)
	if err != nil {
		return err
	}
	sums := map[string]string{}
	for _, dir := range modules.Released {
		tag := modules.Tag(dir, version)
		seconds, err := output(tree, "git", "log", "-1", "--format=%cI", tag)
		if err != nil {
			return err
		}
		at, err := time.Parse(time.RFC3339, seconds)
		if err != nil {
			return err
		}
		sum, err := goproxy.Add(proxy, goproxy.Module{Repository: tree, Revision: tag, Dir: dir, Version: version, Time: at})
		if err != nil {
			return err
		}
		sums[modules.PathOf(root, dir)+" "+version+" "] = sum
		goSum, err := output(tree, "git", "show", tag+":"+filepath.ToSlash(filepath.Join(dir, "go.sum")))
		if err != nil {
			return err
		}
		if err := compareSums(goSum, sums); err != nil {
			return fmt.Errorf("%s: %w", tag, err)
		}
	}
	return nil
}

// compareSums fails if a line of a go.sum begins with a key of sums and ends with another sum.
func compareSums(goSum string, sums map[string]string) error {
	for line := range strings.Lines(goSum) {
		for prefix, sum := range sums {
			if rest, ok := strings.CutPrefix(line, prefix); ok && strings.TrimSpace(rest) != sum {
				return fmt.Errorf("go.sum has %s, and the module is %s", strings.TrimSpace(line), sum)
			}
		}
	}
	return nil
}

func command(dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stderr, os.Stderr
	return cmd.Run()
}

func output(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
