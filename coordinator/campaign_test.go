package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/lock"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

const officeName = "billing/leader"

// candidate is a Campaign in a goroutine, on a machine of its own.
type candidate struct {
	t    *testing.T
	name string
	reg  registry.Registry
	end  context.CancelCauseFunc // of the campaign
	done chan struct{}
	err  error

	mu      sync.Mutex
	terms   []uint64
	leading context.Context // of the last call of lead
	leave   chan error      // makes lead return
	deaf    bool            // lead ignores the end of its context
	calls   int             // that have not returned
}

// campaign adds a candidate. Its campaign is ended with the test.
func campaign(t *testing.T, s *memory.Server, name string) *candidate {
	return (&candidate{name: name, reg: s.Client(name)}).start(t)
}

func (c *candidate) start(t *testing.T) *candidate {
	c.t, c.done, c.leave = t, make(chan struct{}), make(chan error)
	t.Cleanup(func() { assert.NoError(t, c.reg.Close(context.Background())) })
	var ctx context.Context
	ctx, c.end = context.WithCancelCause(context.Background())
	go func() {
		defer close(c.done)
		c.err = coordinator.Campaign(ctx, c.reg, officeName, c.lead)
	}()
	t.Cleanup(func() {
		c.end(errTestOver)
		<-c.done
	})
	return c
}

// deaf is campaign for one whose lead ignores the end of its context.
func deaf(t *testing.T, s *memory.Server, name string) *candidate {
	return (&candidate{name: name, reg: s.Client(name), deaf: true}).start(t)
}

// unaware is campaign for a candidate whose sessions do not observe their end.
func unaware(t *testing.T, s *memory.Server, name string) *candidate {
	return (&candidate{name: name, reg: unawareRegistry{s.Client(name)}}).start(t)
}

var errTestOver = errors.New("test over")

func (c *candidate) lead(ctx context.Context, term uint64) error {
	c.mu.Lock()
	c.terms = append(c.terms, term)
	c.leading = ctx
	c.calls++
	assert.Equal(c.t, 1, c.calls, "two calls of lead")
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls--
	}()
	ended := ctx.Done()
	if c.deaf {
		ended = nil
	}
	select {
	case err := <-c.leave:
		return err
	case <-ended:
		return ctx.Err()
	}
}

// leads reports whether c is in lead, under a context that has not ended.
func (c *candidate) leads() bool {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls > 0 && c.leading.Err() == nil
}

func (c *candidate) term() uint64 {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.terms[len(c.terms)-1]
}

// returned is what the campaign returned by now.
func (c *candidate) returned() error {
	c.t.Helper()
	synctest.Wait()
	select {
	case <-c.done:
		return c.err
	default:
		require.FailNow(c.t, "the campaign has not returned", c.name)
		return nil
	}
}

func inBubble(t *testing.T, name string, f func(t *testing.T, s *memory.Server)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, memory.New()) })
	})
}

func TestCampaign_ElectsOne(t *testing.T) {
	inBubble(t, "of many, and the others in the order in which they came", func(t *testing.T, s *memory.Server) {
		var all []*candidate
		for i := range 10 {
			all = append(all, campaign(t, s, fmt.Sprintf("c%d", i)))
			synctest.Wait()
		}
		var last uint64
		for i, c := range all {
			for j, other := range all {
				require.Equal(t, i == j, other.leads(), "%s while %s should lead", other.name, c.name)
			}
			require.Greater(t, c.term(), last)
			last = c.term()
			c.end(errTestOver)
			require.ErrorIs(t, c.returned(), errTestOver)
		}
	})

	inBubble(t, "by one commit", func(t *testing.T, s *memory.Server) {
		require.True(t, campaign(t, s, "a").leads())
		assert.Equal(t, 1, s.Counts("").Commits)
		assert.Zero(t, s.Counts("").Conflicts)
	})

	inBubble(t, "at each commit, whatever befalls them", func(t *testing.T, s *memory.Server) {
		// Each leader writes its term under its guard, so the stored values show the order of terms.
		s.Record()
		setup := s.Client("setup")
		defer setup.Close(t.Context()) //nolint:errcheck // it has no sessions
		_, err := setup.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("term", []byte("0"))}})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		names := []string{"a", "b", "c"}
		for _, name := range names {
			reg := s.Client(name)
			all.Go(func() {
				defer reg.Close(context.Background()) //nolint:errcheck // may be cut off
				err := coordinator.Campaign(ctx, reg, officeName, func(ctx context.Context, term uint64) error {
					writeTerms(ctx, t, reg, term)
					return ctx.Err()
				})
				assert.ErrorIs(t, err, context.Canceled)
			})
		}
		for i := range 60 {
			time.Sleep(7 * time.Second)
			name := names[i%3]
			switch i % 5 {
			case 0:
				s.Expire(name)
			case 1:
				time.AfterFunc(25*time.Second, s.Partition(name))
			case 2:
				s.LoseReply(name, 2)
			case 3:
				time.AfterFunc(time.Minute, s.PartitionOneWay(name, memory.Replies))
			case 4:
				time.AfterFunc(20*time.Second, s.HoldWatch(name))
			}
		}
		time.Sleep(2 * time.Minute)
		stop()
		all.Wait()
		judgeTerms(t, s.Log())
	})
}

// writeTerms writes term to a key under the guard of the term, until that ends. It goes on
// a little longer, as a process would that was paused.
func writeTerms(ctx context.Context, t *testing.T, reg registry.Registry, term uint64) {
	sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Hour)
	defer cancel()
	guard := coordinator.TermGuard(ctx)
	for late := 0; late < 3; {
		if ctx.Err() != nil {
			late++
		}
		e, err := reg.Get(sending, "term", registry.ReadOptions{Fresh: true})
		if err == nil {
			_, err = reg.Txn(sending, registry.Txn{
				If:   []registry.Cond{guard},
				Then: []registry.Op{registry.Set("term", e.Modified, fmt.Append(nil, term))},
			})
		}
		if err != nil {
			known := registry.Retryable(err) || errors.Is(err, registry.ErrConflict)
			assert.True(t, known, "%v", err)
		}
		time.Sleep(time.Second)
	}
}

// judgeTerms requires that each write was made in the term that it names, and that terms
// grow.
func judgeTerms(t *testing.T, log []memory.Commit) {
	var term, written uint64
	terms, writes := 0, 0
	for _, c := range log {
		if !c.Changed() {
			continue
		}
		for _, o := range c.Then {
			switch o.Key {
			case officeName + "/owner":
				term = c.Rev.Seq
				terms++
			case "term":
				if o.Kind == registry.OpSet {
					assert.Equal(t, fmt.Sprint(term), string(o.Value), "at %d", c.Rev.Seq)
					assert.GreaterOrEqual(t, term, written)
					written = term
					writes++
				}
			}
		}
	}
	assert.Greater(t, terms, 10)
	assert.Greater(t, writes, 200)
}

func TestCampaign_HandsOver(t *testing.T) {
	inBubble(t, "by one commit when its context ends", func(t *testing.T, s *memory.Server) {
		a := campaign(t, s, "a")
		require.True(t, a.leads())
		b := campaign(t, s, "b")
		require.False(t, b.leads())
		c := campaign(t, s, "c")
		require.False(t, c.leads())
		s.ResetCounts()
		s.Record()
		a.end(errTestOver)
		require.ErrorIs(t, a.returned(), errTestOver)
		require.True(t, b.leads())
		change := s.Log()[0]
		require.Equal(t, "a", change.Client, "the one who resigns names the next")
		require.Equal(t, b.term(), change.Rev.Seq)
		n := s.Counts("")
		assert.Equal(t, 1, n.Commits)
		assert.Zero(t, n.Conflicts)
		assert.Zero(t, n.Reads)
	})

	inBubble(t, "at once when a process closes its registry", func(t *testing.T, s *memory.Server) {
		a := campaign(t, s, "a")
		require.True(t, a.leads())
		b := campaign(t, s, "b")
		require.False(t, b.leads())
		require.NoError(t, a.reg.Close(t.Context()))
		require.True(t, b.leads())
		err := a.returned()
		require.ErrorIs(t, err, registry.ErrClosed)
		require.ErrorContains(t, err, officeName)
	})

	inBubble(t, "when a leader falls silent, as soon as its session has run out", func(t *testing.T, s *memory.Server) {
		a := campaign(t, s, "a")
		require.True(t, a.leads())
		b := campaign(t, s, "b")
		require.False(t, b.leads())
		heal := s.Partition("a")
		time.Sleep(registry.DefaultSessionTTL - time.Nanosecond)
		require.False(t, b.leads())
		require.False(t, a.leads(), "it knows before the next begins")
		require.ErrorIs(t, context.Cause(a.leading), registry.ErrSessionLost)
		time.Sleep(time.Nanosecond)
		require.True(t, b.leads())

		heal()
		time.Sleep(time.Minute)
		require.False(t, a.leads())
		first := a.term()
		b.leave <- nil
		require.True(t, a.leads(), "it campaigns again, with a new session")
		require.Greater(t, a.term(), b.term())
		require.Greater(t, b.term(), first)
	})

	inBubble(t, "to others when lead ignores the end of its context", func(t *testing.T, s *memory.Server) {
		a := deaf(t, s, "a")
		require.True(t, a.leads())
		b := campaign(t, s, "b")
		require.False(t, b.leads())
		s.Expire("a")
		require.True(t, b.leads())

		// a's call lasts, so a campaigns no more until it has returned.
		time.Sleep(time.Hour)
		require.True(t, b.leads())
		require.Len(t, a.terms, 1)
		s.ResetCounts()
		b.leave <- nil
		require.NoError(t, b.returned())
		require.Len(t, a.terms, 1)
		a.leave <- errors.New("dropped")
		time.Sleep(time.Second) // sessions are opened with pauses between them
		require.True(t, a.leads())
		require.Len(t, a.terms, 2)
		a.leave <- nil
		require.NoError(t, a.returned())
	})

	inBubble(t, "not before lead has returned while the session lives", func(t *testing.T, s *memory.Server) {
		a := deaf(t, s, "a")
		require.True(t, a.leads())
		b := campaign(t, s, "b")
		require.False(t, b.leads())
		a.end(errTestOver)
		time.Sleep(time.Hour)
		require.False(t, b.leads())
		a.leave <- nil
		require.ErrorIs(t, a.returned(), errTestOver)
		require.True(t, b.leads())
	})

	inBubble(t, "past one that gave up waiting", func(t *testing.T, s *memory.Server) {
		a := campaign(t, s, "a")
		require.True(t, a.leads())
		b, c := campaign(t, s, "b"), (*candidate)(nil)
		require.False(t, b.leads())
		c = campaign(t, s, "c")
		require.False(t, c.leads())
		b.end(errTestOver)
		require.Equal(t, errTestOver, b.returned())
		a.end(errTestOver)
		require.True(t, c.leads())
	})
}

func TestCampaign_Returns(t *testing.T) {
	errLead := errors.New("lead failed")

	inBubble(t, "what lead returned in office, after resigning", func(t *testing.T, s *memory.Server) {
		for _, result := range []error{nil, errLead} {
			a := campaign(t, s, "a")
			require.True(t, a.leads())
			a.leave <- result
			require.Equal(t, result, a.returned())
			require.Equal(t, 0, s.Counts("").Sessions)
			require.Equal(t, 0, s.Counts("").Watches)
			require.Len(t, s.Dump(), 1, "the record of the office")
			require.JSONEq(t, `{"lock":1}`, string(s.Dump()[0].Value))
		}
	})

	inBubble(t, "what lead returned in office, also if the session is lost after that", func(t *testing.T, s *memory.Server) {
		reg := &eventful{Registry: s.Client("a")}
		a := (&candidate{name: "a", reg: reg}).start(t)
		require.True(t, a.leads())
		reg.afterTxn = func() { s.Expire("a") }
		a.leave <- errLead
		require.Equal(t, errLead, a.returned())
		require.Len(t, a.terms, 1)
	})

	inBubble(t, "the cause of its context", func(t *testing.T, s *memory.Server) {
		a := campaign(t, s, "a")
		require.True(t, a.leads())
		a.end(errTestOver)
		require.Equal(t, errTestOver, a.returned())

		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errTestOver)
		err := coordinator.Campaign(ctx, a.reg, officeName, func(context.Context, uint64) error { return nil })
		require.Equal(t, errTestOver, err)
	})

	inBubble(t, "the error of lead as well if that says more", func(t *testing.T, s *memory.Server) {
		a := deaf(t, s, "a")
		require.True(t, a.leads())
		a.end(errTestOver)
		a.leave <- errLead
		err := a.returned()
		require.ErrorIs(t, err, errTestOver)
		require.ErrorIs(t, err, errLead)
	})

	inBubble(t, "its context's cause while the registry is away", func(t *testing.T, s *memory.Server) {
		a := campaign(t, s, "a")
		require.True(t, a.leads())
		defer s.Partition("a")()
		a.end(errTestOver)
		began := time.Now()
		<-a.done
		require.Equal(t, errTestOver, a.returned())
		assert.LessOrEqual(t, time.Since(began), 10*time.Second)
	})

	inBubble(t, "errors that name it when it cannot go on", func(t *testing.T, s *memory.Server) {
		reg := s.Client("a")
		defer reg.Close(t.Context()) //nolint:errcheck // it has no sessions
		nobody := func(context.Context, uint64) error { panic("lead is called") }
		for name, want := range map[string]error{
			"":          registry.ErrInvalidKey,
			"a//b":      registry.ErrInvalidKey,
			"a/~b":      registry.ErrInvalidKey,
			"not/there": lock.ErrRecord,
		} {
			if want == lock.ErrRecord { //nolint:errorlint // this very error
				_, err := reg.Txn(t.Context(), registry.Txn{Then: []registry.Op{registry.Create("not/there/x", nil)}})
				require.NoError(t, err)
			}
			err := coordinator.Campaign(t.Context(), reg, name, nobody)
			require.ErrorIs(t, err, want)
			require.ErrorContains(t, err, "campaign")
			require.ErrorContains(t, err, name)
		}
		err := coordinator.Campaign(t.Context(), reg, "a", nil)
		require.ErrorContains(t, err, "campaign for a: lead is nil")
		require.Equal(t, 0, s.Counts("").Sessions)
	})

	inBubble(t, "never on a loss that lead was told of by the store", func(t *testing.T, s *memory.Server) {
		a := unaware(t, s, "a")
		require.True(t, a.leads())
		first := a.term()
		s.Expire("a")
		a.leave <- fmt.Errorf("write: %w", registry.ErrSessionLost)
		require.True(t, a.leads())
		require.Greater(t, a.term(), first)
		a.leave <- fmt.Errorf("of another registry: %w", registry.ErrSessionLost)
		require.ErrorIs(t, a.returned(), registry.ErrSessionLost)
	})

	inBubble(t, "never on a loss that it learns of by resigning", func(t *testing.T, s *memory.Server) {
		a := unaware(t, s, "a")
		require.True(t, a.leads())
		b := campaign(t, s, "b")
		require.False(t, b.leads())
		s.Expire("a")
		require.True(t, b.leads())
		a.leave <- nil
		require.False(t, a.leads())
		b.leave <- nil
		require.True(t, a.leads())
		require.Len(t, a.terms, 2)
	})

	inBubble(t, "never on a loss that ends its place in line", func(t *testing.T, s *memory.Server) {
		b := campaign(t, s, "b")
		require.True(t, b.leads())
		a := unaware(t, s, "a")
		require.False(t, a.leads())
		s.Expire("a")
		require.False(t, a.leads())
		b.leave <- nil
		require.True(t, a.leads())
	})

	inBubble(t, "the panic of lead, and the office is free", func(t *testing.T, s *memory.Server) {
		reg := s.Client("a")
		defer reg.Close(t.Context()) //nolint:errcheck // its sessions are closed
		require.PanicsWithValue(t, "oh", func() {
			_ = coordinator.Campaign(t.Context(), reg, officeName, func(context.Context, uint64) error { panic("oh") })
		})
		require.True(t, campaign(t, s, "b").leads())
	})
}

// eventful is a registry with which something happens after each Txn.
type eventful struct {
	registry.Registry
	afterTxn func()
}

func (r *eventful) Txn(ctx context.Context, t registry.Txn) (registry.Rev, error) {
	rev, err := r.Registry.Txn(ctx, t)
	if r.afterTxn != nil {
		r.afterTxn()
	}
	return rev, err
}

// unawareRegistry has sessions that do not know of their end.
type unawareRegistry struct{ registry.Registry }

func (r unawareRegistry) OpenSession(ctx context.Context, o registry.SessionOptions) (registry.Session, error) {
	s, err := r.Registry.OpenSession(ctx, o)
	return unawareSession{s}, err
}

type unawareSession struct{ registry.Session }

func (unawareSession) Lost() <-chan struct{} { return nil }
func (unawareSession) Err() error            { return nil }

func TestTermGuard(t *testing.T) {
	inBubble(t, "holds during the term and not after it", func(t *testing.T, s *memory.Server) {
		a := campaign(t, s, "a")
		require.True(t, a.leads())
		guarded := registry.Txn{If: []registry.Cond{coordinator.TermGuard(a.leading)}}
		_, err := a.reg.Txn(t.Context(), guarded)
		require.NoError(t, err)
		require.False(t, campaign(t, s, "b").leads())
		_, err = a.reg.Txn(t.Context(), guarded)
		require.NoError(t, err)
		a.leave <- nil
		require.NoError(t, a.returned())
		_, err = a.reg.Txn(t.Context(), guarded)
		require.ErrorIs(t, err, registry.ErrConflict)
	})

	inBubble(t, "is no condition outside of a campaign", func(t *testing.T, s *memory.Server) {
		reg := s.Client("a")
		defer reg.Close(t.Context()) //nolint:errcheck // it has no sessions
		_, err := reg.Txn(t.Context(), registry.Txn{If: []registry.Cond{coordinator.TermGuard(t.Context())}})
		require.ErrorIs(t, err, registry.ErrInvalidTxn)
	})

	inBubble(t, "goes with contexts that are made of lead's", func(t *testing.T, s *memory.Server) {
		a := campaign(t, s, "a")
		require.True(t, a.leads())
		inner, cancel := context.WithCancel(a.leading)
		defer cancel()
		require.Equal(t, coordinator.TermGuard(a.leading), coordinator.TermGuard(inner))
		require.Equal(t, a.term(), coordinator.TermGuard(inner).Rev.Seq)
	})
}
