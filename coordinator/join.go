package coordinator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/contain"
	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/member"
	"github.com/rota-dev/rota/internal/group/ownership"
	"github.com/rota-dev/rota/internal/mutex"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// Config configures Join. Namespace, Shards and Own are required. Fields of the same name as
// in executor.Options mean the same, and are described there in full.
type Config struct {
	// Namespace is the directory in the registry below which all records are kept.
	Namespace string
	// Group is the set of instances that own the shards together. Empty means "default".
	Group string
	// Instance is the name of this process. Empty means the host's name and a random part.
	Instance string
	// SessionTTL is the time after which the store expires a silent session. Zero means 10 s.
	SessionTTL time.Duration
	// Shards is the number of shards, up to 10,000. Shards are numbered from 0.
	Shards int
	// Revision is the number of this definition: Shards, Strategy and RunOn. The highest
	// revision in the group is in force, so raise it with each change.
	Revision int
	// Strategy is the name of the strategy that assigns the shards. Empty means "sticky".
	Strategy string
	// Strategies are custom strategies by name. Every process of the group needs them.
	Strategies map[string]strategy.Func
	// Host is the name by which operators disable the host. Empty means the system's name.
	Host string
	// Labels describe this instance to RunOn and to strategies.
	Labels map[string]string
	// Weight is this instance's share of the shards, relative to others. Zero means 1.
	Weight int
	// RunOn lists labels that an instance must have to own shards, up to 16. An instance
	// without them gives up its shards. If no live instance has them, the shards have no owner.
	RunOn map[string]string
	// Own is called in a goroutine of its own for each shard that this process comes to own.
	// The process owns the shard until Own returns. Own must return soon after ctx ends, which
	// happens when
	//
	//   - the shard is to move (the cause is ErrMoving),
	//   - an operator disables it (ErrDisabled),
	//   - the session is lost (registry.ErrSessionLost),
	//   - the context of Join ends (its cause).
	//
	// If Own returns while the shard is still assigned to this process, it is called again
	// after 100 ms; if the shard is disabled, after it is enabled. An error is logged, and so is a panic, with
	// its stack.
	Own func(ctx context.Context, s Owned) error
	// Logger receives the log lines that docs/operating/messages.md lists. Nil means slog.Default().
	Logger *slog.Logger
}

// Owned is a shard that this process owns. A test of Own may use a literal, such as
// Owned{Shard: 2, Shards: 3}, whose methods read and write nothing.
type Owned struct {
	Shard, Shards int    // the shard's number, from 0, and the number of shards
	Fence         uint64 // a fencing token, greater than that of any earlier owner of the shard

	ownership *ownership.Access
}

// Join makes this process an owner of shards until ctx ends. The shards are distributed over
// all processes that join the group, and cfg.Own is called for each one of this process.
//
// After the end of ctx, Join waits until each Own has returned and, for up to 5 s, until other
// instances own the shards. It then returns nil. Join returns an error if the configuration
// is invalid, if the process cannot join, such as ErrNameTaken or ErrNewerFormat, or if the
// registry is closed.
//
// If the session is lost, the contexts of the Own calls end. Join opens a new session and
// calls Own for the shards that it is then assigned.
//
// To continue where the previous owner stopped, an owner stores its position with
// [Owned.Save] and begins with [Owned.State].
//
// A shard has at most one owner whose session is alive. An Own that ignores the end of its
// context keeps its shard from moving. If the session is lost, however, another process may
// own the shard at the same time, with a higher fence.
//
// To an [operator.Operator], the shards belong to a job named "shards". A disabled shard has no owner
// once its Own has returned. After a pause, no Own is called until the resume, and calls that
// have begun continue.
func Join(ctx context.Context, reg registry.Registry, cfg Config) error {
	if cfg.Own == nil {
		return errors.New("join: Own is nil")
	}
	if cfg.Shards < 1 || cfg.Shards > record.MaxShards {
		return fmt.Errorf("join: Shards is %d, not between 1 and %d", cfg.Shards, record.MaxShards)
	}
	if cfg.Strategy != "" {
		known, err := strategy.Known(cfg.Strategies)
		if err != nil {
			return fmt.Errorf("join: %w", err)
		}
		if _, ok := known[cfg.Strategy]; !ok {
			return fmt.Errorf("join: strategy %q is neither built in nor in Strategies", cfg.Strategy)
		}
	}
	if err := errors.Join(record.CheckLabels(cfg.RunOn, record.MaxRunOn)...); err != nil {
		return fmt.Errorf("join: RunOn: %w", err)
	}
	def, err := json.Marshal(record.Job{
		Name: ownedJob, Revision: cfg.Revision, Shards: cfg.Shards, Strategy: cfg.Strategy, RunOn: cfg.RunOn,
		OnCrash: record.CrashFail, // the next owner's call is not a second attempt at the old one
	})
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	o := &ownWork{own: cfg.Own, reg: reg, log: contain.Logger(cfg.Logger), calls: map[int]context.CancelCauseFunc{}}
	m, err := member.New(reg, member.Options{
		Namespace: cfg.Namespace, Group: cfg.Group, Instance: cfg.Instance, SessionTTL: cfg.SessionTTL,
		Host: cfg.Host, Labels: cfg.Labels, Weight: cfg.Weight, Strategies: cfg.Strategies, Logger: cfg.Logger, Work: o, NoClocks: true,
	})
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	if o.keys, err = record.NewKeys(cfg.Namespace, cmp.Or(cfg.Group, member.DefaultGroup)); err != nil {
		return fmt.Errorf("join: %w", err)
	}
	m.Offer(map[string]json.RawMessage{ownedJob: def})
	return o.runMember(ctx, m)
}

// ownedJob is the job whose shards Join shares out.
const ownedJob = "shards"

// runMember runs a member until ctx ends, then ends the calls of Own and leaves the group.
func (o *ownWork) runMember(ctx context.Context, m *member.Member) error {
	run, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	stopped := make(chan error, 1)
	go func() { stopped <- m.Run(run) }()
	select {
	case err := <-stopped:
		o.calling.Wait() // the contexts of these calls have ended with the membership
		return err
	case <-ctx.Done():
	}
	leaving, cancel := context.WithTimeout(run, leaveTimeout)
	defer cancel()
	drained := m.Drain(leaving)
	o.endCalls(context.Cause(ctx))
	o.calling.Wait()
	left, cancel := context.WithTimeout(run, leaveTimeout)
	defer cancel()
	if err := errors.Join(drained, m.Leave(left)); err != nil {
		o.log.Warn("left before the shards were taken over", "error", err)
		stop(member.ErrLeft)
	}
	if err := <-stopped; err != nil && !errors.Is(err, member.ErrLeft) {
		return err
	}
	return nil
}

// leaveTimeout bounds the wait for other instances to own the shards of a leaving one.
const leaveTimeout = 5 * time.Second

// ownWork is the Work of Join.
type ownWork struct {
	own  func(context.Context, Owned) error
	reg  registry.Registry
	keys record.Keys
	log  *slog.Logger

	calling sync.WaitGroup
	mu      mutex.Mutex
	calls   map[int]context.CancelCauseFunc // by shard
	ended   error                           // why no calls are made any more
}

// Compile is described in Work.
func (o *ownWork) Compile(json.RawMessage) (due.Program, error) { return always{}, nil }

// Start is described in Work.
func (o *ownWork) Start(ctx context.Context, r claimer.Run, shards iter.Seq[int], done claimer.Done) {
	for shard := range shards {
		r.Shard = shard
		if err := o.startShard(ctx, r, done); err != nil {
			done(shard, err)
		}
	}
}

// startShard calls the function of one shard, unless no calls are made any more: Join may have returned already,
// and must not leave a call behind.
func (o *ownWork) startShard(ctx context.Context, r claimer.Run, done claimer.Done) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended == nil {
		o.startLocked(ctx, r, done)
	}
	return o.ended
}

// startLocked calls the function of one shard. The caller holds o.mu.
func (o *ownWork) startLocked(ctx context.Context, r claimer.Run, done claimer.Done) {
	t := ownership.NewAccess(ctx, o.reg, r.Session, o.keys.Data(ownedJob, r.Shard))
	ctx, end := context.WithCancelCause(ctx)
	o.calls[r.Shard] = end
	o.calling.Go(func() {
		err := errGoexit
		defer func() {
			end(nil)
			t.Close() // before another instance may own the shard
			done(r.Shard, err)
		}()
		err = contain.Call("Own", func() error { return o.own(ctx, Owned{r.Shard, r.Shards, r.Fence, t}) })
		if err == nil {
			return
		}
		attrs := []any{"shard", r.Shard, "error", err, "next", "Own is called again while the shard is assigned to this instance"}
		var panicked *contain.PanicError
		if errors.As(err, &panicked) {
			attrs = append(attrs, "stack", string(panicked.Stack))
		} else if ctx.Err() != nil {
			return // the error of an end that was asked for
		}
		o.log.Error("a shard was given up", attrs...)
	})
}

// errGoexit is the error of a call that ended its goroutine instead of returning.
var errGoexit = errors.New("the call of Own ended in runtime.Goexit")

// Yield is described in Work. A pause and a new definition do not end the ownership of a shard.
func (o *ownWork) Yield(_ string, shard int, cause error) {
	if errors.Is(cause, claimer.ErrPaused) || errors.Is(cause, claimer.ErrNewDefinition) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if end, ok := o.calls[shard]; ok {
		end(cause)
	}
}

func (o *ownWork) endCalls(cause error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = cause
	for _, end := range o.calls {
		end(cause)
	}
}

// always is the Program of shards that are always to be owned.
type always struct{}

// Due is described in Program. A clock behind that of the last owner does not delay the
// next one.
func (always) Due(last, until, now time.Time) due.Due {
	if !until.IsZero() && !now.Before(until) {
		return due.Due{}
	}
	if again := last.Add(reownDelay); !last.After(now) && now.Before(again) {
		return due.Due{Wake: again}
	}
	if !now.After(last) {
		now = last.Add(1)
	}
	return due.Due{Fire: now}
}

// SkipDue is described in Program. No fire of a disabled shard falls due.
func (always) SkipDue(last, until, now time.Time) due.Due { return due.Due{} }

// reownDelay is the time from the return of Own to its next call for the same shard.
const reownDelay = 100 * time.Millisecond
