package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/contain"
	"github.com/rota-dev/rota/internal/mutex"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
)

// Receiver delivers messages to people or programs. Deliver returns nil once the message has been accepted. An error of
// executor.Permanent means that the receiver refuses this message: others are sent in the meantime. After any other error
// nothing else is sent until the receiver accepts the message; one of executor.RetryAfter names the delay.
//
// Deliver is called by one goroutine at a time. It should return soon after ctx ends; a call that does not delays later messages of
// this receiver only.
type Receiver interface {
	Deliver(ctx context.Context, m Message) error
}

// Func is a function as a Receiver.
type Func func(ctx context.Context, m Message) error

// Deliver calls f.
func (f Func) Deliver(ctx context.Context, m Message) error { return f(ctx, m) }

// Options are the settings of a Notifier. Processes with a receiver of one name should have the same settings for it: those of its
// present sender apply.
type Options struct {
	// Receivers are the receivers by name. A name has up to 64 bytes, no slash, and does not begin with a tilde.
	Receivers map[string]Receiver
	// Default are the receivers of jobs that Jobs does not name. Nil means all; an empty slice means none.
	Default []string
	// Jobs are the receivers of a job, in place of Default.
	Jobs map[string][]string
	// After is how long a state must last until it is reported. Zero means a minute.
	After time.Duration
	// Quiet is the least time between a message about a job and the next one, but for its recovery. Zero means 15 minutes.
	Quiet time.Duration
	// LateAfter is how long a fire may be due until its job is late. Zero means a minute.
	LateAfter time.Duration
	// Timeout bounds an attempt to deliver a message. Zero means 15 s.
	Timeout time.Duration
	// HideErrors leaves the errors of failed runs out of messages. Errors may have parts of data.
	HideErrors bool
	// Console is the address of a console, of which messages have links.
	Console string
	// Logger receives the failures of receivers. Nil means slog.Default().
	Logger *slog.Logger
}

const (
	defaultAfter     = time.Minute
	defaultQuiet     = 15 * time.Minute
	defaultLateAfter = time.Minute
	// DefaultTimeout is the default of Options.Timeout.
	DefaultTimeout = 15 * time.Second
	// sessionTTL is how long the receivers of a process that died have no sender.
	sessionTTL = 30 * time.Second
	// mostReceivers bounds the receivers: each has a goroutine, a lock and a record.
	mostReceivers = 100
)

// settings returns the options with defaults, or an error for those that are wrong.
func (o Options) settings() (Options, error) {
	o.After, o.Quiet = cmp.Or(o.After, defaultAfter), cmp.Or(o.Quiet, defaultQuiet)
	o.LateAfter, o.Timeout = cmp.Or(o.LateAfter, defaultLateAfter), cmp.Or(o.Timeout, DefaultTimeout)
	var errs []error
	for name, d := range map[string]time.Duration{"After": o.After, "Quiet": o.Quiet, "LateAfter": o.LateAfter, "Timeout": o.Timeout} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("%s: %v is below 0", name, d))
		}
	}
	if len(o.Receivers) > mostReceivers {
		errs = append(errs, wrongf("Receivers", "%d, at most %d", len(o.Receivers), mostReceivers))
	}
	o.Receivers = maps.Clone(o.Receivers)
	for name, to := range o.Receivers {
		if err := CheckName(name); err != nil {
			errs = append(errs, wrongf("Receivers", "%w", err))
		} else if to == nil {
			errs = append(errs, wrongf("Receivers", "%q is nil", name))
		}
	}
	check := func(of string, names []string) {
		for _, name := range names {
			if _, found := o.Receivers[name]; !found {
				errs = append(errs, fmt.Errorf("%s: there is no receiver %.100q", of, name))
			}
		}
	}
	check("Default", o.Default)
	o.Default = slices.Clone(o.Default)
	jobs := make(map[string][]string, len(o.Jobs))
	for job, names := range o.Jobs {
		check(fmt.Sprintf("Jobs: %.100q", job), names)
		jobs[job] = slices.Clone(names)
	}
	o.Jobs = jobs
	if err := CheckConsole(o.Console); err != nil {
		errs = append(errs, wrongf("Console", "%w", err))
	}
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return o, errors.Join(errs...)
}

// wrongf returns the error of an option.
func wrongf(option, format string, args ...any) error {
	return fmt.Errorf("%s: %w", option, fmt.Errorf(format, args...))
}

// CheckName returns an error for a text that cannot be the name of a receiver.
func CheckName(name string) error { return record.CheckName(name) }

// CheckConsole returns an error for a text that cannot be Options.Console.
func CheckConsole(address string) error {
	u, err := url.Parse(address)
	if address != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return errors.New("is no address that begins with http:// or https://")
	}
	return nil
}

// wants reports whether a job has a receiver.
func (o *Options) wants(receiver, job string) bool {
	names, own := o.Jobs[job]
	if !own {
		if o.Default == nil {
			return true
		}
		names = o.Default
	}
	return slices.Contains(names, receiver)
}

// Notifier sends messages until Shutdown.
type Notifier struct {
	reg              registry.Registry
	namespace, group string
	keys             record.Keys
	operator         *operator.Operator

	mu     mutex.Mutex
	closed bool
	now    *generation
}

// ErrShutdown is returned by Reconfigure after Shutdown.
var ErrShutdown = errors.New("notify: the notifier was shut down")

// Start starts a Notifier for a group of a namespace; an empty group means "default". It returns at once, and retries while the store does not
// answer. The Notifier ends with Shutdown, or when ctx ends; the registry must stay open until then.
func Start(ctx context.Context, reg registry.Registry, namespace, group string, o Options) (*Notifier, error) {
	group = cmp.Or(group, "default")
	op, err := operator.New(reg, namespace, group)
	if err != nil {
		return nil, fmt.Errorf("notify: %w", err)
	}
	keys, err := record.NewKeys(namespace, group)
	if err != nil {
		return nil, fmt.Errorf("notify: %w", err)
	}
	if o, err = o.settings(); err != nil {
		return nil, fmt.Errorf("notify: %w", err)
	}
	n := &Notifier{reg: reg, namespace: namespace, group: group, keys: keys, operator: op.WithCompiler(executor.Compile)}
	n.now = n.newGeneration(o)
	n.now.start(ctx, nil)
	return n, nil
}

// Reconfigure replaces the options. If they are wrong, it changes nothing. Messages that are being delivered are not lost.
func (n *Notifier) Reconfigure(o Options) error {
	o, err := o.settings()
	if err != nil {
		return fmt.Errorf("notify: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return ErrShutdown
	}
	before := n.now
	n.now = n.newGeneration(o)
	n.now.start(before.parent, before)
	return nil
}

// Shutdown ends the Notifier. It lets deliveries that have begun finish for a few seconds, and passes the receivers on to the notifiers of other
// processes. If ctx ends first, it returns the cause of ctx. Calling it twice is legal.
func (n *Notifier) Shutdown(ctx context.Context) error {
	n.mu.Lock()
	n.closed = true
	g := n.now
	n.mu.Unlock()
	g.cancel()
	select {
	case <-g.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("shut the notifier down: %w", context.Cause(ctx))
	}
}

// ReceiverStats are facts about a receiver, as this process knows them. Counts are those since its last configuration.
type ReceiverStats struct {
	Sender    bool      // this process sends to it
	Delivered int64     // messages that it accepted
	Failures  int64     // attempts that failed
	Dropped   int64     // messages that it refused for a day, or that made room for others that it refused
	InFlight  int       // messages that wait to be accepted
	DownSince time.Time // since when it has accepted nothing; zero if it does
	Error     string    // of the last attempt, empty if that succeeded
}

// Stats returns the facts about each receiver, by name.
func (n *Notifier) Stats() map[string]ReceiverStats {
	n.mu.Lock()
	g := n.now
	n.mu.Unlock()
	all := make(map[string]ReceiverStats, len(g.runners))
	for _, r := range g.runners {
		all[r.name] = r.readStats()
	}
	return all
}

// generation is a Notifier with certain options.
type generation struct {
	n       *Notifier
	o       Options
	log     *slog.Logger
	group   *watcher
	runners []*runner

	parent context.Context // of all generations
	cancel context.CancelFunc
	done   chan struct{}
}

func (n *Notifier) newGeneration(o Options) *generation {
	g := &generation{
		n: n, o: o, done: make(chan struct{}),
		log: contain.Logger(o.Logger).With("component", "notify", "namespace", n.namespace, "group", n.group),
	}
	g.group = &watcher{operator: n.operator, lateAfter: o.LateAfter, log: g.log}
	for _, name := range slices.Sorted(maps.Keys(o.Receivers)) {
		g.runners = append(g.runners, newRunner(g, name, o.Receivers[name]))
	}
	return g
}

// start starts the runners once those of the generation before have ended.
func (g *generation) start(ctx context.Context, before *generation) {
	g.parent = ctx
	ctx, g.cancel = context.WithCancel(ctx)
	go func() {
		defer close(g.done)
		defer g.cancel()
		if before != nil {
			before.cancel()
			<-before.done
			g.inherit(before)
		}
		g.run(ctx)
	}()
}

// inherit passes the IDs of delivered messages on from the runners of another generation, which has ended.
func (g *generation) inherit(before *generation) {
	for _, r := range g.runners {
		for _, old := range before.runners {
			if old.name == r.name {
				r.delivered = old.delivered
			}
		}
	}
}

// run keeps a session, under which the runners hold their locks.
func (g *generation) run(ctx context.Context) {
	if len(g.runners) == 0 {
		<-ctx.Done()
		return
	}
	limit := limiter{}
	for ctx.Err() == nil {
		err := registry.KeepSession(ctx, g.n.reg, registry.SessionOptions{TTL: sessionTTL}, g.runSession)
		if ctx.Err() != nil || errors.Is(err, registry.ErrClosed) {
			return
		}
		if limit.allow(time.Now()) {
			g.log.Warn("cannot send messages yet; trying again", "error", err)
		}
		pause(ctx, retryPause)
	}
}

// runSession runs all runners until ctx ends.
func (g *generation) runSession(ctx context.Context, s registry.Session) error {
	ended := make(chan struct{})
	for _, r := range g.runners {
		go func() {
			r.run(ctx, s)
			ended <- struct{}{}
		}()
	}
	for range g.runners {
		<-ended
	}
	return context.Cause(ctx)
}

// pause waits, at most until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// limiter lets one log line through each minute.
type limiter struct{ last time.Time }

func (l *limiter) allow(now time.Time) bool {
	if !l.last.IsZero() && now.Sub(l.last) < time.Minute {
		return false
	}
	l.last = now
	return true
}
