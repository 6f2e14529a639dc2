package rotatest

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

func TestRun_Finds(t *testing.T) {
	t.Run("runs of a shard that overlap", func(t *testing.T) {
		said := failures(t, func(f *Fleet) {
			job := every(time.Hour, 1, takes(10*time.Minute))
			f.Start("a", job)
			f.NextFire("job")
			f.Start("b", job)
			observe := f.Server().HoldWatch("a") // its leader would write the plan again before b claims
			tamper(f, func(p *record.Plan) {     // gives a's running shard to b, and forgets what was claimed
				b := slices.IndexFunc(f.Server().Dump(), func(e registry.Entry) bool {
					return strings.Contains(string(e.Key), "/members/b.")
				})
				p.Owners = map[string]shardset.Set{f.Server().Dump()[b].Key.Name(): shardset.Of(0)}
			})
			f.Sleep(time.Second)
			observe()
			f.Sleep(time.Minute)
		})
		text := strings.Join(said, "\n")
		assert.Contains(t, text, "job/0: claimed twice: the run for 2000-01-01 01:00:00")
		assert.Contains(t, text, "was claimed while a run on a stood on record")
		assert.Contains(t, text, "run rotatest/default/job/0/2000-01-01T01:00:00Z/1 began a second time, on b")
		assert.Contains(t, text, "run rotatest/default/job/0/2000-01-01T01:00:00Z/1 began on b at 2000-01-01 01:00:00 "+
			"while run rotatest/default/job/0/2000-01-01T01:00:00Z/1, on a since 2000-01-01 01:00:00, had not ended")
	})

	t.Run("a fire that was passed over", func(t *testing.T) {
		said := failures(t, func(f *Fleet) {
			f.Start("a", every(time.Hour, 2, takes(0)))
			const before = 10 * time.Second // a watermark that is further ahead is cut back
			time.Sleep(time.Hour - before)
			f.Stop("a") // a leader would write its plan again
			tamper(f, func(p *record.Plan) {
				p.Watermarks = p.Watermarks.Raise(shardset.Of(1), record.Watermark{Epoch: 1, Fire: record.InstantOf(time.Now().Add(before))})
			})
			f.Start("b", every(time.Hour, 2, takes(0)))
			f.NextFire("job")
			f.NextFire("job")
			f.Settle()
			require.Len(t, f.Runs("job"), 3)
		})
		require.Len(t, said, 1)
		require.Contains(t, said[0], "rotatest: commit of saboteur at ")
		require.Contains(t, said[0], "job/1: lost: the plan passes over 1 fires of these shards")
	})

	t.Run("a fire that nobody claims", func(t *testing.T) {
		said := failures(t, func(f *Fleet) {
			f.Start("a", every(time.Hour, 2, takes(0)))
			f.Server().Pause() // no claim arrives, and no session expires
			f.NextFire("job")
		})
		require.NotEmpty(t, said)
		require.Contains(t, said[0], "rotatest: lost: job/0-1: have not claimed the fire of 2000-01-01 01:00:00, and no instance has claimed it in 5m0s")
	})
}

// tamper changes the plan of the job behind the leader's back.
func tamper(f *Fleet, change func(*record.Plan)) {
	for _, e := range f.Server().Dump() {
		if !strings.HasSuffix(string(e.Key), "/plan/job") {
			continue
		}
		p, err := record.DecodePlan(e.Value)
		require.NoError(f.T(), err)
		change(p)
		value, err := record.Encode(p)
		require.NoError(f.T(), err)
		_, err = f.Server().Client("saboteur").Txn(f.T().Context(), registry.Txn{
			Then: []registry.Op{registry.Set(e.Key, e.Modified, value)},
		})
		require.NoError(f.T(), err)
	}
}

func TestRun_AcceptsWhatIsOwedForAReason(t *testing.T) {
	for name, test := range map[string]func(*Fleet){
		"an empty fleet": func(*Fleet) {},
		"a test that ends at a fire": func(f *Fleet) {
			f.Start("a", every(time.Hour, 2, takes(time.Minute)))
			time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)))
		},
		"a run that takes its time": func(f *Fleet) {
			f.Start("a", every(time.Hour, 2, takes(24*time.Hour)))
			f.NextFire("job")
			f.NextFire("job")
		},
		"a handler that ignores its context for a while": func(f *Fleet) {
			f.Start("a", every(time.Hour, 2, ignores(5*time.Hour)))
			f.NextFire("job")
		},
		"a run that waits for a worker": func(f *Fleet) {
			f.Options.Workers = 1
			f.Start("a", every(time.Hour, 2, takes(24*time.Hour)))
			f.NextFire("job")
			f.NextFire("job")
		},
		"a handler that ignores the loss of its session": func(f *Fleet) {
			f.Start("a", every(time.Hour, 2, ignores(5*time.Hour)))
			f.NextFire("job")
			heal := f.Partition("a")
			f.Sleep(time.Minute)
			heal()
			f.NextFire("job")
		},
		"a zombie": func(f *Fleet) {
			f.Start("a", every(time.Hour, 2, ignores(10*time.Minute)))
			f.NextFire("job")
			f.Crash("a")
		},
		"a zombie that outlives its process by seconds": func(f *Fleet) {
			f.Start("a", every(time.Hour, 2, ignores(7*time.Second)))
			f.NextFire("job")
			f.Crash("a")
		},
		"a process that drains": func(f *Fleet) {
			f.Options.DrainTimeout = 24 * time.Hour
			e := f.Start("a", every(time.Hour, 2, executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
				return takes(time.Duration(r.Shard)*5*time.Hour)(ctx, r)
			})))
			f.NextFire("job")
			go func() { assert.NoError(f.T(), e.Shutdown(context.Background())) }()
			f.NextFire("job")
		},
		"a paused job": func(f *Fleet) {
			e := f.Start("a", every(time.Hour, 2, takes(0)))
			require.NoError(f.T(), e.Operator().Pause(f.T().Context(), "job"))
			f.Sleep(3 * time.Hour)
		},
		"a fleet that crashed": func(f *Fleet) {
			f.Start("a", every(time.Hour, 2, takes(time.Minute)))
			f.NextFire("job")
			f.Crash("a")
			f.Sleep(3 * time.Hour)
		},
		"a crash at the end": func(f *Fleet) {
			job := every(time.Hour, 2, takes(time.Minute))
			f.Start("a", job)
			f.Start("b", job)
			f.NextFire("job")
			f.Crash("a")
		},
		"a fleet that stopped": func(f *Fleet) {
			f.Start("a", every(time.Hour, 2, takes(time.Minute)))
			f.Stop("a")
			f.Sleep(3 * time.Hour)
		},
		"a job that nobody offers any more": func(f *Fleet) {
			e := f.Start("a", every(time.Hour, 2, takes(time.Minute)))
			require.NoError(f.T(), e.Withdraw(f.T().Context(), "job"))
			f.Sleep(3 * time.Hour)
		},
		"an executor that the test shuts down": func(f *Fleet) {
			e := f.Start("a", every(time.Hour, 2, takes(time.Minute)))
			require.NoError(f.T(), e.Shutdown(f.T().Context()))
			f.Sleep(3 * time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) { require.Empty(t, failures(t, test)) })
	}
}

// fatal returns tests that end as no test can end that is to pass. Each is run in a process
// of its own.
func fatal() map[string]func(t *testing.T) {
	return map[string]func(t *testing.T){
		"a goroutine that is left": func(t *testing.T) {
			Run(t, func(f *Fleet) {
				go func() {
					for {
						time.Sleep(time.Second)
					}
				}()
			})
		},
		"a handler that never returns": func(t *testing.T) {
			Run(t, func(f *Fleet) {
				f.Start("a", every(time.Hour, 1, executor.HandlerFunc(func(context.Context, *executor.Run) error { select {} })))
				f.NextFire("job")
				f.Crash("a")
			})
		},
		"FailNow on the outer test": func(t *testing.T) {
			Run(t, func(f *Fleet) {
				f.Start("a", every(time.Hour, 1, takes(0)))
				f.NextFire("job")
				f.Server().Pause() // so that the next fire would be lost
				f.NextFire("job")
				require.Fail(t, "enough")
				t.Error("not reached")
			})
			t.Error("not reached")
		},
		"FailNow in a handler": func(t *testing.T) {
			Run(t, func(f *Fleet) {
				f.Start("a", every(time.Hour, 1, executor.HandlerFunc(func(context.Context, *executor.Run) error {
					require.Fail(t, "in a handler")
					return nil
				})))
				f.NextFire("job")
				f.Settle()
			})
		},
		"a lost fire": func(t *testing.T) {
			Run(t, func(f *Fleet) {
				f.Start("a", every(time.Hour, 1, takes(0)))
				tamper(f, func(p *record.Plan) {
					p.Watermarks = p.Watermarks.Raise(shardset.Of(0), record.Watermark{Epoch: 1, Fire: record.InstantOf(time.Now().Add(2 * time.Hour))})
				})
			})
		},
		"FailNow while runs are under way": func(t *testing.T) {
			Run(t, func(f *Fleet) {
				f.Start("a", every(time.Hour, 8, takes(time.Hour)))
				f.NextFire("job")
				f.Options.Logger = slog.New(slog.NewTextHandler(f.T().Output(), nil)).With("own", true)
				f.Start("b", executor.Job{Name: "other", Handler: takes(time.Hour)})
				_, err := f.process("trigger", "b").ex.Trigger(context.Background(), "other", executor.Trigger{})
				require.NoError(t, err)
				f.Sleep(time.Minute)
				t.Fatal("enough")
			})
		},
		"a socket in the bubble": func(t *testing.T) {
			stuckAfter = 100 * time.Millisecond
			Run(t, func(f *Fleet) {
				server := httptest.NewServer(http.NotFoundHandler())
				defer server.Close()
				f.Start("a", every(time.Hour, 1, takes(0)))
				f.NextFire("job")
			})
		},
		"a connection that is kept": func(t *testing.T) {
			stuckAfter = 100 * time.Millisecond
			server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			defer server.Close()
			Run(t, func(f *Fleet) {
				f.Start("a", every(time.Hour, 1, executor.HandlerFunc(func(context.Context, *executor.Run) error {
					resp, err := http.Get(server.URL)
					if err != nil {
						return err
					}
					return resp.Body.Close()
				})))
				f.NextFire("job")
				f.Settle()
			})
		},
		"a lock that is held outside": func(t *testing.T) {
			stuckAfter = 100 * time.Millisecond
			var mu sync.Mutex
			mu.Lock()
			Run(t, func(f *Fleet) {
				f.Start("a", every(time.Hour, 1, executor.HandlerFunc(func(context.Context, *executor.Run) error {
					lockForGood(&mu)
					return nil
				})))
				f.NextFire("job")
				f.Settle()
			})
		},
		"a panic": func(t *testing.T) {
			Run(t, func(f *Fleet) {
				f.Start("a", every(time.Hour, 1, takes(time.Hour)))
				f.NextFire("job")
				t.Error("before")
				panic("boo")
			})
		},
	}
}

func lockForGood(mu *sync.Mutex) { mu.Lock() }

func TestRun_FailsATest(t *testing.T) {
	const which = "ROTATEST_FATAL"
	if test, ok := fatal()[os.Getenv(which)]; ok {
		t.Run("inner", test)
		t.Run("next", func(t *testing.T) { t.Log("goes on") })
		return
	}
	for name, c := range map[string]struct{ has, lacks []string }{
		"a goroutine that is left": {
			[]string{"the test cannot end, because goroutines are left: deadlock", "run_test.go", "goes on"},
			[]string{"panic:"},
		},
		"a handler that never returns": {
			[]string{
				"the handler of run rotatest/default/job/0/2000-01-01T01:00:00Z/1, called on a at 2000-01-01 01:00:00, has not returned " +
					"though its context has ended (session lost: a crashed)",
				"the test cannot end, because goroutines are left: deadlock", "recordedHandler", "goes on",
			},
			[]string{"panic:"},
		},
		"FailNow on the outer test": {
			[]string{"enough", "goes on"},
			[]string{"not reached", "Goexit", "panic:", ": lost: "},
		},
		"FailNow in a handler": {
			[]string{"in a handler", "goes on"},
			[]string{"panic:"},
		},
		"FailNow while runs are under way": {
			[]string{"enough", "goes on", "msg=leading namespace", `msg="left the fleet" own=true`},
			[]string{`msg="run failed" namespace`, `msg="left the fleet" namespace`}, // lines of the clean-up
		},
		"a socket in the bubble": {
			[]string{
				"panic: rotatest: TestRun_FailsATest/inner is stuck: the clock of its bubble stands still",
				"waits (IO wait) in net/http/httptest.(*Server).goServe.func1:",
			},
			[]string{"goes on", "test timed out", "(durable)"},
		},
		"a connection that is kept": {
			[]string{"waits (IO wait) in net/http.(*persistConn).readLoop:"},
			[]string{"goes on", "test timed out"},
		},
		"a lock that is held outside": {
			[]string{"waits (sync.Mutex.Lock) in ", "rotatest.lockForGood:"},
			[]string{"goes on", "test timed out"},
		},
		"a lost fire": {
			[]string{"job/0: lost: the plan passes over 2 fires", "goes on"},
			[]string{"panic:"},
		},
		"a panic": {
			[]string{"before", "panic: boo", "run_test.go"},
			[]string{"goes on", "goroutines are left"},
		},
	} {
		t.Run("by "+name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+"TestRun_FailsATest"+"$", "-test.v")
			cmd.Env = append(os.Environ(), which+"="+name)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			for _, text := range c.has {
				assert.Contains(t, string(out), text)
			}
			for _, text := range c.lacks {
				assert.NotContains(t, string(out), text)
			}
			if t.Failed() {
				t.Logf("%s", out)
			}
		})
	}
}
