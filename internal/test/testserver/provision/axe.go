package provision

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// axe-core checks the accessibility of pages. The hash is the registry's, of the packed package.
const (
	axePackage   = "axe-core@4.14.1"
	axeIntegrity = "sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
	axeFile      = "package/axe.min.js"
)

// maxPackage bounds a package and a file in it.
const maxPackage = 64 << 20

// Axe returns the path of axe-core's script. log, which may be nil, receives a line about each slow step.
func Axe(ctx context.Context, log io.Writer) (string, error) {
	if path := os.Getenv(AxeVariable); path != "" {
		if !isFile(path) {
			return "", fmt.Errorf("provide axe-core: no file at %s, the value of %s", path, AxeVariable)
		}
		return path, nil
	}
	dir, err := cached(ctx, log, "axe-"+digest(axePackage, axeIntegrity), "downloading axe-core", func(ctx context.Context, dir string) error {
		packed, err := packNPM(ctx, dir, axePackage)
		if err != nil {
			return err
		}
		script, err := unpackFile(packed, axeIntegrity, axeFile)
		if err != nil {
			return fmt.Errorf("%s: %w", axePackage, err)
		}
		return os.WriteFile(filepath.Join(dir, filepath.Base(axeFile)), script, 0o600)
	})
	if err != nil {
		return "", fmt.Errorf("provide axe-core: %w; %s can name its script instead", err, AxeVariable)
	}
	return filepath.Join(dir, filepath.Base(axeFile)), nil
}

// packNPM downloads a package of npm. None of its scripts run.
func packNPM(ctx context.Context, dir, name string) ([]byte, error) {
	work := filepath.Join(dir, "npm")
	defer os.RemoveAll(work)
	if err := os.Mkdir(work, 0o700); err != nil {
		return nil, err
	}
	err := retry(ctx, func() error {
		return runCommand(ctx, work, nil, "npm", "pack", "--ignore-scripts", "--silent", "--cache", filepath.Join(work, "cache"), name)
	})
	if err != nil {
		return nil, err
	}
	found, err := filepath.Glob(filepath.Join(work, "*.tgz"))
	if err != nil {
		return nil, err
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("npm pack %s wrote %d packages", name, len(found))
	}
	return os.ReadFile(found[0])
}

// unpackFile returns a file of a package, whose hash must be integrity.
func unpackFile(packed []byte, integrity, name string) ([]byte, error) {
	sum := sha512.Sum512(packed)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum[:]); got != integrity {
		return nil, fmt.Errorf("the hash of the package is %s, not %s", got, integrity)
	}
	zip, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	for files := tar.NewReader(zip); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("the package has no file %s", name)
		}
		if err != nil {
			return nil, err
		}
		if h.Name == name {
			return io.ReadAll(io.LimitReader(files, maxPackage))
		}
	}
}
