package transcript_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/handler"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/test/transcript"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/schedule"
)

var update = flag.Bool("update", false, "write the transcripts in testdata and the blocks of pages")

// stage runs a scenario: executors on a memory registry, in virtual time.
type stage struct {
	t          *testing.T
	server     *memory.Server
	transcript *transcript.Transcript
	processes  []*process
	clocks     map[string]*atomic.Int64 // how far they are ahead, by instance
}

// process is one process of an instance.
type process struct {
	instance string
	client   string // the name by which the store knows it
	executor *executor.Executor
}

// delays of messages differ between instances. So commits of different clients never share an
// instant, and a scenario has the same transcript each time.
var delays = map[string]time.Duration{"a": 1000 * time.Microsecond, "b": 1300 * time.Microsecond, "c": 1700 * time.Microsecond}

// compareScenario runs a scenario and compares its transcript with the file in testdata.
func compareScenario(t *testing.T, scenario func(s *stage)) {
	t.Helper()
	var got string
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		scenario(s)
		require.NoError(t, s.transcript.Add(s.server.Log()))
		got = s.transcript.String()
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

func newStage(t *testing.T) *stage {
	t.Helper()
	keys, err := record.NewKeys("scenarios", "default")
	require.NoError(t, err)
	s := &stage{t: t, server: memory.New(), transcript: transcript.New(keys, time.Now()), clocks: map[string]*atomic.Int64{}}
	s.server.Record()
	return s
}

// start starts a process of an instance. A second process of the instance has a prime after its name.
func (s *stage) start(instance string, jobs ...executor.Job) {
	p := &process{instance: instance, client: instance}
	for _, earlier := range s.processes {
		if earlier.instance == instance {
			p.client += "'"
		}
	}
	s.transcript.Note("%s starts", p.client)
	client := s.server.Client(p.client)
	s.server.Delay(p.client, delays[instance], delays[instance])
	var err error
	clock := s.clock(instance)
	p.executor, err = executor.New(client, "scenarios", executor.Options{
		Instance: instance, Host: "host-" + instance, SessionTTL: 6 * time.Second, Workers: 8, Logger: slog.New(slog.DiscardHandler),
		Clock: func() time.Time { return time.Now().Add(time.Duration(clock.Load())) },
	})
	require.NoError(s.t, err)
	require.NoError(s.t, p.executor.Register(jobs...))
	require.NoError(s.t, p.executor.Start(s.t.Context()))
	s.processes = append(s.processes, p)
	time.Sleep(time.Second) // so that the first instance leads before the next one joins
}

// process returns the newest process of an instance.
func (s *stage) process(instance string) *process {
	for i := len(s.processes) - 1; i >= 0; i-- {
		if s.processes[i].instance == instance {
			return s.processes[i]
		}
	}
	s.t.Fatalf("no process %s", instance)
	return nil
}

// advance lets time pass until an instant, counted from the start.
func (s *stage) advance(to time.Duration) {
	time.Sleep(time.Until(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(to)))
	synctest.Wait()
}

func (s *stage) clock(instance string) *atomic.Int64 {
	if s.clocks[instance] == nil {
		s.clocks[instance] = &atomic.Int64{}
	}
	return s.clocks[instance]
}

// setClock sets how far the clock of an instance is ahead of the right time.
func (s *stage) setClock(instance string, ahead time.Duration) {
	s.transcript.Note("the clock of %s is set %v ahead", instance, ahead)
	s.clock(instance).Store(int64(ahead))
}

// crash cuts a process off from the store for good.
func (s *stage) crash(instance string) {
	p := s.process(instance)
	s.transcript.Note("%s crashes", p.client)
	s.server.Partition(p.client)
}

// shutdown shuts a process down with a drain.
func (s *stage) shutdown(instance string) {
	p := s.process(instance)
	s.transcript.Note("%s shuts down", p.client)
	go func() { // it waits for handlers
		if err := p.executor.Shutdown(context.Background()); err != nil {
			s.t.Error(err)
		}
	}()
}

// operate calls an operator's function on the executor of an instance.
func (s *stage) operate(instance, what string, do func(ctx context.Context, ex *executor.Executor) error) {
	s.transcript.Note("an operator asks %s to %s", instance, what)
	require.NoError(s.t, do(s.t.Context(), s.process(instance).executor))
}

// end stops all processes, after the end of the transcript.
func (s *stage) end() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	for _, p := range s.processes {
		var abandoned *executor.AbandonedError
		if err := p.executor.Shutdown(now); err != nil && !errors.As(err, &abandoned) {
			s.t.Error(err)
		}
	}
}

// newJob returns a job that fires every ten seconds. Each shard runs 300 ms longer than the one
// before it: ends that are close together would be written in one commit or in two by chance.
func newJob(shards int, takes time.Duration) executor.Job {
	return executor.Job{
		Name: "pay", Schedule: schedule.Every(10 * time.Second), Shards: shards,
		Handler: executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
			select {
			case <-ctx.Done():
				return fmt.Errorf("canceled: %w", context.Cause(ctx))
			case <-time.After(takes + time.Duration(r.Shard)*300*time.Millisecond):
				return nil
			}
		}),
	}
}

// newDataflow returns a data flow of items whose offsets are their numbers. Each page takes a second.
func newDataflow(items, pageSize int) handler.Dataflow[int] {
	return handler.Dataflow[int]{
		PageSize: pageSize,
		Fetch: func(ctx context.Context, p *handler.Page) ([]int, error) {
			offset, err := p.Offset(ctx)
			if err != nil {
				return nil, err
			}
			from, _ := strconv.Atoi(string(offset))
			n := min(p.Size, items-from)
			p.Next = []byte(strconv.Itoa(from + n))
			return make([]int, n), nil
		},
		Process: func(context.Context, *handler.Page, []int) error {
			time.Sleep(time.Second)
			return nil
		},
	}
}
