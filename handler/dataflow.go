package handler

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/rota-dev/rota/executor"
	"github.com/rota-dev/rota/registry"
)

// Defaults of a Dataflow.
const (
	defaultPageSize = 100
	defaultLogEvery = 5 * time.Minute
)

// Dataflow is a handler that fetches items and processes them, page by page. A run ends when a
// fetch returns no items. Only Fetch and Process are required; the zero value of each other field
// is safe.
//
// A run also ends after a page if its context has ended, then with the cause as its error, or if
// Run.Yield is closed, then with executor.ErrYield. In both cases the finished pages stay finished.
// After Yield the next owner of the shard makes the rest at once. After another error the next attempt
// makes it, if there is one, and otherwise the next fire.
//
// # Offset
//
// Fetch can keep a position in its source, such as a line, an ID or a time. It reads the position with
// Page.Offset and sets the following one as Page.Next. When all items of the page are processed,
// Next is stored as the Checkpoint of the run; so the functions must not call Checkpoint. If a
// process crashes, the next attempt fetches the page again whose Next was not stored, and no
// page before it. If the source itself marks processed items, such as by a column of a table, no offset
// is needed, and the data flow makes no request to the registry.
type Dataflow[T any] struct {
	// Fetch returns the items of the next page, at most p.Size. If it returns none, p.Next is stored
	// and the run ends. If it returns an error, the run fails.
	Fetch func(ctx context.Context, p *Page) ([]T, error)
	// Process processes items of a page. If it returns an error or panics, the run fails, and
	// the offset stays that of the page.
	Process func(ctx context.Context, p *Page, items []T) error
	// PageSize is Page.Size, which Fetch observes. Zero means 100.
	PageSize int
	// Workers is the number of calls of Process for a page that run at the same time, each with
	// an equal part of the items in their order. If one fails, the others are not canceled; the
	// run ends when all have returned. Zero means 1.
	Workers int
	// Once ends each run after one page.
	Once bool
	// LogEvery is the interval at which a run logs, after a page, the numbers of pages and items so far, at
	// level INFO. The items of a call of Process that fails count as failed. The end of the run
	// logs the totals, at INFO if such a line precedes or items failed, and at DEBUG otherwise. Zero means
	// 5 min, a negative value only at the end.
	LogEvery time.Duration
}

// Check reports what is wrong with the fields. Register calls it.
func (d Dataflow[T]) Check() error {
	var errs []error
	if d.Fetch == nil {
		errs = append(errs, fieldError("Fetch", errors.New("is missing")))
	}
	if d.Process == nil {
		errs = append(errs, fieldError("Process", errors.New("is missing")))
	}
	if d.PageSize < 0 {
		errs = append(errs, fieldError("PageSize", fmt.Errorf("%d is negative", d.PageSize)))
	}
	if d.Workers < 0 {
		errs = append(errs, fieldError("Workers", fmt.Errorf("%d is negative", d.Workers)))
	}
	return errors.Join(errs...)
}

// Handle fetches and processes pages for a run.
func (d Dataflow[T]) Handle(ctx context.Context, r *executor.Run) error {
	if err := d.Check(); err != nil {
		return executor.Permanent(err)
	}
	counts := newItemCounts(r.Logger(), d.LogEvery)
	defer counts.logEnd()
	p := &Page{Run: r, Size: d.PageSize}
	p.Size = cmp.Or(p.Size, defaultPageSize)
	for {
		items, err := d.Fetch(ctx, p)
		if err != nil {
			return fmt.Errorf("fetch: %w", err)
		}
		failed, err := d.processPage(ctx, p, items)
		counts.add(len(items), failed)
		r.CountItems(len(items), len(items)-failed)
		if err != nil {
			return fmt.Errorf("process: %w", err)
		}
		if err := p.commit(ctx); err != nil {
			return err
		}
		if len(items) == 0 || d.Once {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		select {
		case <-r.Yield():
			return executor.ErrYield
		default:
		}
		p = p.following()
	}
}

// processPage calls Process for all items, in several workers, and waits for all calls. It returns how
// many items are of calls that failed.
func (d Dataflow[T]) processPage(ctx context.Context, p *Page, items []T) (failed int, err error) {
	workers := min(max(d.Workers, 1), len(items))
	errs := make([]error, workers)
	part := func(i int) []T {
		from, to := i*len(items)/workers, (i+1)*len(items)/workers
		return items[from:to:to] // an append must not overwrite the part of another worker
	}
	var running sync.WaitGroup
	for i := range workers {
		errs[i] = errProcessExited
		running.Go(func() { errs[i] = d.callProcess(ctx, p, part(i)) })
	}
	running.Wait()
	for i, err := range errs {
		if err != nil {
			failed += len(part(i))
		}
	}
	return failed, errors.Join(errs...)
}

// errProcessExited is the error of a worker that ended its goroutine.
var errProcessExited = errors.New("function called runtime.Goexit, as t.FailNow does")

// callProcess returns the result of Process, or an *executor.PanicError: a panic in a goroutine of
// its own would end the program.
func (d Dataflow[T]) callProcess(ctx context.Context, p *Page, items []T) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &executor.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return d.Process(ctx, p, items)
}

// Page describes a page of a Dataflow to its Fetch and Process: the run, and the position in the source.
// A test of these functions writes &handler.Page{Run: &executor.Run{RunInfo: executor.RunInfo{Shard: 2}}, Size: 10}.
type Page struct {
	*executor.Run
	// Size is how many items Fetch should return at most.
	Size int
	// Next is the offset of the page that follows. Fetch sets it; nil leaves the offset as it is. Its size is
	// limited as the data of Run.Checkpoint is.
	Next []byte

	mu     sync.Mutex // for concurrent calls of Process
	known  bool       // offset has been read, or was the Next of an earlier page
	offset []byte
	ops    []registry.Op
}

// Offset returns the Next of the latest page that was completed, in this run or in an earlier one on
// any instance, or nil if there is none. Only the first call in a run reads the registry.
// The caller must not change the slice.
func (p *Page) Offset(ctx context.Context) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known {
		offset, err := p.Resume(ctx)
		if err != nil {
			return nil, err
		}
		p.known, p.offset = true, offset
	}
	return p.offset, nil
}

// Write adds ops to the transaction that stores Next when the page is completed, or to one of their own if
// there is no Next. So the ops of a page are applied once, or not at all if the page fails. Two
// ops of a page must not have the same key. It may be called concurrently.
func (p *Page) Write(ops ...registry.Op) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ops = append(p.ops, ops...)
}

// commit stores Next and applies the ops. It makes no request if there is nothing to store.
func (p *Page) commit(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	moved := p.Next != nil && !(p.known && bytes.Equal(p.Next, p.offset))
	switch {
	case moved:
		if err := p.Checkpoint(ctx, p.Next, p.ops...); err != nil {
			return err
		}
		p.known, p.offset = true, bytes.Clone(p.Next)
	case len(p.ops) > 0:
		_, err := p.Commit(ctx, p.ops...)
		return err
	}
	return nil
}

// following returns the page after a completed one.
func (p *Page) following() *Page {
	return &Page{Run: p.Run, Size: p.Size, known: p.known, offset: p.offset}
}

// itemCounts counts the items of a run and logs the numbers.
type itemCounts struct {
	log               *slog.Logger
	every             time.Duration // negative: only at the end
	began, logged     time.Time
	pages, ok, failed int
}

func newItemCounts(log *slog.Logger, every time.Duration) *itemCounts {
	every = cmp.Or(every, defaultLogEvery)
	now := time.Now()
	return &itemCounts{log: log, every: every, began: now, logged: now}
}

// add counts a page, and logs the numbers if the interval has passed.
func (c *itemCounts) add(items, failed int) {
	if items == 0 {
		return
	}
	c.pages++
	c.ok += items - failed
	c.failed += failed
	if c.every > 0 && time.Since(c.logged) >= c.every {
		c.logged = time.Now()
		c.log.Info("data flow continues", c.attrs()...)
	}
}

func (c *itemCounts) logEnd() {
	switch {
	case c.failed > 0:
		c.log.Warn("data flow ended, and items failed", c.attrs()...)
	case c.logged.After(c.began):
		c.log.Info("data flow ended", c.attrs()...)
	default:
		c.log.Debug("short data flow ended", c.attrs()...)
	}
}

func (c *itemCounts) attrs() []any {
	return []any{"pages", c.pages, "ok", c.ok, "failed", c.failed, "took", time.Since(c.began).Round(time.Millisecond)}
}
