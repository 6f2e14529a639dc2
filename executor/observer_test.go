package executor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/coordinator"
	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/operator"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/schedule"
)

// eventLog is what observers of a fleet have received, one line for each event.
type eventLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *eventLog) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

// with returns the lines that begin with a prefix, in order.
func (l *eventLog) with(prefix string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.HasPrefix(line, prefix) {
			out = append(out, line)
		}
	}
	return out
}

// observer returns an observer of all events of an instance.
func (l *eventLog) observer(instance string) executor.Observer {
	return executor.Observer{
		RunClaimed: func(e executor.RunClaimed) { l.add("%s claimed %s", instance, e.Run.ID) },
		RunBegun:   func(e executor.RunBegun) { l.add("%s begun %s", instance, e.Run.ID) },
		RunEnded: func(e executor.RunEnded) {
			began := "not begun"
			if !e.Started.IsZero() {
				began = "took " + e.Ended.Sub(e.Started).String()
			}
			l.add("%s ended %s: %v, %s, error %v", instance, e.Run.ID, e.Outcome, began, e.Err)
		},
		RunCrashed: func(e executor.RunCrashed) {
			l.add("%s lost run %s of %s, made again %v", instance, e.Run.ID, e.Run.Instance, e.Rerun)
		},
		FiresSkipped: func(e executor.FiresSkipped) {
			l.add("%s skipped %d of %s %v: %v", instance, e.Count, e.Job, e.Shards, e.Reason)
		},
		FireEnded: func(e executor.FireEnded) {
			l.add("%s fire %s #%d of %s ended: succeeded %v, %d shards, %d failed, %d skipped, repeated %v, at %s", instance, e.FireTime.Format("04:05"), e.Trigger,
				e.Job, e.Succeeded(), e.Shards, e.Failed, e.Skipped, e.Repeated, e.Ended.Format("04:05"))
		},
		ShardsChanged: func(e executor.ShardsChanged) {
			l.add("%s shards of %s: gained %v, lost %v, moving %v, owns %d", instance, e.Job, e.Gained, e.Lost, e.Moving, e.Owned)
		},
		SessionChanged:    func(e executor.SessionChanged) { l.add("%s session %v, error %v", instance, e.State, e.Err != nil) },
		LeadershipChanged: func(e executor.LeadershipChanged) { l.add("%s leads %v", instance, e.Leading) },
		ClockChanged:      func(e executor.ClockChanged) { l.add("%s clock skewed %v by %v", instance, e.Skewed, e.Ahead) },
	}
}

func last(lines []string) string { return lines[len(lines)-1] }

var errBroken = errors.New("broken")

func TestObserver_Runs(t *testing.T) {
	bubble(t, "are claimed, begun and ended, with their outcomes", func(t *testing.T, f *fleet) {
		l := &eventLog{}
		e := f.executor("a", executor.Options{Observer: l.observer("a")}, 1, takes(0))
		outcome := func(name string, handle executor.HandlerFunc) executor.Job {
			return executor.Job{Name: name, Schedule: schedule.Every(time.Hour), Handler: handle, Timeout: 3 * time.Second}
		}
		require.NoError(t, e.Register(
			outcome("good", takes(2*time.Second)),
			outcome("bad", func(context.Context, *executor.Run) error { return errBroken }),
			outcome("slow", func(ctx context.Context, _ *executor.Run) error { <-ctx.Done(); return errBroken }),
			outcome("loud", func(context.Context, *executor.Run) error { panic("at once") }),
			outcome("gone", func(context.Context, *executor.Run) error { runtime.Goexit(); return nil }),
		))
		require.NoError(t, e.Start(t.Context()))
		for _, job := range []string{"good", "bad", "slow", "loud", "gone"} {
			_, err := e.Trigger(t.Context(), job, executor.Trigger{})
			require.NoError(t, err)
			time.Sleep(5 * time.Second)
			id := "test/default/" + job + "/0/#1-"
			assert.Len(t, l.with("a claimed "+id), 1)
			assert.Len(t, l.with("a begun "+id), 1)
		}
		for id, want := range map[string]string{
			"good": "succeeded, took 2s, error <nil>", "bad": "failed, took 0s, error broken", "slow": "timed out, took 3s, error broken",
			"loud": "panicked, took 0s, error handler panicked: at once", "gone": "failed, took 0s, error handler called runtime.Goexit, as t.FailNow does",
		} {
			ended := l.with("a ended test/default/" + id + "/0/#1-")
			require.Len(t, ended, 1)
			assert.True(t, strings.HasSuffix(ended[0], "/1: "+want), ended[0])
		}
	})
	bubble(t, "that wait for a worker end without a begin when they are handed back", func(t *testing.T, f *fleet) {
		l := &eventLog{}
		e := f.executor("a", executor.Options{Observer: l.observer("a"), Workers: 1, DrainTimeout: time.Second}, 2, func(ctx context.Context, _ *executor.Run) error {
			<-ctx.Done()
			return errBroken
		})
		require.NoError(t, e.Start(t.Context()))
		time.Sleep(61 * time.Second)
		require.NoError(t, e.Shutdown(t.Context()))
		require.Len(t, l.with("a begun"), 1)
		var handedBack, notBegun int
		for _, line := range l.with("a ended") {
			handedBack += strings.Count(line, "handed back, ")
			notBegun += strings.Count(line, "not begun")
		}
		assert.Equal(t, 2, handedBack, "%v", l.with("a ended"))
		assert.Equal(t, 1, notBegun)
		assert.Len(t, l.with("a session left"), 1, "Shutdown delivers the events")
	})
	bubble(t, "that outlive the shutdown are abandoned", func(t *testing.T, f *fleet) {
		l := &eventLog{}
		e := f.executor("a", executor.Options{Observer: l.observer("a"), DrainTimeout: time.Second}, 1, func(context.Context, *executor.Run) error {
			time.Sleep(time.Minute)
			return nil
		})
		require.NoError(t, e.Start(t.Context()))
		time.Sleep(61 * time.Second)
		var abandoned *executor.AbandonedError
		require.ErrorAs(t, e.Shutdown(t.Context()), &abandoned)
		assert.Len(t, l.with("a ended test/default/job/0/"), 1)
		assert.Contains(t, l.with("a ended test/default/job/0/")[0], ": abandoned, took 7s, error draining")
		time.Sleep(2 * time.Minute)
		assert.Len(t, l.with("a ended test/default/job/0/"), 1, "nothing is observed after the shutdown")
	})
}

func TestObserver_Fleet(t *testing.T) {
	minutely := func(shards int, handle executor.HandlerFunc) executor.Job {
		return executor.Job{Name: "job", Schedule: schedule.Every(time.Minute), Shards: shards, Handler: handle, MaxAttempts: 2}
	}
	start := func(f *rotatest.Fleet, l *eventLog, instance string, jobs ...executor.Job) *executor.Executor {
		f.Options.Observer = l.observer(instance)
		return f.Start(instance, jobs...)
	}
	t.Run("sessions and leadership, shards that move, and shards of a stopped instance", func(t *testing.T) {
		rotatest.Run(t, func(f *rotatest.Fleet) {
			l := &eventLog{}
			start(f, l, "a", minutely(4, takes(10*time.Second)))
			f.Settle()
			assert.Equal(t, []string{"a session joined, error false"}, l.with("a session"))
			assert.Equal(t, []string{"a leads true"}, l.with("a leads"))
			assert.Equal(t, []string{"a shards of job: gained [0 1 2 3], lost [], moving [], owns 4"}, l.with("a shards"))
			f.SleepUntil(f.NextFire("job").Add(time.Second)) // the shards that move run
			start(f, l, "b", minutely(4, takes(10*time.Second)))
			f.Settle()
			assert.Regexp(t, `moving \[\d \d\], owns 4`, l.with("a shards")[1])
			assert.Regexp(t, `gained \[\], lost \[.+\], moving \[\], owns 2`, last(l.with("a shards")))
			assert.Regexp(t, `gained \[.+\], lost \[\], moving \[\], owns 2`, last(l.with("b shards")))
			f.Stop("a")
			f.Settle()
			assert.Equal(t, []string{"a session joined, error false", "a session left, error false"}, l.with("a session"))
			assert.Equal(t, []string{"a leads true", "a leads false"}, l.with("a leads"))
			assert.Equal(t, []string{"b leads true"}, l.with("b leads"))
			assert.Regexp(t, `gained \[\], lost \[.+\], moving \[\], owns 0`, last(l.with("a shards")))
			assert.Regexp(t, `gained \[.+\], lost \[\], moving \[\], owns 4`, last(l.with("b shards")))
		})
	})
	t.Run("a lost session, and the runs that the leader fails over", func(t *testing.T) {
		rotatest.Run(t, func(f *rotatest.Fleet) {
			l := &eventLog{}
			stuck := func(ctx context.Context, r *executor.Run) error {
				if r.Instance != "b" {
					return nil
				}
				if <-ctx.Done(); r.Shard == 1 {
					return nil
				}
				return context.Cause(ctx)
			}
			start(f, l, "a", minutely(1, stuck))
			start(f, l, "b", executor.Job{Name: "other", Schedule: schedule.Every(time.Minute), Shards: 2, Handler: executor.HandlerFunc(stuck)})
			f.Settle()
			f.SleepUntil(f.NextFire("other").Add(time.Second))
			fire := f.NextFire("other").Add(-time.Minute).UTC().Format(time.RFC3339)
			heal := f.Partition("b")
			f.Sleep(time.Minute)
			heal()
			assert.Equal(t, []string{
				"a lost run rotatest/default/other/0/" + fire + "/1 of b, made again true", "a lost run rotatest/default/other/1/" + fire + "/1 of b, made again true",
			}, l.with("a lost run"))
			f.Sleep(10 * time.Second)
			assert.Equal(t, []string{"b session joined, error false", "b session suspended, error false", "b session lost, error true", "b session joined, error false"}, l.with("b session"))
			assert.Contains(t, l.with("b shards")[1], "gained [], lost [0 1], moving [], owns 0")
			for _, shard := range []string{"0", "1"} { // with and without an error
				require.Len(t, l.with("b ended rotatest/default/other/"+shard+"/"+fire+"/1"), 1)
				assert.Contains(t, l.with("b ended rotatest/default/other/" + shard + "/" + fire + "/1")[0], "session lost, took")
			}
			f.Stop("b")
		})
	})
	t.Run("a suspended session that is kept", func(t *testing.T) {
		rotatest.Run(t, func(f *rotatest.Fleet) {
			l := &eventLog{}
			start(f, l, "a", minutely(1, takes(0)))
			f.Settle()
			heal := f.Partition("a")
			f.Sleep(5 * time.Second)
			heal()
			f.Settle()
			assert.Equal(t, []string{"a session joined, error false", "a session suspended, error false", "a session resumed, error false"}, l.with("a session"))
		})
	})
	t.Run("fires that are skipped, with the reason", func(t *testing.T) {
		rotatest.Run(t, func(f *rotatest.Fleet) {
			l := &eventLog{}
			a := start(f, l, "a", minutely(2, takes(150*time.Second)))
			f.SleepUntil(f.NextFire("job").Add(5 * time.Minute))
			assert.Regexp(t, `^a skipped 1 of job \[.*\]: misfire$`, l.with("a skipped")[0])
			require.NoError(t, a.Operator().Disable(t.Context(), operator.Scope{Job: "job", Shards: []int{1}}))
			f.Sleep(10 * time.Minute)
			require.NoError(t, a.Operator().Enable(t.Context(), operator.Scope{Job: "job", Shards: []int{1}}))
			assert.Contains(t, l.with("a skipped"), "a skipped 1 of job [1]: disabled")
			f.Sleep(time.Minute)
			f.Stop("a")
			start(f, l, "b", executor.Job{Name: "other", Handler: executor.HandlerFunc(takes(0))})
			f.Sleep(coordinator.MaxUnoffered + 10*time.Minute)
			start(f, l, "c", minutely(2, takes(0)))
			f.Settle()
			require.NotEmpty(t, l.with("b skipped"), "the leader skips what was due")
			assert.Contains(t, l.with("b skipped")[0], ": unoffered")
		})
	})
	t.Run("clocks", func(t *testing.T) {
		rotatest.Run(t, func(f *rotatest.Fleet) {
			l := &eventLog{}
			for _, name := range []string{"a", "b", "c"} {
				start(f, l, name, minutely(3, takes(0)))
			}
			f.Sleep(time.Minute)
			f.SetClock("b", 10*time.Second)
			f.Sleep(2 * time.Minute)
			f.SetClock("b", 0)
			f.Sleep(2 * time.Minute)
			assert.Equal(t, []string{"b clock skewed true by 10s", "b clock skewed false by 0s"}, l.with("b clock"))
		})
	})
}

func TestObserver_Delivery(t *testing.T) {
	bubble(t, "in order, to all observers", func(t *testing.T, f *fleet) {
		var order []string
		note := func(who string) executor.Observer {
			return executor.Observer{
				RunClaimed: func(executor.RunClaimed) { order = append(order, who+" claimed") },
				RunEnded:   func(executor.RunEnded) { order = append(order, who+" ended") },
			}
		}
		e := f.executor("a", executor.Options{Observer: note("first")}, 1, takes(0))
		e.Observe(note("second"))
		require.NoError(t, e.Start(t.Context()))
		time.Sleep(61 * time.Second)
		require.NoError(t, e.Shutdown(t.Context()))
		assert.Equal(t, []string{"first claimed", "second claimed", "first ended", "second ended"}, order)
	})
	bubble(t, "to a slow callback delays no run, and drops events beyond ten thousand", func(t *testing.T, f *fleet) {
		log := &logbook{}
		received := 0
		e := f.executor("a", executor.Options{Logger: log.logger(slog.LevelInfo), Observer: executor.Observer{
			RunEnded: func(executor.RunEnded) {
				if received++; received <= 2 {
					time.Sleep(100 * time.Second)
				}
			},
		}}, 4000, takes(0))
		require.NoError(t, e.Start(t.Context()))
		time.Sleep(181 * time.Second) // three fires
		assert.Len(t, f.began(3), 4000)
		assert.EqualValues(t, 1998, e.DroppedEvents(), "10,000 wait, one is being delivered, and one has been")
		assert.Len(t, log.lines("level=WARN", "events dropped"), 1)
		time.Sleep(118 * time.Second)
		require.NoError(t, e.Shutdown(t.Context()))
		assert.EqualValues(t, 4*4000-received, e.DroppedEvents())
		lines, logged := log.lines("level=WARN", "events dropped"), 0
		for _, line := range lines {
			_, rest, _ := strings.Cut(line, " events=")
			n := 0
			fmt.Sscan(rest, &n)
			logged += n
		}
		assert.EqualValues(t, e.DroppedEvents(), logged)
		assert.Len(t, lines, 3, "one a minute, and the rest at the end")
	})
	bubble(t, "continues during a shutdown for a second at most", func(t *testing.T, f *fleet) {
		received := 0
		e := f.executor("a", executor.Options{Observer: executor.Observer{
			RunEnded: func(executor.RunEnded) { received++; time.Sleep(300 * time.Millisecond) },
		}}, 10, takes(0))
		require.NoError(t, e.Start(t.Context()))
		time.Sleep(time.Minute + 10*time.Millisecond)
		began := time.Now()
		require.NoError(t, e.Shutdown(t.Context()))
		assert.InDelta(t, time.Second, time.Since(began), float64(100*time.Millisecond))
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 4, received)
		assert.EqualValues(t, 6, e.DroppedEvents())
	})
	bubble(t, "survives panics and Goexit", func(t *testing.T, f *fleet) {
		log := &logbook{}
		received := 0
		e := f.executor("a", executor.Options{Logger: log.logger(slog.LevelInfo), Observer: executor.Observer{
			RunClaimed: func(executor.RunClaimed) { panic(io.ErrUnexpectedEOF) },
			RunBegun:   func(executor.RunBegun) { runtime.Goexit() },
			RunEnded:   func(executor.RunEnded) { received++ },
		}}, 100, takes(0))
		require.NoError(t, e.Start(t.Context()))
		time.Sleep(121 * time.Second)
		require.NoError(t, e.Shutdown(t.Context()))
		assert.Equal(t, 200, received)
		lines := log.lines("level=ERROR", "callback of an observer panicked", "unexpected EOF", "stack=")
		assert.Len(t, lines, 2, "one a minute")
		assert.Contains(t, lines[1], "panics=100")
	})
	bubble(t, "ends by itself when the registry is closed", func(t *testing.T, f *fleet) {
		l := &eventLog{}
		client := f.server.Client("a")
		e, err := executor.New(client, "test", executor.Options{Instance: "a", Logger: slog.New(slog.DiscardHandler), Observer: l.observer("a")})
		require.NoError(t, err)
		require.NoError(t, e.Register(f.job(1, takes(0))))
		ended := make(chan error, 1)
		go func() { ended <- e.Run(t.Context()) }()
		time.Sleep(time.Second)
		require.NoError(t, client.Close(t.Context()))
		require.Error(t, <-ended)
		synctest.Wait()
		assert.Equal(t, []string{"a session joined, error false", "a session lost, error true"}, l.with("a session"))
	})
}

func TestObserver_TextForms(t *testing.T) {
	check := func(t *testing.T, values int, value func(i int) (text []byte, again fmt.Stringer, err error)) {
		t.Helper()
		seen := map[string]bool{}
		for i := 1; i <= values; i++ {
			text, again, err := value(i)
			require.NoError(t, err)
			assert.Equal(t, string(text), again.String())
			assert.NotEqual(t, "unknown", string(text))
			seen[string(text)] = true
		}
		assert.Len(t, seen, values)
		for _, i := range []int{0, values + 1} {
			text, _, err := value(i)
			assert.Equal(t, "unknown", string(text))
			assert.ErrorContains(t, err, `"unknown" is none of ["`)
		}
	}
	check(t, int(executor.SkipUpstream), func(i int) ([]byte, fmt.Stringer, error) {
		text, _ := executor.SkipReason(i).MarshalText()
		var again executor.SkipReason
		err := again.UnmarshalText(text)
		return text, again, err
	})
	check(t, int(executor.SessionLeft), func(i int) ([]byte, fmt.Stringer, error) {
		text, _ := executor.SessionState(i).MarshalText()
		var again executor.SessionState
		err := again.UnmarshalText(text)
		return text, again, err
	})
}

func TestEventsPage_HasEveryEvent(t *testing.T) {
	page, err := os.ReadFile("../docs/guide/events.md")
	require.NoError(t, err)
	var documented, events []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Za-z]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		documented = append(documented, m[1])
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[executor.Observer]()) {
		if f.Name != "RunLog" { // which is no event, and has a paragraph
			events = append(events, f.Name)
		}
	}
	slices.Sort(documented)
	slices.Sort(events)
	assert.Equal(t, events, documented)
}
