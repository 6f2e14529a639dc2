package verify

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// example is one directory below examples/.
type example struct {
	name string
	args []string // ETCD and DIR are replaced by the address of a store and an empty directory
	how  how
}

// how is the way in which a program is run.
type how int

const (
	ends  how = iota // ends by itself
	stops            // runs until SIGTERM
	tests            // a package that has tests only
)

var examples = []example{
	{"first", nil, stops},
	{"settle", nil, stops},
	{"status", []string{"ETCD", "billing", "settle"}, ends},
	{"settlement", nil, ends},
	{"guarded", nil, tests},
	{"shipper", nil, ends},
	{"consumer", []string{"DIR"}, stops},
	{"daemon", nil, ends},
	{"caller", nil, ends},
	{"backup", nil, ends},
	{"fromcron", nil, stops},
	{"stores", nil, ends},
	{"mapstore", nil, tests},
	{"sqlstore", nil, tests},
}

// runTime is how long a program runs that does not end by itself.
const runTime = 5 * time.Second

// exampleStore is the address of etcd that programs have.
const exampleStore = "127.0.0.1:2379"

// example copies an example to a module of its own, builds it, runs it and its tests. Tests of packages that only the repository has
// stay behind.
func (v *verification) example(ctx context.Context, e example) error {
	dir := filepath.Join(v.Work, "examples", e.name)
	without, err := v.copyExample(e, dir)
	if err != nil {
		return err
	}
	if err := v.makeModule(ctx, e, dir); err != nil {
		return err
	}
	if len(without) > 0 {
		fmt.Fprintf(v.Out, "examples/%s: without %s, which import internal packages\n", e.name, strings.Join(without, " and "))
	}
	if err := v.run(ctx, dir, "go", "test", "-vet=off", "./..."); err != nil || e.how == tests {
		return err
	}
	if err := v.run(ctx, dir, "go", "build", "-o", "program", "."); err != nil {
		return err
	}
	program := filepath.Join(dir, "program")
	args := make([]string, len(e.args))
	for i, arg := range e.args {
		args[i] = strings.NewReplacer("ETCD", v.store, "DIR", v.Work).Replace(arg)
	}
	if e.how == stops {
		return v.terminate(ctx, runTime, dir, program, args...)
	}
	return v.run(ctx, dir, program, args...)
}

// copyExample copies the files of an example, and returns the names of the tests that it leaves out. The copy imports its own packages
// by its own path, and those of other examples from the release.
func (v *verification) copyExample(e example, dir string) (without []string, err error) {
	return v.copyFiles(e.name, filepath.Join(v.Tree, "examples", e.name), dir)
}

// copyFiles copies the files of a directory of an example, and of those below it.
func (v *verification) copyFiles(name, from, dir string) (without []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	files, err := os.ReadDir(from)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if file.IsDir() {
			below, err := v.copyFiles(name, filepath.Join(from, file.Name()), filepath.Join(dir, file.Name()))
			if err != nil {
				return nil, err
			}
			without = append(without, below...)
			continue
		}
		text, err := os.ReadFile(filepath.Join(from, file.Name()))
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(file.Name(), "_test.go") && bytes.Contains(text, []byte(`"`+v.Module+"/internal/")) {
			without = append(without, file.Name())
			continue
		}
		text = bytes.ReplaceAll(text, []byte(exampleStore), []byte(v.store))
		text = bytes.ReplaceAll(text, []byte(v.Module+"/examples/"+name), []byte("example.org/"+name))
		if err := os.WriteFile(filepath.Join(dir, file.Name()), text, 0o644); err != nil {
			return nil, err
		}
	}
	return without, nil
}

// makeModule makes a module of dir that requires the release.
func (v *verification) makeModule(ctx context.Context, e example, dir string) error {
	if text, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil {
		for _, module := range []string{v.Module, v.Module + "/registry/postgres"} {
			if !bytes.Contains(text, []byte("replace "+module+" ")) {
				continue
			}
			if err := v.run(ctx, dir, "go", "mod", "edit", "-dropreplace="+module, "-require="+module+"@"+v.Version); err != nil {
				return err
			}
		}
	} else {
		if err := v.run(ctx, dir, "go", "mod", "init", "example.org/"+e.name); err != nil {
			return err
		}
		if err := v.run(ctx, dir, "go", "mod", "edit", "-require="+v.Module+"@"+v.Version); err != nil {
			return err
		}
	}
	return v.run(ctx, dir, "go", "mod", "tidy")
}

// jobsFile runs the jobs file of the examples by the installed command.
func (v *verification) jobsFile(ctx context.Context) error {
	file := filepath.Join(v.Work, "jobs.yaml")
	if err := copyFile(filepath.Join(v.Tree, "examples/jobs.yaml"), file); err != nil {
		return err
	}
	args := []string{"run", file}
	if os.Geteuid() == 0 {
		args = append(args, "--allow-root")
	}
	return v.terminate(ctx, runTime, v.Work, v.rota(), args...)
}

// startEtcd starts a store by the installed command.
func (v *verification) startEtcd(ctx context.Context) (stop func(), err error) {
	cmd := exec.CommandContext(ctx, v.rota(), "dev", "etcd")
	cmd.Dir, cmd.Env, cmd.Stderr = v.Work, append(v.env, "ROTA_ETCD="+v.Etcd), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_, address, found := strings.Cut(line, "etcd://")
	if err != nil || !found {
		stop()
		return nil, fmt.Errorf("rota dev etcd printed %q: %w", line, err)
	}
	v.store = strings.TrimSpace(address)
	return stop, nil
}
