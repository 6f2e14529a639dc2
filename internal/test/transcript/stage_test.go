package transcript_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/test/transcript"
	"github.com/rota-dev/rota/registry/memory"
)

var update = flag.Bool("update", false, "write the transcripts of testdata")

// stage is where a story is played: executors on a registry in memory, in virtual time.
type stage struct {
	t      *testing.T
	server *memory.Server
	told   *transcript.Transcript
	actors []*actor
	clocks map[string]*atomic.Int64 // how far they are ahead, by instance
}

// actor is a process.
type actor struct {
	name    string // of the instance
	machine string
	ex      *executor.Executor
	gone    bool
}

// delays keep instants of different machines apart, so that what happens at one instant
// happens on one machine, and a story is the same each time it is played.
var delays = map[string]time.Duration{"a": 1000 * time.Microsecond, "b": 1300 * time.Microsecond, "c": 1700 * time.Microsecond}

// play plays a story and compares its transcript with the one in testdata.
func play(t *testing.T, story func(s *stage)) {
	t.Helper()
	var got string
	synctest.Test(t, func(t *testing.T) {
		keys, err := record.NewKeys("stories", "default")
		require.NoError(t, err)
		s := &stage{t: t, server: memory.New(), told: transcript.New(keys, time.Now()), clocks: map[string]*atomic.Int64{}}
		s.server.Record()
		story(s)
		require.NoError(t, s.told.Take(s.server.Log()))
		got = s.told.String()
		s.end()
	})
	path := filepath.Join("testdata", strings.ReplaceAll(filepath.Base(t.Name()), "_", "-")+".txt")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "read the difference; if it is meant: go test ./internal/test/transcript -update")
}

// start has an instance join, as a new process if it was there before.
func (s *stage) start(name string, jobs ...executor.Job) {
	a := &actor{name: name, machine: name}
	for _, b := range s.actors {
		if b.name == name {
			a.machine += "'"
		}
	}
	s.told.Note("%s starts", a.machine)
	client := s.server.Client(a.machine)
	s.server.Delay(a.machine, delays[name], delays[name])
	var err error
	clock := s.clock(name)
	a.ex, err = executor.New(client, "stories", executor.Options{
		Instance: name, Host: "host-" + name, SessionTTL: 6 * time.Second, Workers: 8, Logger: slog.New(slog.DiscardHandler),
		Clock: func() time.Time { return time.Now().Add(time.Duration(clock.Load())) },
	})
	require.NoError(s.t, err)
	require.NoError(s.t, a.ex.Register(jobs...))
	require.NoError(s.t, a.ex.Start(s.t.Context()))
	s.actors = append(s.actors, a)
	time.Sleep(time.Second) // the first leads, before the next comes
}

// process returns the one of an instance that was started last.
func (s *stage) process(name string) *actor {
	for i := len(s.actors) - 1; i >= 0; i-- {
		if s.actors[i].name == name {
			return s.actors[i]
		}
	}
	s.t.Fatalf("no process %s", name)
	return nil
}

// at lets time pass until so long after the beginning, and begins a scene.
func (s *stage) at(after time.Duration) {
	time.Sleep(time.Until(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(after)))
	synctest.Wait()
}

func (s *stage) clock(name string) *atomic.Int64 {
	if s.clocks[name] == nil {
		s.clocks[name] = &atomic.Int64{}
	}
	return s.clocks[name]
}

// sets sets the clock of an instance, to be so far ahead of the right time.
func (s *stage) sets(name string, ahead time.Duration) {
	s.told.Note("the clock of %s is set %v ahead", name, ahead)
	s.clock(name).Store(int64(ahead))
}

// crash ends a process without a word: nothing that it does is heard of any more.
func (s *stage) crash(name string) {
	a := s.process(name)
	s.told.Note("%s crashes", a.machine)
	s.server.Partition(a.machine)
	a.gone = true
}

// stop stops a process in good order.
func (s *stage) stop(name string) {
	a := s.process(name)
	s.told.Note("%s stops", a.machine)
	a.gone = true
	go func() { // a handler may take its time
		if err := a.ex.Shutdown(context.Background()); err != nil {
			s.t.Error(err)
		}
	}()
}

// operator does what an operator does by the process of an instance.
func (s *stage) operator(name, what string, do func(ctx context.Context, ex *executor.Executor) error) {
	s.told.Note("%s is asked to %s", name, what)
	require.NoError(s.t, do(s.t.Context(), s.process(name).ex))
}

// end ends all processes. It is no part of the story.
func (s *stage) end() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	for _, a := range s.actors {
		var abandoned *executor.AbandonedError
		if err := a.ex.Shutdown(now); err != nil && !errors.As(err, &abandoned) {
			s.t.Error(err)
		}
	}
}

// every is a job that is due every ten seconds, whose runs take so long, and each shard's
// a little longer than those before: which ends are written together would else differ.
func every(shards int, takes time.Duration) executor.Job {
	return executor.Job{
		Name: "pay", Schedule: executor.Every(10 * time.Second), Shards: shards,
		Handler: executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
			select {
			case <-ctx.Done():
				return fmt.Errorf("ended: %w", context.Cause(ctx))
			case <-time.After(takes + time.Duration(r.Shard)*300*time.Millisecond):
				return nil
			}
		}),
	}
}
