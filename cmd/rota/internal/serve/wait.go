package serve

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/rota-dev/rota/internal/registryurl"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
)

const (
	// defaultWaitForStore is longer than a store takes to return after a power loss. Hosts start in any order.
	defaultWaitForStore = 5 * time.Minute
	// The pauses between two attempts to connect double up to the longest.
	firstStorePause, longestStorePause = time.Second, 5 * time.Second
	// storeReportEvery is the time between two records of a wait.
	storeReportEvery = time.Minute
)

// errEnded is the cause of a wait that a signal or the end of the parent has ended.
var errEnded = errors.New("the process ends")

// awaitStore connects to the registry. While the store is away it tries again, up to --wait-for-store. It returns errEnded
// if the process has to end meanwhile.
func (s *server) awaitStore(ctx context.Context, with registryurl.Options) (registry.Registry, error) {
	if s.target.url == "memory" {
		return memory.New().Client("rota-run"), nil
	}
	waiting, end := context.WithCancelCause(ctx)
	defer end(nil)
	type outcome struct {
		reg registry.Registry
		err error
	}
	connected := make(chan outcome, 1)
	go func() {
		reg, err := s.connectRepeatedly(waiting, with)
		connected <- outcome{reg, err}
	}()
	for {
		select {
		case o := <-connected:
			if waiting.Err() == nil {
				return o.reg, o.err
			}
			if o.err == nil {
				closeRegistry(o.reg)
			}
			s.log.Info("ended before the store answered", "cause", context.Cause(waiting).Error())
			return nil, errEnded
		case sig := <-s.signals:
			switch {
			case sig == syscall.SIGHUP:
				s.again = true // the file is read again once the store has answered
			case s.signaled:
				return nil, s.endAtOnce(sig)
			default:
				s.signaled = true
				end(errors.New(sig.String()))
			}
		}
	}
}

// connectRepeatedly connects to the registry, and waits while an error is one that passes.
func (s *server) connectRepeatedly(ctx context.Context, with registryurl.Options) (registry.Registry, error) {
	since := time.Now()
	var reported time.Time
	for pause := firstStorePause; ; pause = min(2*pause, longestStorePause) {
		reg, err := s.connect(ctx, s.target.url, with)
		waited := time.Since(since)
		switch {
		case err == nil && !reported.IsZero():
			s.log.Info("the store answers", "registry", s.target.url, "waited", waited.Round(time.Second))
			fallthrough
		case err == nil:
			return reg, nil
		case ctx.Err() != nil || !passes(err) || s.waitForStore <= 0:
			return nil, err
		case waited >= s.waitForStore:
			return nil, fmt.Errorf("no store for %v, see --wait-for-store: %w", waited.Round(time.Second), err)
		}
		s.health.setState(fmt.Sprintf("the store has not answered since %s: %v", since.UTC().Format(time.RFC3339), err))
		if reported.IsZero() || time.Since(reported) >= storeReportEvery {
			reported = time.Now()
			s.log.Warn("the store does not answer; no job runs here until it does", "registry", s.target.url, "since", since.UTC().Format(time.RFC3339),
				"waits_until", since.Add(s.waitForStore).UTC().Format(time.RFC3339), "error", err)
		}
		select {
		case <-time.After(min(pause, s.waitForStore-waited)):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// passes reports whether a connection that failed with err may succeed later without a change of settings: no server
// answered, or none that has a leader. A wrong password, missing rights, an unsupported version or a wrong certificate remain.
func passes(err error) bool {
	if !errors.Is(err, registry.ErrUnavailable) || errors.Is(err, registry.ErrUnauthenticated) || errors.Is(err, registry.ErrPermission) {
		return false
	}
	// The client libraries keep the texts of crypto/tls and crypto/x509 alone, which begin so.
	text := err.Error()
	return !strings.Contains(text, "tls: ") && !strings.Contains(text, "x509: ")
}
