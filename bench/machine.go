package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// machine describes the place of a measurement.
type machine struct {
	CPU    string        `json:"cpu"`
	Cores  int           `json:"cores"`
	Memory string        `json:"memory"`
	Kernel string        `json:"kernel"`
	Sync   time.Duration `json:"sync"` // median time to append 2 KiB to a file and sync it
}

func describeMachine() (machine, error) {
	sync, err := measureSync(os.TempDir(), 50)
	if err != nil {
		return machine{}, fmt.Errorf("measure fsync: %w", err)
	}
	return machine{
		CPU:    fieldOf("/proc/cpuinfo", "model name"),
		Cores:  runtime.NumCPU(),
		Memory: fieldOf("/proc/meminfo", "MemTotal"),
		Kernel: readLine("/proc/sys/kernel/osrelease"),
		Sync:   sync,
	}, nil
}

// measureSync returns the median of n times to append to a file and sync it.
func measureSync(dir string, n int) (time.Duration, error) {
	f, err := os.CreateTemp(dir, "rota-bench-sync")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var all []time.Duration
	for range n {
		began := time.Now()
		if _, err := f.Write(make([]byte, 2<<10)); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		all = append(all, time.Since(began))
	}
	return quantile(all, 0.5), nil
}

// fieldOf returns the value of the first "name: value" line, or "".
func fieldOf(path, name string) string {
	b, _ := os.ReadFile(path)
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func readLine(path string) string {
	b, _ := os.ReadFile(path)
	return strings.TrimSpace(string(b))
}

// loadAverage returns the load average of the last minute, or 0 if the system has none.
func loadAverage() float64 {
	var load float64
	_, _ = fmt.Sscan(readLine("/proc/loadavg"), &load)
	return load
}

// versions returns the commit of the working tree and the versions of the modules in this program that
// a measurement depends on.
func versions() map[string]string {
	v := map[string]string{"go": runtime.Version(), "rota": commit()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, m := range info.Deps {
		if name, ok := shownModules[m.Path]; ok {
			v[name] = m.Version
		}
	}
	return v
}

// shownModules are the modules whose versions a result has, with the names to show.
var shownModules = map[string]string{
	"go.etcd.io/etcd/client/v3":                "etcd client",
	"github.com/go-zookeeper/zk":               "go-zookeeper",
	"github.com/go-co-op/gocron/v2":            "gocron",
	"github.com/go-co-op/gocron-redis-lock/v2": "gocron-redis-lock",
	"github.com/libi/dcron":                    "dcron",
	"github.com/hibiken/asynq":                 "asynq",
	"github.com/riverqueue/river":              "river",
}

func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--exclude=*").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// tempDir returns a new directory and a function that removes it.
func tempDir() (dir string, remove func(), err error) {
	dir, err = os.MkdirTemp("", "rota-bench-")
	return filepath.Clean(dir), func() { _ = os.RemoveAll(dir) }, err
}
