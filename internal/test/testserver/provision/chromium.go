package provision

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// chromiumPackages contain a browser without a window, and fonts, so that pages look alike on each machine.
var chromiumPackages = []string{"chromium-headless-shell", "fonts-liberation", "fonts-dejavu-core"}

// Browser is a Chromium and what it needs to start.
type Browser struct {
	Path string
	Env  []string
	// Fonts is a directory of fonts, empty if those of the system are used.
	Fonts string
}

// Chromium returns a browser. log, which may be nil, receives a line about each slow step.
func Chromium(ctx context.Context, log io.Writer) (Browser, error) {
	if path := os.Getenv(ChromiumVariable); path != "" {
		if !isFile(path) {
			return Browser{}, fmt.Errorf("provide Chromium: no file at %s, the value of %s", path, ChromiumVariable)
		}
		return Browser{Path: path, Env: os.Environ()}, nil
	}
	if !ignoreSystem() {
		for _, name := range []string{"chromium-headless-shell", "chromium"} {
			if path, err := exec.LookPath(name); err == nil {
				return Browser{Path: path, Env: os.Environ()}, nil
			}
		}
	}
	root, err := Packages(ctx, log, "chromium", chromiumPackages...)
	if err != nil {
		return Browser{}, fmt.Errorf("provide Chromium: %w; %s can name a binary instead", err, ChromiumVariable)
	}
	path := filepath.Join(root, "usr/lib/chromium/chromium-headless-shell")
	if !isFile(path) {
		return Browser{}, fmt.Errorf("provide Chromium: no file at %s", path)
	}
	return Browser{Path: path, Env: Environment(root, "pulseaudio"), Fonts: filepath.Join(root, "usr/share/fonts")}, nil
}
