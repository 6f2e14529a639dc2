package serve

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/rota-dev/rota/cmd/rota/internal/jobsfile"
)

// poolsRetry is the pause before another attempt to set the sizes of pools.
const poolsRetry = 10 * time.Second

// beginSetPools ends an earlier setPools, and begins one for a file. It ends with ctx.
func (s *server) beginSetPools(ctx context.Context, f *jobsfile.File) {
	if s.endPools != nil {
		s.endPools()
	}
	ctx, s.endPools = context.WithCancel(ctx)
	s.pools.Go(func() { s.setPools(ctx, f) })
}

// setPools sets the sizes of the file's pools that have none. It logs the pools whose size in force is another, and those of the file's
// jobs and kinds that have no size.
func (s *server) setPools(ctx context.Context, f *jobsfile.File) {
	named := map[string]bool{}
	for i := range f.Jobs {
		named[f.Jobs[i].Pool] = true
	}
	for i := range f.Kinds {
		named[f.Kinds[i].Defaults.Pool] = true
	}
	delete(named, "")
	if len(f.Pools)+len(named) == 0 {
		return
	}
	inForce, err := s.ex.Operator().AddPools(ctx, f.Pools)
	for failed := ""; err != nil; inForce, err = s.ex.Operator().AddPools(ctx, f.Pools) {
		if ctx.Err() == nil && err.Error() != failed {
			failed = err.Error()
			s.log.Error("sizes of pools not set; trying again", "error", err, "next", "jobs whose pool has no size wait")
		}
		select {
		case <-time.After(poolsRetry):
		case <-ctx.Done():
			return
		}
	}
	for _, pool := range slices.Sorted(maps.Keys(f.Pools)) {
		if inForce[pool] != f.Pools[pool] {
			s.log.Warn("the size of a pool is not that of the file", "pool", pool, "size", inForce[pool], "size_in_file", f.Pools[pool],
				"next", "the size that is set stays", "remedy", "rota set-pool, or correct the file")
		}
	}
	for _, pool := range slices.Sorted(maps.Keys(named)) {
		if _, sized := inForce[pool]; !sized {
			s.log.Warn("a pool of jobs has no size", "pool", pool, "next", "their runs wait", "remedy", "rota set-pool, or the key pools of the file")
		}
	}
}
