package handler_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/handler"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/registry/memory"
	"github.com/rota-dev/rota/rotatest"
	"github.com/rota-dev/rota/schedule"
)

// numbers is a source of the items 0 to end-1, whose offsets are the items themselves.
type numbers struct{ end int }

func (n numbers) fetch(ctx context.Context, p *handler.Page) ([]int, error) {
	offset, err := p.Offset(ctx)
	if err != nil {
		return nil, err
	}
	from, _ := strconv.Atoi(string(offset))
	var items []int
	for i := from; i < min(from+p.Size, n.end); i++ {
		items = append(items, i)
	}
	p.Next = strconv.AppendInt(nil, int64(from+len(items)), 10)
	return items, nil
}

// processed records the calls of Process.
type processed struct {
	mu    sync.Mutex
	calls [][]int
}

func (c *processed) process(_ context.Context, _ *handler.Page, items []int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, items)
	return nil
}

func (c *processed) times() map[int]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	times := map[int]int{}
	for _, items := range c.calls {
		for _, item := range items {
			times[item]++
		}
	}
	return times
}

func offsetOf(t *testing.T, r *executor.Run) string {
	t.Helper()
	data, err := r.Resume(t.Context())
	require.NoError(t, err)
	return string(data)
}

func TestDataflow_Pages(t *testing.T) {
	t.Run("a run of a literal fetches until there are no items, from the offset on", func(t *testing.T) {
		var made processed
		r := &executor.Run{}
		h := handler.Dataflow[int]{Fetch: numbers{7}.fetch, Process: made.process, PageSize: 3}
		require.NoError(t, h.Handle(t.Context(), r))
		assert.Equal(t, [][]int{{0, 1, 2}, {3, 4, 5}, {6}}, made.calls)
		assert.Equal(t, "7", offsetOf(t, r))
		h.Fetch = numbers{8}.fetch
		require.NoError(t, h.Handle(t.Context(), r))
		assert.Equal(t, [][]int{{7}}, made.calls[3:])
	})
	t.Run("with Once it fetches one page", func(t *testing.T) {
		var made processed
		r := &executor.Run{}
		h := handler.Dataflow[int]{Fetch: numbers{1000}.fetch, Process: made.process, Once: true}
		require.NoError(t, h.Handle(t.Context(), r))
		require.Len(t, made.calls, 1)
		assert.Len(t, made.calls[0], 100, "the default size")
		assert.Equal(t, "100", offsetOf(t, r))
	})
	t.Run("the Next of a page without items is stored", func(t *testing.T) {
		var made processed
		r := &executor.Run{}
		h := handler.Dataflow[int]{Process: made.process, Fetch: func(_ context.Context, p *handler.Page) ([]int, error) {
			p.Next = []byte("all are filtered out")
			return nil, nil
		}}
		require.NoError(t, h.Handle(t.Context(), r))
		assert.Empty(t, made.calls)
		assert.Equal(t, "all are filtered out", offsetOf(t, r))
	})
	t.Run("an empty Next is stored: the next run begins anew", func(t *testing.T) {
		r := &executor.Run{}
		require.NoError(t, r.Checkpoint(t.Context(), []byte("7")))
		var offsets []string
		h := handler.Dataflow[int]{Process: new(processed).process, Fetch: func(ctx context.Context, p *handler.Page) ([]int, error) {
			offset, err := p.Offset(ctx)
			offsets = append(offsets, string(offset))
			p.Next = []byte{}
			return nil, err
		}}
		for range 2 {
			require.NoError(t, h.Handle(t.Context(), r))
		}
		assert.Equal(t, []string{"7", ""}, offsets)
	})
	t.Run("a failed fetch fails the run", func(t *testing.T) {
		var made processed
		h := handler.Dataflow[int]{Process: made.process, Fetch: func(context.Context, *handler.Page) ([]int, error) {
			return []int{1}, executor.Permanent(errors.New("no such table"))
		}}
		err := h.Handle(t.Context(), &executor.Run{})
		require.EqualError(t, err, "fetch: no such table")
		var permanent *executor.PermanentError
		require.ErrorAs(t, err, &permanent)
		assert.Empty(t, made.calls)
	})
	t.Run("the end of the context ends the run after the page", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		r := &executor.Run{}
		h := handler.Dataflow[int]{Fetch: numbers{7}.fetch, PageSize: 3, Process: func(context.Context, *handler.Page, []int) error {
			cancel(executor.ErrTimeout)
			return nil
		}}
		require.ErrorIs(t, h.Handle(ctx, r), executor.ErrTimeout)
		assert.Equal(t, "3", offsetOf(t, r))
	})
}

func TestDataflow_Check(t *testing.T) {
	err := handler.Dataflow[int]{PageSize: -1, Workers: -2}.Check()
	require.EqualError(t, err, "Fetch: is missing\nProcess: is missing\nPageSize: -1 is negative\nWorkers: -2 is negative")
	assert.ErrorContains(t, handler.Dataflow[int]{}.Handle(t.Context(), &executor.Run{}), "Fetch: is missing")
	ex, err := executor.New(memory.New().Client("a"), "shop", executor.Options{})
	require.NoError(t, err)
	assert.ErrorContains(t, ex.Register(executor.Job{Name: "ship", Handler: handler.Dataflow[int]{}}), "Process: is missing")
}

func TestDataflow_Workers(t *testing.T) {
	// handle runs one page of items and returns the offset that the run stored.
	handle := func(t *testing.T, items, workers int, process func([]int) error) (offset string, err error) {
		t.Helper()
		r := &executor.Run{}
		h := handler.Dataflow[int]{
			Fetch: numbers{items}.fetch, PageSize: items, Workers: workers,
			Process: func(_ context.Context, _ *handler.Page, items []int) error { return process(items) },
		}
		err = h.Handle(t.Context(), r)
		return offsetOf(t, r), err
	}
	t.Run("process equal parts of a page at the same time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var parts [][]int
			began := time.Now()
			offset, err := handle(t, 10, 3, func(items []int) error {
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				parts = append(parts, append(items, -1)[:len(items)])
				return nil
			})
			require.NoError(t, err)
			assert.Equal(t, "10", offset)
			assert.Equal(t, time.Second, time.Since(began))
			assert.ElementsMatch(t, [][]int{{0, 1, 2}, {3, 4, 5}, {6, 7, 8, 9}}, parts)
		})
	})
	t.Run("are not more than the items", func(t *testing.T) {
		var made processed
		_, err := handle(t, 2, 8, func(items []int) error { return made.process(t.Context(), nil, items) })
		require.NoError(t, err)
		assert.ElementsMatch(t, [][]int{{0}, {1}}, made.calls)
	})
	for name, fail := range map[string]func() error{
		"an error":   func() error { return errors.New("the disk is full") },
		"a panic":    func() error { panic("the disk is full") },
		"its Goexit": func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name+" of one ends the run when the others have returned, and leaves the offset as it is", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var others processed
				began := time.Now()
				offset, err := handle(t, 6, 3, func(items []int) error {
					if items[0] == 2 {
						return fail()
					}
					time.Sleep(time.Second)
					return others.process(t.Context(), nil, items)
				})
				require.ErrorContains(t, err, "process: ")
				assert.Empty(t, offset)
				assert.Equal(t, time.Second, time.Since(began))
				assert.Len(t, others.calls, 2)
				var panicked *executor.PanicError
				assert.Equal(t, name == "a panic", errors.As(err, &panicked))
			})
		})
	}
}

func TestDataflow_LogsCounts(t *testing.T) {
	// logged returns the lines of a run of pages of 4 items in 2 workers, a second each, of which one fails
	// the part with an item.
	logged := func(t *testing.T, every time.Duration, failing int) (lines []string) {
		t.Helper()
		rotatest.Run(t, func(f *rotatest.Fleet) {
			var text bytes.Buffer
			f.Options.Logger = slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
			f.Start("a", executor.Job{Name: "ship", Handler: handler.Dataflow[int]{
				Fetch: numbers{20}.fetch, PageSize: 4, Workers: 2, LogEvery: every,
				Process: func(_ context.Context, _ *handler.Page, items []int) error {
					time.Sleep(time.Second)
					if slices.Contains(items, failing) {
						return errors.New("the disk is full")
					}
					return nil
				},
			}})
			f.Trigger("ship", executor.Trigger{})
			f.Settle()
			for line := range strings.Lines(text.String()) {
				if strings.Contains(line, "data flow ") {
					_, level, _ := strings.Cut(line, "level=")
					level, _, _ = strings.Cut(level, " ")
					_, message, _ := strings.Cut(line, `msg="`)
					message, _, _ = strings.Cut(message, `"`)
					_, counts, _ := strings.Cut(strings.TrimSpace(line), "attempt=1 ")
					lines = append(lines, level+" "+message+": "+counts)
				}
			}
		})
		return lines
	}
	t.Run("at the end only if the run is short", func(t *testing.T) {
		assert.Equal(t, []string{"DEBUG short data flow ended: pages=5 ok=20 failed=0 took=5s"}, logged(t, 0, -1))
	})
	t.Run("in each interval of a long run", func(t *testing.T) {
		assert.Equal(t, []string{
			"INFO data flow continues: pages=2 ok=8 failed=0 took=2s", "INFO data flow continues: pages=4 ok=16 failed=0 took=4s",
			"INFO data flow ended: pages=5 ok=20 failed=0 took=5s",
		}, logged(t, 2*time.Second, -1))
	})
	t.Run("with the items of a failed worker", func(t *testing.T) {
		assert.Equal(t, []string{"WARN data flow ended, and items failed: pages=2 ok=6 failed=2 took=2s"}, logged(t, -1, 5))
	})
}

// shipping is a job whose data flow of 20 items in pages of 4 takes a second for a page. It writes
// a key for each item, which can be created only once.
func shipping(made *processed) executor.Job {
	return executor.Job{
		Name: "ship", Schedule: schedule.Every(time.Hour),
		Handler: handler.Dataflow[int]{
			Fetch: numbers{20}.fetch, PageSize: 4, Workers: 2,
			Process: func(ctx context.Context, p *handler.Page, items []int) error {
				time.Sleep(time.Second)
				for _, item := range items {
					p.Write(registry.Create(shippedKey(item), nil))
				}
				return made.process(ctx, p, items)
			},
		},
	}
}

func shippedKey(item int) registry.Key { return registry.Key(fmt.Sprintf("shipped/%03d", item)) }

// shipped returns how many items are on record.
func shipped(f *rotatest.Fleet) (n int) {
	for _, e := range f.Server().Dump() {
		if e.Key.Dir() == "shipped" {
			n++
		}
	}
	return n
}

// repeated returns the items that were processed more than once, in order.
func (c *processed) repeated() []int {
	times := c.times()
	return slices.Sorted(func(yield func(int) bool) {
		for item := range maps.Keys(times) {
			if times[item] > 1 && !yield(item) {
				return
			}
		}
	})
}

func TestDataflow_InAFleet(t *testing.T) {
	for _, after := range []time.Duration{0, 500, 1500, 2500, 3500, 4500} {
		t.Run(fmt.Sprintf("crash after %d ms: another instance continues with the page that was not committed", after), func(t *testing.T) {
			rotatest.Run(t, func(f *rotatest.Fleet) {
				var made processed
				f.Start("a", shipping(&made))
				f.NextFire("ship")
				f.Start("b", shipping(&made))
				f.Sleep(after * time.Millisecond)
				before := shipped(f)
				f.Crash("a")
				f.Settle()
				runs := f.Runs("ship")
				require.Len(t, runs, 2)
				assert.Equal(t, "b", runs[1].Instance)
				assert.Equal(t, runs[0].Key, runs[1].Key)
				assert.Len(t, made.times(), 20, "each item is processed")
				assert.Equal(t, 20, shipped(f), "and its key is created once")
				assert.Equal(t, []int{before, before + 1, before + 2, before + 3}, made.repeated(), "the page whose commit was lost")
			})
		})
	}
	t.Run("a drain ends the run after the page, and the next owner makes the rest at once", func(t *testing.T) {
		rotatest.Run(t, func(f *rotatest.Fleet) {
			var made processed
			f.Start("a", shipping(&made))
			f.Start("b")
			f.NextFire("ship")
			f.Sleep(1500 * time.Millisecond)
			f.Register("b", shipping(&made))
			f.Stop("a")
			f.Settle()
			runs := f.Runs("ship")
			require.Len(t, runs, 2)
			require.ErrorIs(t, runs[0].Err, executor.ErrYield)
			assert.Equal(t, 2*time.Second, runs[0].End.Sub(runs[0].Start))
			assert.Equal(t, "b", runs[1].Instance)
			assert.Equal(t, 2, runs[1].Attempt)
			assert.Less(t, runs[1].Start.Sub(runs[0].End), time.Second)
			assert.Equal(t, 20, shipped(f))
			assert.Len(t, made.times(), 20)
			assert.Empty(t, made.repeated())
		})
	})
	t.Run("a lost reply to the commit of a page repeats no item", func(t *testing.T) {
		rotatest.Run(t, func(f *rotatest.Fleet) {
			var made processed
			f.Start("a", shipping(&made))
			f.NextFire("ship")
			f.Sleep(1500 * time.Millisecond)
			f.Server().LoseReply("a", 1)
			f.Settle()
			assert.Equal(t, 20, shipped(f))
			assert.Empty(t, made.repeated())
		})
	})
	t.Run("a retry after a failed page begins with that page", func(t *testing.T) {
		rotatest.Run(t, func(f *rotatest.Fleet) {
			var made processed
			job := shipping(&made)
			flow := job.Handler.(handler.Dataflow[int])
			process, failures := flow.Process, 0
			flow.Process = func(ctx context.Context, p *handler.Page, items []int) error {
				if items[0] == 8 && failures == 0 {
					failures++
					return errors.New("the disk is full")
				}
				return process(ctx, p, items)
			}
			job.Handler, job.Retry = flow, executor.Retry{Max: 1, Initial: time.Second}
			f.Start("a", job)
			f.NextFire("ship")
			f.Sleep(time.Minute)
			assert.Len(t, f.Runs("ship"), 2)
			assert.Equal(t, 20, shipped(f))
			assert.Equal(t, []int{10, 11}, made.repeated(), "the part of the other worker")
		})
	})
	t.Run("without an offset the writes of a page are applied at its end, unless it fails", func(t *testing.T) {
		rotatest.Run(t, func(f *rotatest.Fleet) {
			next := 0
			f.Start("a", executor.Job{Name: "ship", Handler: handler.Dataflow[int]{
				Fetch: func(context.Context, *handler.Page) ([]int, error) { next++; return []int{next}, nil },
				Process: func(_ context.Context, p *handler.Page, items []int) error {
					assert.Equal(t, items[0]-1, shipped(f))
					p.Write(registry.Create(shippedKey(items[0]), nil))
					if items[0] == 3 {
						return errors.New("the disk is full")
					}
					return nil
				},
			}})
			f.Trigger("ship", executor.Trigger{})
			f.Settle()
			assert.Equal(t, 3, next)
			assert.Equal(t, 2, shipped(f))
		})
	})
	t.Run("without an offset it makes no request", func(t *testing.T) {
		requests := func(t *testing.T, withOffset bool) (n memory.Counts) {
			rotatest.Run(t, func(f *rotatest.Fleet) {
				var made processed
				left := 3
				flow := handler.Dataflow[int]{PageSize: 3, Process: made.process, Fetch: func(context.Context, *handler.Page) ([]int, error) {
					left--
					return make([]int, left), nil
				}}
				if withOffset {
					flow.Fetch = numbers{7}.fetch
				}
				f.Start("a", executor.Job{Name: "ship", Schedule: schedule.Every(time.Hour), Handler: executor.HandlerFunc(func(ctx context.Context, r *executor.Run) error {
					time.Sleep(10 * time.Second) // so that all requests of the claim have been counted
					f.Server().ResetCounts()
					err := flow.Handle(ctx, r)
					n = f.Server().Counts("a")
					return err
				})})
				f.NextFire("ship")
				f.Settle()
				assert.NotEmpty(t, made.calls)
			})
			return n
		}
		none := requests(t, false)
		assert.Zero(t, none.Commits+none.Checks+none.Conflicts+none.Reads)
		counts := requests(t, true)
		assert.Equal(t, 3, counts.Commits, "one for each page of items")
		assert.Equal(t, 1, counts.Reads)
	})
}

// The numbers of items reach observers, and so the history, also those of a run that fails.
func TestDataflow_CountsItemsForObservers(t *testing.T) {
	rotatest.Run(t, func(f *rotatest.Fleet) {
		var mu sync.Mutex
		var ended []string
		f.Options.Observer = executor.Observer{RunEnded: func(e executor.RunEnded) {
			mu.Lock()
			defer mu.Unlock()
			ended = append(ended, fmt.Sprintf("%v %d/%d", e.Outcome, e.ItemsProcessed, e.ItemsFetched))
		}}
		source := numbers{end: 25}
		f.Start("a", executor.Job{Name: "flow", Handler: handler.Dataflow[int]{
			Fetch: source.fetch, PageSize: 10, Workers: 2,
			Process: func(_ context.Context, p *handler.Page, items []int) error {
				if p.Trigger == 1 && slices.Contains(items, 19) {
					return errors.New("no such item")
				}
				return nil
			},
		}})
		f.Trigger("flow", executor.Trigger{})
		f.Settle()
		f.Trigger("flow", executor.Trigger{})
		f.Settle()
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, []string{"failed 15/20", "succeeded 15/15"}, ended)
	})
}
