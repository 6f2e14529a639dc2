// Command release has the steps of the scripts beside it that are more than a few lines.
package main

import (
	"errors"
	"fmt"
	"os"
)

// step is one step of a script. It gets the arguments after its name.
type step struct {
	usage string
	run   func(args []string) error
}

var steps = map[string]step{
	"modules":  {"TREE", listModules},
	"versions": {"TREE VERSION PROXY", writeVersions},
	"proxy":    {"TREE VERSION PROXY", fillProxy},
	"verify":   {"TREE VERSION PROXY ETCD WORK", verifyRelease},
	"licences": {"TREE write|check", writeLicences},
	"notices":  {"BINARY ROOT GOMODCACHE GOROOT FILE", writeNotices},
	"archive":  {"FILE TOP SECONDS BINARY TEXT...", packArchive},
	"image":    {"FILE SECONDS VERSION COMMIT SOURCE ZONEINFO ARCH=BINARY=COPYRIGHT...", packImage},
	"deb":      {"FILE SECONDS ARCH VERSION BINARY UNIT COPYRIGHT SCRIPTS HOMEPAGE", packDeb},
}

var errUsage = errors.New("wrong arguments")

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	s, ok := steps[args[0]]
	if !ok {
		return fmt.Errorf("no step %q", args[0])
	}
	err := s.run(args[1:])
	if errors.Is(err, errUsage) {
		return fmt.Errorf("%w: %s %s", err, args[0], s.usage)
	}
	return err
}
