package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/cmd/rota/internal/jobsfile"
	"github.com/rota-dev/rota/cmd/rota/internal/port"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/secret"
	"github.com/rota-dev/rota/notify"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/rotaprom"
)

// fileLabel is the label of an instance that shows which file it has: the revision and the digest of
// the local parts. Instances with equal revisions and unequal digests run different commands.
const fileLabel = "rota.file"

// server is a process of a fleet.
type server struct {
	options
	target target
	health *health
	ex     *executor.Executor
	// measured is the registry with its metrics.
	measured *rotaprom.Registry
	notifier *notify.Notifier // nil until a file has receivers; a reload may start it

	secretLogs secretLogs
	pools      sync.WaitGroup     // setPools
	endPools   context.CancelFunc // of that which has begun last

	// The loop of serve has these, and the one reload that it has begun.
	file      *jobsfile.File
	gone      map[string]jobsfile.Job // withdrawn by reloads
	goneKinds map[string]*jobsfile.Kind
	draining  bool
	signaled  bool // a signal to end has come
	reloading bool
	again     bool // a reload was requested during a reload or the wait for the store
	reloaded  chan *jobsfile.File
}

// run runs the jobs of the file until a signal or the end of ctx, and returns when the instance has
// left the fleet.
func run(ctx context.Context, o options) error {
	if o.uid == 0 && !o.allowRoot {
		return exit.Usagef("rota run runs commands as its own user, and refuses to do so as root; use another user, or --allow-root")
	}
	if err := o.checkPorts(); err != nil {
		return err
	}
	if o.waitForStore < 0 {
		return exit.Usagef("--wait-for-store is %v, below 0", o.waitForStore)
	}
	o.secrets = &secret.Masker{}
	o.log = slog.New(o.secrets.Handler(o.log.Handler()))
	f, err := o.load()
	if err != nil {
		return &exit.Error{Code: exit.Usage, Err: err}
	}
	s := &server{options: o, file: f, gone: map[string]jobsfile.Job{}, goneKinds: map[string]*jobsfile.Kind{}, reloaded: make(chan *jobsfile.File, 1), health: newHealth()}
	if s.target, err = o.targetOf(f); err != nil {
		return err
	}
	with, err := s.connectionOf(s.target)
	if err != nil {
		return err
	}
	// Find mistakes in the settings before the wait for the store.
	if _, err := s.newExecutor(memory.New().Client("check")); err != nil {
		return err
	}
	closePorts, err := s.servePorts()
	defer closePorts()
	if err != nil {
		return err
	}
	s.secretLogs.of(f)
	startHistory, err := s.openHistory(f.History)
	if err != nil {
		return err
	}
	reg, err := s.awaitStore(ctx, with)
	if errors.Is(err, errEnded) {
		return nil
	}
	if err != nil {
		return err
	}
	defer closeRegistry(reg)
	s.measured = rotaprom.NewRegistry(reg)
	if s.ex, err = s.newExecutor(s.measured); err != nil {
		return err
	}
	s.health.observe(s.ex, s.measured)
	defer startHistory()()
	o.warnOf(f)
	for _, text := range o.listOverruled(f) {
		o.log.Warn("the environment overrules the file", "setting", text)
	}
	o.log.Info("running jobs of a file", "file", o.file, "jobs", len(f.Jobs), "kinds", len(f.Kinds), "revision", f.Revision, "digest", f.Digest(),
		"registry", s.target.url, "namespace", s.target.namespace, "group", s.target.group, "instance", s.ex.Instance())
	for _, j := range f.Jobs {
		o.log.Debug("job", "job", j.Name, "schedule", j.Schedule.String(), "revision", j.Revision, "digest", j.Digest)
	}
	return s.serve(ctx)
}

// newExecutor returns an executor with the jobs of the file.
func (s *server) newExecutor(reg registry.Registry) (*executor.Executor, error) {
	labels := map[string]string{fileLabel: fmt.Sprintf("r%d %s", s.file.Revision, s.file.Digest())}
	for k, v := range s.labels {
		if k == fileLabel {
			return nil, exit.Usagef("--label: %q is set by rota run", k)
		}
		labels[k] = v
	}
	ex, err := executor.New(reg, s.target.namespace, executor.Options{
		Instance: s.instance, Group: s.target.group, SessionTTL: s.sessionTTL, RestartGrace: s.restartGrace, DrainTimeout: s.drainTimeout,
		Workers: s.workers, Weight: s.weight, Host: s.host, Labels: labels, Clock: s.clock, Logger: s.log,
	})
	if err == nil {
		err = ex.RegisterKind(kindsOf(s.file)...)
	}
	if err == nil {
		err = ex.Register(jobsOf(s.file)...)
	}
	if err != nil {
		return nil, &exit.Error{Code: exit.Usage, Err: err}
	}
	return ex, nil
}

// servePorts serves the addresses of the flags until stop is called.
func (s *server) servePorts() (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, each := range stops {
			each()
		}
	}
	for _, p := range []struct {
		flag, what, address string
		handler             http.Handler
		writeTimeout        time.Duration
	}{
		{"--listen", "health and metrics", s.listen, s.health.handler(), port.Timeout},
		{"--pprof", "profiles", s.pprof, newProfiles(), 0},
	} {
		if p.address == "" {
			continue
		}
		stopPort, err := s.servePort(p.what, p.address, p.handler, p.writeTimeout)
		if err != nil {
			return stop, fmt.Errorf("%s: %w", p.flag, err)
		}
		stops = append(stops, stopPort)
	}
	return stop, nil
}

// warnOf logs the warnings of a file, and which of its jobs are not run from it.
func (o *options) warnOf(f *jobsfile.File) {
	for _, warning := range f.Warnings {
		o.log.Warn("a secret is not masked", "reason", warning)
	}
	var defined []string
	for i := range f.Defined {
		defined = append(defined, f.Defined[i].Name)
	}
	if len(defined) > 0 {
		o.log.Info("jobs with a kind are not run from the file", "jobs", listNames(defined), "remedy", "rota define -f defines them for the whole fleet")
	}
}

func jobsOf(f *jobsfile.File) (all []executor.Job) {
	for _, j := range f.Jobs {
		all = append(all, j.Job)
	}
	return all
}

func kindsOf(f *jobsfile.File) (all []executor.Kind) {
	for i := range f.Kinds {
		all = append(all, f.Kinds[i].Kind)
	}
	return all
}

// serve runs the executor and acts on signals until the executor has ended.
func (s *server) serve(ctx context.Context) error {
	running, drain := context.WithCancel(context.WithoutCancel(ctx))
	defer s.pools.Wait()
	defer drain()
	defer s.stopNotifier() // which drain ends
	if err := s.startNotifier(running, s.file.Notify); err != nil {
		return err
	}
	s.beginSetPools(running, s.file)
	ended := make(chan error, 1)
	go func() { ended <- s.ex.Run(running) }()
	interrupted := ctx.Done()
	if s.again { // requested before the store answered
		s.again = false
		s.beginReload(running)
	}
	for {
		select {
		case err := <-ended:
			drain()
			if s.reloading {
				<-s.reloaded
			}
			var abandoned *executor.AbandonedError
			if errors.As(err, &abandoned) {
				s.log.Error("runs did not end in time and are killed", "runs", abandoned.Runs)
			}
			if s.draining && errors.Is(err, context.Canceled) {
				return nil // stopped before it had joined
			}
			return err
		case <-interrupted:
			interrupted = nil
			s.beginDrain(drain, context.Cause(ctx).Error())
		case f := <-s.reloaded:
			s.reloading = false
			if f != nil {
				s.file = f
			}
			if s.again {
				s.again = false
				s.beginReload(running)
			}
		case sig := <-s.signals:
			switch {
			case sig == syscall.SIGHUP:
				s.beginReload(running)
			case s.signaled: // not the end of ctx, which the same signal may cause
				return s.endAtOnce(sig)
			default:
				s.signaled = true
				s.beginDrain(drain, sig.String())
			}
		}
	}
}

// endAtOnce ends the process at its second signal.
func (s *server) endAtOnce(sig os.Signal) error {
	s.log.Warn("second signal: ending at once; other instances repeat the runs", "signal", sig.String())
	s.exit(128 + numberOf(sig))
	return &exit.Error{Code: 128 + numberOf(sig)} // in tests, where exit returns
}

func numberOf(s os.Signal) int {
	n, _ := s.(syscall.Signal)
	return int(n)
}

// beginDrain lets the executor leave the fleet.
func (s *server) beginDrain(drain context.CancelFunc, cause string) {
	if !s.draining {
		s.draining = true
		s.log.Info("draining: runs may finish, shards move to other instances; a second signal ends the process at once", "cause", cause)
		drain()
	}
}

// beginReload reads the file in the background, so that signals are still received.
func (s *server) beginReload(running context.Context) {
	switch {
	case s.draining:
		return
	case s.reloading:
		s.again = true
		return
	}
	s.reloading = true
	now := s.file
	go func() { s.reloaded <- s.reload(running, now) }()
}

// withdrawTimeout bounds the wait until the store has recorded which jobs are withdrawn. They are
// recorded later if the store does not answer.
const withdrawTimeout = 10 * time.Second

// reload applies the file as it is now, as a whole or not at all, and returns it, or nil.
func (s *server) reload(ctx context.Context, now *jobsfile.File) *jobsfile.File {
	next, c, err := s.readNext(now)
	if err == nil {
		s.secretLogs.of(now, next) // a job is secret before its first run
		if err = errors.Join(s.ex.RegisterKind(c.kinds.register...), s.ex.Register(c.register...)); err != nil {
			s.secretLogs.of(now)
		} else {
			s.secretLogs.of(next)
		}
	}
	if err != nil {
		s.log.Error("file not reloaded: the jobs stay as they are", "file", s.options.file, "error", err)
		return nil
	}
	if err := s.reloadNotifier(ctx, now.Notify, next.Notify); err != nil { // not for settings, which the file has been checked for
		s.log.Error("receivers of messages not reloaded: they stay as they are", "error", err)
	}
	for _, j := range now.Jobs {
		if slices.Contains(c.removed, j.Name) {
			s.gone[j.Name] = j
		}
	}
	for i := range now.Kinds {
		if k := &now.Kinds[i]; slices.Contains(c.kinds.removed, k.Name) {
			s.goneKinds[k.Name] = k
		}
	}
	s.beginSetPools(ctx, next)
	ctx, cancel := context.WithTimeout(ctx, withdrawTimeout)
	defer cancel()
	if err := s.ex.WithdrawKind(ctx, c.kinds.removed...); err != nil {
		s.log.Warn("withdrawal of kinds not recorded yet", "kinds", listNames(c.kinds.removed), "error", err)
	}
	for _, name := range c.removed {
		if err := s.ex.Withdraw(ctx, name); err != nil {
			s.log.Warn("withdrawal of a job not recorded yet", "job", name, "error", err)
		}
	}
	attrs := []any{
		"file", s.options.file, "jobs", len(next.Jobs), "revision", next.Revision, "digest", next.Digest(),
		"added", listNames(c.added), "changed", listNames(c.changed), "removed", listNames(c.removed),
	}
	if len(now.Kinds)+len(next.Kinds) > 0 {
		attrs = append(attrs, "kinds", len(next.Kinds), "added_kinds", listNames(c.kinds.added), "changed_kinds", listNames(c.kinds.changed), "removed_kinds", listNames(c.kinds.removed))
	}
	if now.Digest() != next.Digest() {
		attrs = append(attrs, "note", "label "+fileLabel+" shows the digest of the start")
	}
	s.warnOf(next)
	s.log.Info("file reloaded", attrs...)
	return next
}

// readNext reads the file again and returns the change to it.
func (s *server) readNext(now *jobsfile.File) (*jobsfile.File, change, error) {
	next, err := s.load()
	if err != nil {
		return nil, change{}, err
	}
	t, err := s.targetOf(next)
	if err != nil {
		return nil, change{}, err
	}
	if t != s.target {
		return nil, change{}, errors.New("registry, credentials, namespace and group cannot change while the process runs: restart it")
	}
	if next.History != now.History {
		return nil, change{}, errors.New("history cannot change while the process runs: restart it")
	}
	inMemory := s.target.url == "memory"
	c, err := planReload(now, next, s.gone, inMemory)
	var kindsErr error
	c.kinds, kindsErr = planKinds(now, next, s.goneKinds, inMemory)
	return next, c, errors.Join(err, kindsErr)
}

func closeRegistry(reg interface{ Close(context.Context) error }) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = reg.Close(ctx) // the instance has left, or its session expires
}
