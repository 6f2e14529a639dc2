package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/member"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// holders records the owners of shards by Join. It fails the test if a shard has two owners at
// once, or a fence that is not greater than the previous one.
type holders struct {
	t      *testing.T
	server *memory.Server

	mu     sync.Mutex
	owner  map[int]string
	fence  map[int]uint64
	causes map[string][]error // why owning ended, by process
	calls  int
}

// holding runs f in a bubble.
func holding(t *testing.T, name string, f func(t *testing.T, h *holders)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f(t, &holders{
				t: t, server: memory.New(), owner: map[int]string{}, fence: map[int]uint64{}, causes: map[string][]error{},
			})
		})
	})
}

// join takes part as a process of that name until leave is called, which returns what Join
// returned. own is called for each shard; nil waits for the end of its context.
func (h *holders) join(name string, n int, own func(context.Context, Owned) error) (leave func() error) {
	return h.joinAs(Config{Instance: name, Shards: n, Own: own})
}

// joinAs is join with a config, less what all have in common.
func (h *holders) joinAs(cfg Config) (leave func() error) {
	name, own := cfg.Instance, cfg.Own
	cfg.Namespace, cfg.Logger = "test", slog.New(slog.DiscardHandler)
	cfg.Own = func(ctx context.Context, s Owned) error { return h.own(ctx, name, s, own) }
	ctx, cancel := context.WithCancelCause(context.Background())
	returned := make(chan error, 1)
	go func() { returned <- Join(ctx, h.server.Client(name), cfg) }()
	time.Sleep(time.Second)
	synctest.Wait()
	return func() error {
		cancel(errEnough)
		err := <-returned
		synctest.Wait()
		return err
	}
}

var errEnough = errors.New("enough")

func (h *holders) own(ctx context.Context, name string, s Owned, own func(context.Context, Owned) error) error {
	h.mu.Lock()
	h.calls++
	assert.Empty(h.t, h.owner[s.Shard], "shard %d has an owner", s.Shard)
	assert.Greater(h.t, s.Fence, h.fence[s.Shard], "fence of shard %d", s.Shard)
	h.owner[s.Shard], h.fence[s.Shard] = name, s.Fence
	h.mu.Unlock()
	var err error
	if own != nil {
		err = own(ctx, s)
	} else {
		<-ctx.Done()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.owner, s.Shard)
	if ctx.Err() != nil {
		h.causes[name] = append(h.causes[name], context.Cause(ctx))
	}
	return err
}

// now returns the owned shards by process.
func (h *holders) now() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	sets := map[string]shardset.Set{}
	for s, name := range h.owner {
		set := sets[name].Clone()
		set.Add(s)
		sets[name] = set
	}
	out := map[string]string{}
	for name, set := range sets {
		out[name] = set.String()
	}
	return out
}

func (h *holders) fences() map[int]uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.fence)
}

func (h *holders) called() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls
}

func (h *holders) why(name string) []error {
	h.mu.Lock()
	defer h.mu.Unlock()
	why := h.causes[name]
	delete(h.causes, name)
	return why
}

func TestJoin(t *testing.T) {
	holding(t, "moves shards to who joins, and back from who leaves, one owner at a time", func(t *testing.T, h *holders) {
		leaveA := h.join("a", 4, nil)
		assert.Equal(t, map[string]string{"a": "0-3"}, h.now())
		fences := h.fences()
		leaveB := h.join("b", 4, nil)
		assert.Equal(t, map[string]string{"a": "0-1", "b": "2-3"}, h.now())
		assert.Equal(t, []error{claimer.ErrMoving, claimer.ErrMoving}, h.why("a"))
		assert.Greater(t, h.fences()[3], fences[3])
		assert.NoError(t, leaveA())
		for _, err := range h.why("a") { // by then its shards were to move as well
			assert.Contains(t, []error{errEnough, claimer.ErrMoving}, err)
		}
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"b": "0-3"}, h.now())
		assert.Empty(t, h.why("b"), "what does not move is not disturbed")
		assert.NoError(t, leaveB())
		assert.Empty(t, h.now())
	})
	holding(t, "keeps a shard with an owner that does not let go", func(t *testing.T, h *holders) {
		release := make(chan struct{})
		leaveA := h.join("a", 2, func(ctx context.Context, _ Owned) error {
			<-ctx.Done()
			<-release
			return nil
		})
		leaveB := h.join("b", 2, nil)
		time.Sleep(time.Minute)
		assert.Equal(t, map[string]string{"a": "0-1"}, h.now())
		close(release)
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"a": "0", "b": "1"}, h.now())
		assert.NoError(t, leaveA())
		assert.NoError(t, leaveB())
	})
	holding(t, "ends owning when the session is lost, and owns again under a new one", func(t *testing.T, h *holders) {
		leave := h.join("a", 2, nil)
		fences := h.fences()
		h.server.Expire("a")
		time.Sleep(10 * time.Second)
		why := h.why("a")
		require.Len(t, why, 2)
		for _, err := range why {
			assert.ErrorIs(t, err, registry.ErrSessionLost)
		}
		assert.Equal(t, map[string]string{"a": "0-1"}, h.now())
		assert.Greater(t, h.fences()[0], fences[0])
		assert.NoError(t, leave())
	})
	holding(t, "hands the shards of who is cut off to others, after it has been told", func(t *testing.T, h *holders) {
		leaveA := h.join("a", 4, nil)
		leaveB := h.join("b", 4, nil)
		heal := h.server.Partition("a")
		time.Sleep(20 * time.Second)
		assert.Equal(t, map[string]string{"b": "0-3"}, h.now())
		heal()
		time.Sleep(10 * time.Second)
		assert.Len(t, h.now(), 2)
		assert.NoError(t, leaveB())
		assert.NoError(t, leaveA())
	})
	holding(t, "owns again, a little later, what Own has given up", func(t *testing.T, h *holders) {
		leave := h.join("a", 1, func(context.Context, Owned) error { return errors.New("cannot") })
		time.Sleep(10*time.Second - time.Millisecond)
		assert.LessOrEqual(t, h.called(), int(12*time.Second/reownDelay))
		assert.Greater(t, h.called(), 10)
		assert.NoError(t, leave())
	})
	holding(t, "owns again what an Own that ended its goroutine had", func(t *testing.T, h *holders) {
		leave := h.join("a", 1, func(ctx context.Context, s Owned) error {
			if h.called() == 1 {
				h.mu.Lock()
				delete(h.owner, s.Shard)
				h.mu.Unlock()
				runtime.Goexit()
			}
			<-ctx.Done()
			return nil
		})
		assert.Equal(t, map[string]string{"a": "0"}, h.now())
		assert.NoError(t, leave())
	})
	holding(t, "returns nil when its context ends before it has joined", func(t *testing.T, h *holders) {
		heal := h.server.Partition("a")
		defer heal()
		leave := h.join("a", 1, nil)
		assert.NoError(t, leave())
		assert.Zero(t, h.called())
	})
	holding(t, "waits for every Own also when the registry was closed under it", func(t *testing.T, h *holders) {
		client := h.server.Client("a")
		release := make(chan struct{})
		returned := make(chan error, 1)
		go func() {
			returned <- Join(t.Context(), client, Config{
				Namespace: "test", Instance: "a", Shards: 1, Logger: slog.New(slog.DiscardHandler),
				Own: func(ctx context.Context, _ Owned) error {
					<-ctx.Done()
					<-release
					return nil
				},
			})
		}()
		time.Sleep(time.Second)
		require.NoError(t, client.Close(t.Context()))
		time.Sleep(time.Minute)
		select {
		case err := <-returned:
			assert.Fail(t, "it has returned", "%v", err)
		default:
		}
		close(release)
		assert.ErrorIs(t, <-returned, registry.ErrClosed)
	})
	holding(t, "calls nobody any more once it is leaving", func(t *testing.T, h *holders) {
		o := &ownWork{
			own: func(context.Context, Owned) error {
				t.Error("Own is called")
				return nil
			},
			log: slog.New(slog.DiscardHandler), calls: map[int]context.CancelCauseFunc{},
		}
		o.endCalls(errEnough)
		done := make(chan error, 1)
		o.Start(t.Context(), claimer.Run{}, slices.Values([]int{0}), func(_ int, err error, _ ...claimer.End) { done <- err })
		assert.ErrorIs(t, <-done, errEnough)
	})
	holding(t, "has nobody own what is disabled, and calls again for it when it no longer is", func(t *testing.T, h *holders) {
		leaveA, leaveB := h.join("a", 4, nil), h.join("b", 4, nil)
		o, err := operator.New(h.server.Client("console"), "test", "")
		require.NoError(t, err)
		h.why("a") // what moved to b
		say := func(f func(context.Context, operator.Scope) error, s operator.Scope) {
			require.NoError(t, f(t.Context(), s))
			time.Sleep(time.Second)
			synctest.Wait()
		}
		some := operator.Scope{Job: "shards", Shards: []int{1, 3}}
		fences := h.fences()
		say(o.Disable, some)
		assert.Equal(t, map[string]string{"a": "0", "b": "2"}, h.now())
		assert.Equal(t, []error{claimer.ErrDisabled}, h.why("a"))
		assert.Equal(t, []error{claimer.ErrDisabled}, h.why("b"))
		time.Sleep(time.Hour)
		assert.Equal(t, map[string]string{"a": "0", "b": "2"}, h.now())
		say(o.Enable, some)
		assert.Equal(t, map[string]string{"a": "0-1", "b": "2-3"}, h.now())
		assert.Greater(t, h.fences()[3], fences[3])
		assert.Equal(t, fences[2], h.fences()[2], "what is not disabled is not disturbed")

		say(o.Disable, some)
		assert.NoError(t, leaveB())
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"a": "0,2"}, h.now(), "whoever is given it")
		leaveC := h.join("c", 4, nil)
		say(o.Disable, operator.Scope{Instances: []string{"a"}})
		assert.Equal(t, map[string]string{"c": "0,2"}, h.now())
		assert.NoError(t, leaveC())
		time.Sleep(time.Second)
		assert.Empty(t, h.now())
		say(o.Enable, operator.Scope{Instances: []string{"a"}})
		say(o.Enable, some)
		assert.Equal(t, map[string]string{"a": "0-3"}, h.now())
		assert.NoError(t, leaveA())
	})
	holding(t, "keeps what is disabled with an owner that does not let go", func(t *testing.T, h *holders) {
		release := make(chan struct{})
		leave := h.join("a", 2, func(ctx context.Context, _ Owned) error {
			<-ctx.Done()
			<-release
			return nil
		})
		o, err := operator.New(h.server.Client("console"), "test", "")
		require.NoError(t, err)
		require.NoError(t, o.Disable(t.Context(), operator.Scope{Job: "shards", Shards: []int{0}}))
		time.Sleep(time.Hour)
		assert.Equal(t, map[string]string{"a": "0-1"}, h.now())
		close(release)
		time.Sleep(time.Second)
		assert.Equal(t, map[string]string{"a": "1"}, h.now())
		assert.NoError(t, leave())
	})
	holding(t, "goes by no clock, and tells none", func(t *testing.T, h *holders) {
		leaveA, leaveB := h.join("a", 4, nil), h.join("b", 4, nil)
		time.Sleep(time.Minute)
		for _, e := range h.server.Dump() {
			assert.NotContains(t, string(e.Value), `"clock"`, "%s", e.Key)
		}
		assert.NoError(t, leaveA())
		assert.NoError(t, leaveB())
	})
	t.Run("reports an invalid configuration at once", func(t *testing.T) {
		own := func(context.Context, Owned) error { return nil }
		for want, cfg := range map[string]Config{
			"Own is nil":      {Namespace: "test", Shards: 1},
			"Shards is 0":     {Namespace: "test", Own: own},
			"Shards is 10001": {Namespace: "test", Own: own, Shards: 10_001},
			`strategy "none"`: {Namespace: "test", Own: own, Shards: 1, Strategy: "none"},
			"namespace":       {Own: own, Shards: 1},
			"instance":        {Namespace: "test", Own: own, Shards: 1, Instance: "a/b"},
		} {
			err := Join(t.Context(), memory.New().Client("a"), cfg)
			assert.ErrorContains(t, err, want)
		}
	})
	holding(t, "fails with ErrNameTaken if a live instance has the name", func(t *testing.T, h *holders) {
		leave := h.join("a", 1, nil)
		err := Join(t.Context(), h.server.Client("other"), Config{
			Namespace: "test", Instance: "a", Shards: 1, Logger: slog.New(slog.DiscardHandler),
			Own: func(context.Context, Owned) error { return nil },
		})
		assert.ErrorIs(t, err, member.ErrNameTaken)
		assert.NoError(t, leave())
	})
}
