package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/jobsfile"
	"github.com/rota-dev/rota/cmd/rota/internal/ownfile"
	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/internal/secret"
	"github.com/rota-dev/rota/registry"
)

// options are the flags of run, and its dependencies, which tests replace.
type options struct {
	file                       string
	registry, namespace, group string
	revision                   int // below 0: that of the file
	instance, host             string
	workers, weight            int
	labels                     map[string]string
	sessionTTL                 time.Duration
	drainTimeout, restartGrace time.Duration
	waitForStore               time.Duration // zero: one attempt to connect
	listen, pprof              string
	pprofRemote                bool
	allowRoot, asInit          bool
	logFormat, logLevel        string

	schemes registryurl.Schemes
	clock   func() time.Time // of day; nil: time.Now
	log     *slog.Logger
	secrets *secret.Masker // of all texts that leave the process
	signals <-chan os.Signal
	exit    func(code int) // ends the process at once
	uid     int
	env     []string
}

// getenv returns a variable of the environment, "" if it is not set.
func (o *options) getenv(name string) string {
	value, _ := o.lookupEnv(name)
	return value
}

func (o *options) lookupEnv(name string) (value string, ok bool) {
	for _, entry := range o.env {
		if v, found := strings.CutPrefix(entry, name+"="); found {
			value, ok = v, true // the later of two entries applies
		}
	}
	return value, ok
}

// hostOfRun returns the host for rota run: programs and secrets must exist on an instance that may run their jobs.
func (o *options) hostOfRun() jobsfile.Host {
	labels := o.labels
	if labels == nil {
		labels = map[string]string{} // nil would mean all
	}
	return jobsfile.Host{
		ReadFile: os.ReadFile, LookupEnv: o.lookupEnv, Environ: o.env, Programs: true, Labels: labels, Logger: o.log, Schemes: o.schemes, Secrets: o.secrets,
	}
}

// ownFile returns the jobs file at a path, which determines the programs that a process of a user runs.
func ownFile(path string, uid int) ownfile.File {
	return ownfile.File{Path: path, Determines: "which programs run here", UID: uid, MaxBytes: jobsfile.MaxBytes}
}

// load reads the file and applies the flags. The registry of a fleet needs a check of revisions that
// a reload adds.
func (o *options) load() (*jobsfile.File, error) {
	content, err := ownFile(o.file, o.uid).Read()
	if err != nil {
		return nil, err
	}
	f, err := jobsfile.Load(o.file, content, o.hostOfRun())
	if err != nil {
		return nil, err
	}
	if len(f.Jobs)+len(f.Kinds) == 0 {
		return nil, fmt.Errorf("%s: all of its jobs have a kind: rota define -f defines them, and there is nothing to run here", o.file)
	}
	if o.revision >= 0 {
		for i := range f.Jobs {
			if !f.Jobs[i].OwnRevision {
				f.Jobs[i].Revision = o.revision
			}
		}
		f.Revision = o.revision
	}
	return f, nil
}

// target is where an instance joins. It cannot change while the process runs.
type target struct {
	url, namespace, group string
	credentials           credentials
}

// credentials name the files and variables of a connection.
type credentials struct {
	user                      string // in the environment of the process
	userFile, userEnv         string
	passwordFile, passwordEnv string
	tls                       jobsfile.TLSFiles
}

// targetOf returns where the instance joins: by flag, environment or file, in this order. Credentials
// of the file are used for its own registry only.
func (o *options) targetOf(f *jobsfile.File) (target, error) {
	t := target{
		url:       cmp.Or(o.registry, o.getenv("ROTA_REGISTRY"), f.Registry.URL, "memory"),
		namespace: cmp.Or(o.namespace, o.getenv("ROTA_NAMESPACE"), f.Namespace, "default"),
		group:     cmp.Or(o.group, o.getenv("ROTA_GROUP"), f.Group, "default"),
	}
	if err := jobsfile.CheckRegistry(t.url, o.schemes); err != nil {
		return target{}, exit.Usagef("the registry %w", err)
	}
	if t.url == f.Registry.URL {
		r := f.Registry
		t.credentials = credentials{"", r.UserFile, r.UserEnv, r.PasswordFile, r.PasswordEnv, r.TLS}
	}
	c := &t.credentials
	if user := o.getenv("ROTA_USER"); user != "" {
		c.user, c.userFile, c.userEnv = user, "", ""
	}
	if o.getenv("ROTA_PASSWORD") != "" {
		c.passwordFile, c.passwordEnv = "", "ROTA_PASSWORD"
	} else if file := o.getenv("ROTA_PASSWORD_FILE"); file != "" {
		c.passwordFile, c.passwordEnv = file, ""
	}
	fromEnv := jobsfile.TLSFiles{
		Enabled: o.getenv("ROTA_TLS") != "",
		CAFile:  o.getenv("ROTA_TLS_CA_FILE"), CertFile: o.getenv("ROTA_TLS_CERT_FILE"),
		KeyFile: o.getenv("ROTA_TLS_KEY_FILE"), ServerName: o.getenv("ROTA_TLS_SERVER_NAME"),
	}
	if fromEnv != (jobsfile.TLSFiles{}) {
		c.tls = fromEnv
	}
	return t, nil
}

// listOverruled returns a text for each setting of the file that a variable of the environment replaces. Such a variable may have been
// meant for other commands.
func (o *options) listOverruled(f *jobsfile.File) (texts []string) {
	for _, s := range []struct{ key, flag, variable, inFile string }{
		{"registry", o.registry, "ROTA_REGISTRY", f.Registry.URL},
		{"namespace", o.namespace, "ROTA_NAMESPACE", f.Namespace},
		{"group", o.group, "ROTA_GROUP", f.Group},
	} {
		if value := o.getenv(s.variable); s.flag == "" && value != "" && s.inFile != "" && value != s.inFile {
			if strings.Contains(value, "@") {
				value = "with a password" // which is refused
			}
			texts = append(texts, fmt.Sprintf("%s is %s by %s; the file has %s", s.key, value, s.variable, s.inFile))
		}
	}
	return texts
}

// connectTimeout bounds an attempt to connect to the store, so that the reason is known in seconds.
const connectTimeout = 10 * time.Second

// connectionOf reads the credentials of a registry.
func (o *options) connectionOf(t target) (with registryurl.Options, err error) {
	with.Logger = o.log
	var errs [3]error
	with.Username, errs[0] = o.secret(t.credentials.userFile, t.credentials.userEnv)
	with.Username = cmp.Or(t.credentials.user, with.Username)
	with.Password, errs[1] = o.secret(t.credentials.passwordFile, t.credentials.passwordEnv)
	if !o.secrets.Add(with.Password) {
		o.log.Warn("password of the registry is too short to be masked in logs and errors", "least", secret.MinLength)
	}
	with.TLS, errs[2] = t.credentials.tls.Config(os.ReadFile)
	if err := errors.Join(errs[:]...); err != nil {
		return registryurl.Options{}, &exit.Error{Code: exit.Usage, Err: fmt.Errorf("credentials of the registry: %w", err)}
	}
	return with, nil
}

// connect connects to a registry, once.
func (o *options) connect(ctx context.Context, url string, with registryurl.Options) (registry.Registry, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout, fmt.Errorf("no answer within %v", connectTimeout))
	defer cancel()
	reg, err := o.schemes.Open(ctx, url, with)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w\ncheck the address, that the server listens there, and that TLS and credentials match it", url, err)
	}
	return reg, nil
}

// secret returns the content of a file or variable, "" if none is named.
func (o *options) secret(file, variable string) (string, error) {
	switch {
	case variable != "":
		value, ok := o.lookupEnv(variable)
		if !ok || value == "" {
			return "", fmt.Errorf("the environment variable %s is not set", variable)
		}
		return value, nil
	case file != "":
		content, err := os.ReadFile(file)
		return strings.TrimRight(string(content), "\r\n"), err
	}
	return "", nil
}
