package leader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/rota-dev/rota/internal/group/elector"
	"github.com/rota-dev/rota/internal/group/planning"
	"github.com/rota-dev/rota/internal/mutex"
	"github.com/rota-dev/rota/internal/parallel"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
)

// DecideWithReads runs the planning function until it requests no more fresh reads. The claims of
// expired members are always requested, as are those of members that run shards which wait to move,
// so they are read at the start, unless parts of them are cheaper.
func (l *Leader) DecideWithReads(ctx context.Context, now record.Instant) (planning.Decision, error) {
	l.View.Now = now
	wanted := l.View.ExpiredMembers()
	for inc := range l.WatchedClaims {
		if l.View.Alive(inc) && !l.View.ListByKey {
			wanted = append(wanted, inc)
		}
	}
	l.View.Absences = l.measureAbsences()
	var parts map[string][]string
	for {
		l.Progress.SetTask("fresh reads", "claims")
		if err := l.readClaimsOfEach(ctx, wanted); err != nil {
			return planning.Decision{}, err
		}
		if err := l.readParts(ctx, parts); err != nil {
			return planning.Decision{}, err
		}
		l.Progress.SetTask("planning", "")
		d, err := l.runPlanning(ctx)
		if err != nil {
			return planning.Decision{}, err
		}
		if len(d.Reads) == 0 {
			return d, nil
		}
		parts = d.Parts
		wanted = slices.DeleteFunc(d.Reads, func(inc string) bool { return parts[inc] != nil })
	}
}

// readParts makes fresh reads of the claims of some jobs by incarnation. The first read is fresh, and a later one by
// the same handle is never older.
func (l *Leader) readParts(ctx context.Context, parts map[string][]string) error {
	var all []registry.Key
	seen := l.LastCommit
	for inc, segments := range parts {
		part := planning.FreshRead{
			Seen: seen, Claims: map[string]planning.ClaimsRecord{}, Unreadable: map[string]bool{}, Only: map[string]bool{},
		}
		for _, seg := range segments {
			part.Only[seg] = true
			all = append(all, l.Self.Keys.Claims(inc, seg))
		}
		l.View.PartReads[inc] = part
	}
	if len(all) == 0 {
		return nil
	}
	if _, err := l.Self.Reg.Get(ctx, all[0], elector.Fresh); err != nil && !errors.Is(err, registry.ErrNotFound) && !errors.Is(err, registry.ErrForeign) {
		return fmt.Errorf("read claims: %w", err)
	}
	var mu mutex.Mutex
	return parallel.Each(ctx, 4*parallelReads, all, func(ctx context.Context, key registry.Key) error {
		e, err := l.Self.Reg.Get(ctx, key, registry.ReadOptions{})
		var claims planning.ClaimsRecord
		readable := err == nil && l.decodeClaims(e, &claims)
		mu.Lock()
		defer mu.Unlock()
		part := l.View.PartReads[key.Dir().Name()]
		switch {
		case errors.Is(err, registry.ErrNotFound):
		case readable:
			part.Claims[key.Name()] = claims
		case err == nil, errors.Is(err, registry.ErrForeign):
			part.Unreadable[key.Name()] = true
		default:
			return fmt.Errorf("read claims: %w", err)
		}
		return nil
	})
}

// decodeClaims decodes a claims record into out. It reports false, and logs why, if it cannot be read.
func (l *Leader) decodeClaims(e registry.Entry, out *planning.ClaimsRecord) bool {
	claims, err := record.DecodeOf(e, record.DecodeClaims)
	if err != nil {
		l.logs.LogUnreadable(e, err)
		return false
	}
	*out = planning.ClaimsRecord{Rev: e.Modified, Claims: claims}
	return true
}

// parallelReads bounds the concurrent fresh reads. A joining member gets shards of all others, and
// waits until the claims of all of them have been read.
const parallelReads = 16

// readClaimsOfEach makes a fresh read of the claims of each incarnation.
func (l *Leader) readClaimsOfEach(ctx context.Context, incarnations []string) error {
	var mu mutex.Mutex
	return parallel.Each(ctx, parallelReads, incarnations, func(ctx context.Context, inc string) error {
		read, err := l.readClaims(ctx, inc)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		l.View.Reads[inc] = read
		return nil
	})
}

// readClaims makes a fresh read of an incarnation's claims. Seen is the newest commit that was known
// before the read began.
func (l *Leader) readClaims(ctx context.Context, incarnation string) (planning.FreshRead, error) {
	out := planning.FreshRead{Seen: l.LastCommit, Claims: map[string]planning.ClaimsRecord{}, Unreadable: map[string]bool{}}
	listing, err := l.Self.Reg.List(ctx, l.Self.Keys.ClaimsOf(incarnation), elector.Fresh)
	if err != nil {
		return planning.FreshRead{}, fmt.Errorf("read claims of %s: %w", incarnation, err)
	}
	for _, e := range listing.Entries {
		var claims planning.ClaimsRecord
		if l.decodeClaims(e, &claims) {
			out.Claims[e.Key.Name()] = claims
		} else {
			out.Unreadable[e.Key.Name()] = true
		}
	}
	for _, segment := range l.Edits.foreignIn(l.Self.Keys.ClaimsOf(incarnation)) {
		out.Unreadable[segment] = true
	}
	return out, nil
}

// watchClaims watches the claims of the pending incarnations, which run shards that wait to move, and
// of no others.
func (l *Leader) watchClaims(ctx context.Context, wg *sync.WaitGroup, pending []string) {
	for inc, stop := range l.WatchedClaims {
		if !slices.Contains(pending, inc) {
			stop()
			delete(l.WatchedClaims, inc)
		}
	}
	for _, inc := range pending {
		if _, ok := l.WatchedClaims[inc]; ok {
			continue
		}
		fctx, stop := context.WithCancel(ctx)
		l.WatchedClaims[inc] = stop
		wg.Go(func() {
			registry.Follow(fctx, l.Self.Reg, l.Self.Keys.ClaimsOf(inc), func(registry.Batch) error {
				l.wakeUp()
				return nil
			})
		})
	}
}

// runPlanning runs the planning function in a goroutine of its own. Planning calls strategies of
// users, and one that does not return must not keep the term from ending. If planning outlasts the
// term, the view is left to it.
func (l *Leader) runPlanning(ctx context.Context) (planning.Decision, error) {
	v := l.View
	out := make(chan planning.Decision, 1)
	l.Self.Planning.Begin()
	go func() {
		defer l.Self.Planning.End()
		defer close(out)
		out <- planning.Decide(&v)
	}()
	select {
	case d, ok := <-out:
		if !ok {
			return planning.Decision{}, fmt.Errorf("a strategy ended its goroutine instead of returning")
		}
		l.View.StrategyProblems = d.StrategyProblems
		return d, nil
	case <-ctx.Done():
		l.View = planning.View{}
		return planning.Decision{}, context.Cause(ctx)
	}
}
