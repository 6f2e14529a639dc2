package serve

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/cmd/rota/internal/exit"
	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

// away returns a process whose store answers after a time, and the number of attempts to connect.
func away(path string, d time.Duration, cause error) (p *process, attempts *atomic.Int32) {
	p, attempts = newProcess(path), new(atomic.Int32)
	p.registry, p.waitForStore = "fake://store", defaultWaitForStore
	begin := time.Now()
	p.schemes = registryurl.Schemes{"fake": func(ctx context.Context, _ string, _ registryurl.Options) (registry.Registry, error) {
		attempts.Add(1)
		if time.Since(begin) < d {
			return nil, cause
		}
		return memory.New().Client("a"), nil
	}}
	return p, attempts
}

var errRefused = fmt.Errorf("%w: connection refused", registry.ErrUnavailable)

func TestRun_WaitsForAStoreThatIsAwayAtItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, attempts := away(writeFile(t, hello), 4*time.Minute, errRefused)
		p.start(t.Context())
		time.Sleep(3*time.Minute + 30*time.Second)
		synctest.Wait()
		waits := p.find(t, "the store does not answer; no job runs here until it does")
		require.Len(t, waits, 4, "one for each minute")
		assert.Equal(t, "WARN", waits[3]["level"])
		assert.Contains(t, waits[3]["error"], "connection refused")
		assert.Equal(t, "2000-01-01T00:00:00Z", waits[3]["since"])
		assert.Equal(t, "2000-01-01T00:05:00Z", waits[3]["waits_until"])
		assert.Less(t, attempts.Load(), int32(60))
		time.Sleep(time.Minute)
		answers := p.find(t, "the store answers")
		require.Len(t, answers, 1)
		assert.NotEmpty(t, p.lines(t, "hello"))
		p.signals <- syscall.SIGTERM
		require.NoError(t, p.await(t))
	})
}

func TestRun_EndsIfTheStoreIsAwayForTooLong(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		0:               "connect to fake://store: registry unavailable: connection refused",
		7 * time.Second: "no store for 7s, see --wait-for-store: connect to fake://store",
	} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			p, _ := away(writeFile(t, hello), time.Hour, errRefused)
			p.waitForStore = wait
			err := run(t.Context(), p.options)
			require.ErrorContains(t, err, want)
			assert.Equal(t, exit.Failed, exit.CodeOf(err))
			assert.Equal(t, wait, time.Since(begin))
		})
	}
}

func TestRun_DoesNotWaitForWhatStaysWrong(t *testing.T) {
	for name, cause := range map[string]error{
		"a password":      fmt.Errorf("%w: authentication failed", registry.ErrUnauthenticated),
		"missing rights":  fmt.Errorf("%w: no right to read", registry.ErrPermission),
		"one member only": errors.Join(errRefused, fmt.Errorf("%w: authentication failed", registry.ErrUnauthenticated)),
		"a certificate":   fmt.Errorf("%w: transport: authentication handshake failed: tls: failed to verify certificate: x509: unknown authority", registry.ErrUnavailable),
		"no TLS there":    fmt.Errorf("%w: tls: first record does not look like a TLS handshake", registry.ErrUnavailable),
		"a version":       errors.New("etcd 3.2 is too old"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				p, attempts := away(writeFile(t, hello), time.Hour, cause)
				err := run(t.Context(), p.options)
				require.ErrorIs(t, err, cause)
				assert.Equal(t, exit.Failed, exit.CodeOf(err))
				assert.Zero(t, time.Since(begin))
				assert.EqualValues(t, 1, attempts.Load())
			})
		})
	}
}

// Flags and the file are checked while the store is away.
func TestRun_RefusesWrongSettingsBeforeTheWait(t *testing.T) {
	for name, change := range map[string]func(p *process){
		"workers": func(p *process) { p.workers = -1 },
		"label":   func(p *process) { p.labels = map[string]string{fileLabel: "a"} },
		"history": func(p *process) { rewrite(t, p.file, "history: {url: \"postgres://a/b\", password_env: NOPE}\n"+hello) },
		"wait":    func(p *process) { p.waitForStore = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			p, attempts := away(writeFile(t, hello), time.Hour, errRefused)
			change(p)
			err := run(t.Context(), p.options)
			require.Error(t, err)
			assert.Equal(t, exit.Usage, exit.CodeOf(err))
			assert.Zero(t, attempts.Load())
		})
	}
}

func TestRun_EndsTheWaitAtASignal(t *testing.T) {
	for name, stop := range map[string]func(p *process, cancel context.CancelFunc){
		"SIGTERM":        func(p *process, _ context.CancelFunc) { p.signals <- syscall.SIGTERM },
		"SIGINT":         func(p *process, _ context.CancelFunc) { p.signals <- syscall.SIGINT },
		"end of context": func(_ *process, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				p, _ := away(writeFile(t, hello), time.Hour, errRefused)
				p.start(ctx)
				time.Sleep(30*time.Second + time.Millisecond)
				begin := time.Now()
				stop(p, cancel)
				require.NoError(t, p.await(t))
				assert.Zero(t, time.Since(begin))
				assert.Len(t, p.find(t, "ended before the store answered"), 1)
			})
		})
	}
}

func TestRun_ReloadsTheFileThatChangedDuringTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := writeFile(t, hello)
		p, _ := away(path, time.Minute, errRefused)
		p.start(t.Context())
		time.Sleep(30 * time.Second)
		rewrite(t, path, "jobs:\n  bye: {every: 10s, command: [/bin/echo, bye]}\n")
		p.signals <- syscall.SIGHUP
		time.Sleep(2 * time.Minute)
		assert.Len(t, p.find(t, "file reloaded"), 1)
		assert.NotEmpty(t, p.lines(t, "bye"))
		p.signals <- syscall.SIGTERM
		require.NoError(t, p.await(t))
	})
}

func TestRun_EndsTheWaitAtOnceAtTheSecondSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := away(writeFile(t, hello), time.Hour, errRefused)
		p.schemes["fake"] = func(ctx context.Context, _ string, _ registryurl.Options) (registry.Registry, error) {
			<-ctx.Done()
			time.Sleep(time.Minute) // a client library that is slow to notice
			return nil, ctx.Err()
		}
		p.start(t.Context())
		synctest.Wait()
		begin := time.Now()
		p.signals <- syscall.SIGTERM
		synctest.Wait()
		p.signals <- syscall.SIGTERM
		assert.Equal(t, 128+15, exit.CodeOf(p.await(t)))
		assert.Equal(t, []int{128 + 15}, p.exits)
		assert.Zero(t, time.Since(begin))
		time.Sleep(time.Hour)
	})
}
