package provision

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

const etcdPackage = "go.etcd.io/etcd/server/v3"

// etcdModule is the path of the module below the repository's root.
const etcdModule = "internal/tools/etcd"

// Etcd returns the path of an etcd binary. log, which may be nil, receives a line about
// each slow step.
func Etcd(ctx context.Context, log io.Writer) (string, error) {
	if path := os.Getenv(EtcdVariable); path != "" {
		if !isFile(path) {
			return "", fmt.Errorf("provide etcd: no file at %s, the value of %s", path, EtcdVariable)
		}
		return path, nil
	}
	path, err := buildEtcd(ctx, log)
	if err != nil {
		return "", fmt.Errorf("provide etcd: %w; %s can name a binary instead", err, EtcdVariable)
	}
	return path, nil
}

// buildEtcd returns the etcd that the repository pins, so that all tests run on one version. Outside of a checkout it
// returns that of the system.
func buildEtcd(ctx context.Context, log io.Writer) (string, error) {
	module, err := findEtcdModule()
	if err != nil {
		if path, err := exec.LookPath("etcd"); err == nil && os.Getenv(IgnoreSystemVariable) == "" {
			return path, nil
		}
		return "", fmt.Errorf("%w, and no etcd in PATH", err)
	}
	key := []string{runtime.Version(), runtime.GOOS, runtime.GOARCH}
	for _, file := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(module, file))
		if err != nil {
			return "", err
		}
		key = append(key, string(b))
	}
	dir, err := cached(ctx, log, "etcd-"+digest(key...), "building etcd", func(ctx context.Context, dir string) error {
		env := []string{"GOWORK=off", "GOFLAGS=-mod=readonly", "CGO_ENABLED=0", "GOOS=", "GOARCH="}
		return retry(ctx, func() error {
			return runCommand(ctx, module, env, "go", "build", "-trimpath", "-ldflags=-s -w",
				"-o", filepath.Join(dir, "etcd"), etcdPackage)
		})
	})
	return filepath.Join(dir, "etcd"), err
}

// findEtcdModule searches the working directory and its parents. That works for tests,
// which run in the directory of their package, and for go run.
func findEtcdModule() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		module := filepath.Join(dir, filepath.FromSlash(etcdModule))
		mod, err := os.ReadFile(filepath.Join(module, "go.mod"))
		if err == nil && strings.Contains(string(mod), etcdPackage) {
			return module, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("not in a checkout of the repository: no " + etcdModule + " above " + start)
		}
	}
}
