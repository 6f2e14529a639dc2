package coordinator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/rota-dev/rota/coordinator/internal/due"
	"github.com/rota-dev/rota/coordinator/internal/member"
	"github.com/rota-dev/rota/coordinator/strategy"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// Config says what a process takes part in by Join. Namespace, Shards and Own are
// required.
type Config struct {
	Namespace  string
	Group      string        // "" = "default"; a group shares out one set of shards
	Instance   string        // "" = host name and a random part
	SessionTTL time.Duration // 0 = registry.DefaultSessionTTL
	Shards     int           // how many there are. The highest Revision's number holds
	Revision   int
	Strategy   string // "" = "sticky"
	// Strategies are strategies of your own; see MemberOptions.Strategies.
	Strategies map[string]strategy.Func
	Host       string            // where this process runs; "" = the host's name. See Scope.Hosts
	Labels     map[string]string // what kind of instance this is, for RunOn and strategies; see MemberOptions.Labels
	Weight     int               // see MemberOptions.Weight
	// RunOn is the labels that instances must have to own shards, all of these pairs: up to
	// 16, of the sizes of MemberOptions.Labels. The highest Revision's hold. Who does not have
	// them gives its shards up; if nobody does, nobody owns any.
	RunOn map[string]string
	// Own is called in its own goroutine for each shard that this process comes to own.
	// Owning lasts as long as the call: ctx ends when the shard is to move, when it is
	// disabled, when the session is lost or when Join's context has ended, and returning gives
	// the shard up. A shard that is still this process's after that is owned again, by another
	// call a little later; one that is disabled, once it no longer is.
	Own    func(ctx context.Context, s Owned) error
	Logger *slog.Logger // nil = slog.Default()
}

// Owned is a shard that this process owns. A test of Own writes one by hand.
type Owned struct {
	Shard, Shards int
	Fence         uint64 // greater than that of any earlier owner of the shard

	ownership *ownership
}

// Join takes part in sharing out cfg.Shards until ctx ends, and returns when every Own has
// returned and others have taken over: nil after an orderly end, or why it could not
// begin. Losing the session ends the Own calls; then they are made again under a new one.
//
// An owner that is to go on where the last one stopped keeps where that is by Owned.Save,
// and begins with Owned.State.
//
// A shard has at most one owner whose session lives. An Own that does not return when its
// context ends keeps its shard from moving, unless the session is lost: then another may
// own it, with a higher fence.
//
// For an Operator the shards are those of a job named "shards". One that is disabled is
// owned by nobody once its Own has returned. A pause lets calls that have begun go on.
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
	o := &ownWork{own: cfg.Own, reg: reg, log: cfg.Logger, calls: map[int]context.CancelCauseFunc{}}
	if o.log == nil {
		o.log = slog.Default()
	}
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

// takePart runs a member until ctx ends, and then leaves in good order.
func (o *ownWork) runMember(ctx context.Context, m *member.Member) error {
	run, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	stopped := make(chan error, 1)
	go func() { stopped <- m.Run(run) }()
	select {
	case err := <-stopped:
		o.calling.Wait() // for calls whose contexts have ended with the membership
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

// leaveTimeout bounds the wait for others to take over what a process leaves.
const leaveTimeout = 5 * time.Second

// owning is the Work of Join.
type ownWork struct {
	own  func(context.Context, Owned) error
	reg  registry.Registry
	keys record.Keys
	log  *slog.Logger

	calling sync.WaitGroup
	mu      sync.Mutex
	calls   map[int]context.CancelCauseFunc // by shard
	ended   error                           // why no call lasts any more
}

// Compile is described in Work.
func (o *ownWork) Compile(json.RawMessage) (due.Program, error) { return always{}, nil }

// Start is described in Work.
func (o *ownWork) Start(ctx context.Context, r member.Run, done func(error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended != nil { // perhaps nobody waits for calls any more
		done(o.ended)
		return
	}
	t := newOwnership(ctx, o.reg, r.Session, o.keys.Data(ownedJob, r.Shard))
	ctx, end := context.WithCancelCause(ctx)
	o.calls[r.Shard] = end
	o.calling.Go(func() {
		err := errGoexit
		defer func() {
			end(nil)
			t.Close() // before others may have the shard
			done(err)
		}()
		err = o.own(ctx, Owned{r.Shard, r.Shards, r.Fence, t})
		if err != nil && ctx.Err() == nil {
			o.log.Error("a shard was given up", "shard", r.Shard, "error", err)
		}
	})
}

// errGoexit is the error of a call that ended its goroutine instead of returning.
var errGoexit = errors.New("the call of Own ended in runtime.Goexit")

// Yield is described in Work.
func (o *ownWork) Yield(_ string, shard int, cause error) {
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

// always is the Program of shards that want to be owned all the time.
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

// SkipDue is described in Program. Nothing falls due of a shard that nobody is to own.
func (always) SkipDue(last, until, now time.Time) due.Due { return due.Due{} }

// ownAgain is how long a shard that was given up stays so.
const reownDelay = 100 * time.Millisecond
