package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry"
)

// jobName is the name of the demo's job.
const jobName = "census"

// census is the job of the demo: each shard counts its files.
type census struct {
	files     []string
	namespace string
	report    func(event) // called by runs, from their goroutines
}

// event is a step of a run.
type event struct {
	Kind     eventKind `json:"kind"`
	At       time.Time `json:"at"`
	Instance string    `json:"instance"`
	Shard    int       `json:"shard"`
	Attempt  int       `json:"attempt"`
	Done     int       `json:"done"`  // files
	Total    int       `json:"total"` // files
	Error    string    `json:"error,omitempty"`
}

type eventKind string

const (
	eventBegins eventKind = "begins"
	eventCounts eventKind = "counts"
	eventStored eventKind = "stored"
	eventFails  eventKind = "fails" // another attempt would fail, too
)

// newExecutor returns an instance that takes part in the census.
func newExecutor(reg registry.Registry, c *census, name string, shards int, ttl time.Duration) (*executor.Executor, error) {
	e, err := executor.New(reg, c.namespace, executor.Options{
		Instance: name, SessionTTL: ttl, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	return e, e.Register(executor.Job{
		Name: jobName, Shards: shards, Handler: executor.HandlerFunc(c.count),
		MaxRunning: shards, // no run waits for a worker, so the claims on display are runs
	})
}

// resultKey is where a shard's tally is stored.
func resultKey(namespace string, shard int) registry.Key {
	return registry.Join(namespace, "results", fmt.Sprintf("%05d", shard))
}

// count is the handler: it counts the files of the shard and stores the tally. The transaction
// fails if the run's session has ended, or if the shard has a tally.
func (c *census) count(ctx context.Context, r *executor.Run) error {
	var mine []string
	for i := r.Shard; i < len(c.files); i += r.Shards {
		mine = append(mine, c.files[i])
	}
	report := func(kind eventKind, done int, err error) {
		e := event{
			Kind: kind, At: time.Now(), Instance: r.Instance, Shard: r.Shard, Attempt: r.Attempt, Done: done, Total: len(mine),
		}
		if err != nil {
			e.Error = err.Error()
		}
		c.report(e)
	}
	report(eventBegins, 0, nil)
	var sum counter
	for i, path := range mine {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := sum.add(path); err != nil {
			report(eventFails, i, err)
			return err
		}
		if done := i + 1; done == (len(mine)+3)/4 || done%16 == 0 {
			report(eventCounts, done, nil)
		}
	}
	value, err := json.Marshal(sum.tally)
	if err != nil {
		return err
	}
	_, err = r.Commit(ctx, registry.Create(resultKey(c.namespace, r.Shard), value))
	earlier := errors.Is(err, registry.ErrConflict) && r.Attempt > 1 // the attempt before stored it and was then killed
	if err != nil && !earlier {
		return fmt.Errorf("store the tally: %w", err)
	}
	report(eventStored, len(mine), nil)
	return nil
}

// awaitAnswers returns a function that reports an event, and after an eventCounts waits for a byte of
// answers or its end.
func awaitAnswers(report func(event), answers io.Reader) func(event) {
	var mu sync.Mutex
	return func(e event) {
		report(e)
		if e.Kind == eventCounts {
			mu.Lock()
			defer mu.Unlock()
			_, _ = answers.Read(make([]byte, 1))
		}
	}
}

// reportTo returns a function that writes events as lines.
func reportTo(out io.Writer) func(event) {
	var mu sync.Mutex
	lines := json.NewEncoder(out)
	return func(e event) {
		mu.Lock()
		defer mu.Unlock()
		_ = lines.Encode(e) // the reading process may have ended
	}
}
