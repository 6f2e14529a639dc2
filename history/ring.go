package history

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/rota-dev/rota/internal/mutex"
)

// Ring keeps the latest records in memory. It is a Sink, and safe for concurrent use.
type Ring struct {
	mu    mutex.Mutex
	size  int
	runs  []Run // in order of arrival, the first at runsAt
	fires []Fire
	// at is the index of the oldest record, if there are as many as size.
	runAt, fireAt int
	runKeys       map[runKey]int // the indexes in runs
	fireKeys      map[firePart]bool
	firesOf       map[jobKey][]int // the indexes in fires, in order of arrival

	logs     []Log // in order of arrival
	logKeys  map[logPiece]bool
	logBytes int
}

type runKey struct {
	fireKey
	id string
}

type firePart struct {
	fireKey
	part uint64
}

type logPiece struct {
	logKey
	piece int
}

// ringLog is how many bytes of logs a Ring keeps for each run.
const ringLog = 8 << 10

// NewRing returns a Ring of the latest n runs and the latest n records of fires, and of the latest
// 8n KiB of logs. n is at least 1.
func NewRing(n int) *Ring {
	return &Ring{
		size: max(1, n), runKeys: map[runKey]int{}, fireKeys: map[firePart]bool{}, firesOf: map[jobKey][]int{},
		logKeys: map[logPiece]bool{},
	}
}

func runKeyOf(r *Run) runKey {
	return runKey{fireKey{r.Namespace, r.Group, r.Job, r.Instance, r.Fire.UnixMicro(), 0}, r.ID}
}

func firePartOf(f *Fire) firePart {
	return firePart{fireKey{f.Namespace, f.Group, f.Job, f.Instance, f.Fire.UnixMicro(), f.Trigger}, f.Part}
}

// Write is described in Sink. It never fails.
func (g *Ring) Write(_ context.Context, b Batch) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, f := range b.Fires {
		if !g.fireKeys[firePartOf(&f)] {
			g.addFire(f)
		}
	}
	for _, r := range b.Runs {
		key := runKeyOf(&r)
		if at, kept := g.runKeys[key]; kept {
			if r.replaces(&g.runs[at]) {
				g.runs[at] = r
			}
			continue
		}
		if len(g.runs) < g.size {
			g.runKeys[key] = len(g.runs)
			g.runs = append(g.runs, r)
			continue
		}
		delete(g.runKeys, runKeyOf(&g.runs[g.runAt]))
		g.runKeys[key], g.runs[g.runAt] = g.runAt, r
		g.runAt = (g.runAt + 1) % g.size
	}
	return nil
}

func (g *Ring) addFire(f Fire) {
	at := len(g.fires)
	if at < g.size {
		g.fires = append(g.fires, f)
	} else {
		at = g.fireAt
		g.fireAt = (g.fireAt + 1) % g.size
		g.dropFire(at)
		g.fires[at] = f
	}
	g.fireKeys[firePartOf(&f)] = true
	job := jobKey{f.Namespace, f.Group, f.Job}
	g.firesOf[job] = append(g.firesOf[job], at)
}

// dropFire removes the oldest record, which has the index at, from the maps. It is the first of its job too.
func (g *Ring) dropFire(at int) {
	f := &g.fires[at]
	delete(g.fireKeys, firePartOf(f))
	job := jobKey{f.Namespace, f.Group, f.Job}
	if rest := g.firesOf[job][1:]; len(rest) > 0 {
		g.firesOf[job] = rest
	} else {
		delete(g.firesOf, job)
	}
}

// WriteLogs is described in LogSink. It never fails.
func (g *Ring) WriteLogs(_ context.Context, pieces []Log) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range pieces {
		p := &pieces[i]
		key := logPiece{logKeyOf(p), p.Piece}
		if g.logKeys[key] {
			continue
		}
		if p.From > p.Head {
			g.logs = slices.DeleteFunc(g.logs, func(old Log) bool {
				gone := logKeyOf(&old) == key.logKey && old.Piece >= p.Head && old.Piece < p.From
				if gone {
					g.forget(&old)
				}
				return gone
			})
		}
		g.logKeys[key] = true
		g.logs = append(g.logs, *p)
		g.logBytes += len(p.Text) + logPieceCost
	}
	n := 0
	for ; g.logBytes > g.size*ringLog; n++ {
		g.forget(&g.logs[n])
	}
	g.logs = slices.Delete(g.logs, 0, n)
	return nil
}

// forget removes a piece from the counts.
func (g *Ring) forget(p *Log) {
	delete(g.logKeys, logPiece{logKeyOf(p), p.Piece})
	g.logBytes -= len(p.Text) + logPieceCost
}

// Reader returns a Reader of a group. An empty group means "default".
func (g *Ring) Reader(namespace, group string) Reader {
	return &ringReader{g, cleanKey(namespace, maxNamespace), cleanKey(cmp.Or(group, "default"), maxGroup)}
}

type ringReader struct {
	ring             *Ring
	namespace, group string
}

// find returns the runs of the group for which keep returns true.
func (r *ringReader) find(keep func(*Run) bool) []Run {
	r.ring.mu.Lock()
	defer r.ring.mu.Unlock()
	var found []Run
	for i := range r.ring.runs {
		if run := &r.ring.runs[i]; run.Namespace == r.namespace && run.Group == r.group && keep(run) {
			found = append(found, *run)
		}
	}
	return found
}

// Logs is described in LogReader.
func (r *ringReader) Logs(_ context.Context, q LogQuery) ([]Log, error) {
	q = q.normalize()
	r.ring.mu.Lock()
	defer r.ring.mu.Unlock()
	var found []Log
	var latest time.Time
	for i := range r.ring.logs {
		p := &r.ring.logs[i]
		if p.Namespace != r.namespace || p.Group != r.group || p.Job != q.Job {
			continue
		}
		if p.Fire.After(latest) {
			latest = p.Fire
		}
		if q.selects(p) {
			found = append(found, *p)
		}
	}
	if q.Latest {
		found = slices.DeleteFunc(found, func(p Log) bool { return !p.Fire.Equal(latest) })
	}
	sortLogs(found)
	if len(found) == 0 {
		return nil, nil
	}
	return found[:min(len(found), q.Limit)], nil
}

func (r *ringReader) Last(_ context.Context, job string) ([]Run, error) {
	job = cleanKey(job, maxJob)
	return lastByShard(r.find(func(run *Run) bool { return run.Job == job })), nil
}

func (r *ringReader) Fires(_ context.Context, q FiresQuery) ([]Fire, error) {
	r.ring.mu.Lock()
	defer r.ring.mu.Unlock()
	var parts []*Fire
	for _, at := range r.ring.firesOf[jobKey{r.namespace, r.group, cleanKey(q.Job, maxJob)}] {
		if f := &r.ring.fires[at]; q.selects(f) {
			parts = append(parts, f)
		}
	}
	slices.SortFunc(parts, func(a, b *Fire) int { return compareFires(a, b) })
	var fires []Fire
	for _, part := range parts {
		instance := part.Instance
		if !q.ByInstance {
			instance = ""
		}
		last := len(fires) - 1
		if last < 0 || !fires[last].Fire.Equal(part.Fire) || fires[last].Trigger != part.Trigger || fires[last].Instance != instance {
			if len(fires) == limitOf(q.Limit) {
				break
			}
			fires = append(fires, Fire{
				Namespace: part.Namespace, Group: part.Group, Job: part.Job, Fire: part.Fire, Trigger: part.Trigger, Instance: instance,
			})
			last++
		}
		fires[last].merge(part)
	}
	return fires, nil
}

func (r *ringReader) Runs(_ context.Context, job string, fire time.Time, trigger uint64) ([]Run, error) {
	return r.findOfFire(job, fire, func(run *Run) bool { return run.Trigger == trigger })
}

func (r *ringReader) findOfFire(job string, fire time.Time, keep func(*Run) bool) ([]Run, error) {
	job, fire = cleanKey(job, maxJob), roundTime(fire)
	runs := r.find(func(run *Run) bool { return run.Job == job && run.Fire.Equal(fire) && keep(run) })
	sortByShard(runs)
	return runs, nil
}

func (r *ringReader) RunsOfFire(_ context.Context, job string, fire time.Time) ([]Run, error) {
	return r.findOfFire(job, fire, func(*Run) bool { return true })
}

func (r *ringReader) LatestFires(ctx context.Context, jobs []string, n int) (map[string][]Fire, error) {
	latest := map[string][]Fire{}
	for _, job := range jobs {
		if fires, _ := r.Fires(ctx, FiresQuery{Job: job, Limit: n}); len(fires) > 0 {
			latest[job] = fires
		}
	}
	return latest, nil
}

func (r *ringReader) RunsOfShards(_ context.Context, job string, fire time.Time, shards []int) ([]Run, error) {
	return r.findOfFire(job, fire, func(run *Run) bool { return slices.Contains(shards, run.Shard) })
}

func (r *ringReader) Cells(_ context.Context, q CellsQuery) ([]Cell, error) {
	q = q.normalized()
	type shardKey struct {
		fire    int64
		trigger uint64
		shard   int
	}
	last := map[shardKey]int64{}
	r.find(func(run *Run) bool {
		if run.Job == q.Job && !run.Fire.Before(q.Since) && !run.Fire.After(q.Until) && run.Shard >= q.FirstShard && run.Shard < q.EndShard {
			key, n := shardKey{run.Fire.UnixMicro(), run.Trigger, run.Shard}, lastRunOf(run)
			if before, found := last[key]; !found || n > before {
				last[key] = n
			}
		}
		return false // a copy of each run would cost more than the rest
	})
	counts := map[Cell]int{}
	for key, n := range last {
		c := Cell{Fire: time.UnixMicro(key.fire).UTC(), Trigger: key.trigger, FirstShard: key.shard - (key.shard-q.FirstShard)%q.Width}
		c.setLastRun(n)
		counts[c]++
	}
	var cells []Cell
	for c, n := range counts {
		c.Shards = n
		cells = append(cells, c)
	}
	sortCells(cells)
	return cells, nil
}

func (r *ringReader) Failures(_ context.Context, q RunsQuery) ([]Run, error) {
	job, since := cleanKey(q.Job, maxJob), roundTime(q.Since)
	runs := r.find(func(run *Run) bool {
		return run.Outcome.IsFailure() && (job == "" || run.Job == job) && !run.Ended.Before(since)
	})
	slices.SortFunc(runs, func(a, b Run) int { return cmp.Or(b.Ended.Compare(a.Ended), cmp.Compare(a.ID, b.ID)) })
	return runs[:min(len(runs), limitOf(q.Limit))], nil
}

func (r *ringReader) Slowest(_ context.Context, q RunsQuery) ([]Run, error) {
	job, since := cleanKey(q.Job, maxJob), roundTime(q.Since)
	runs := r.find(func(run *Run) bool { return run.Job == job && !run.Fire.Before(since) })
	slices.SortFunc(runs, func(a, b Run) int {
		return cmp.Or(cmp.Compare(b.Duration(), a.Duration()), a.Fire.Compare(b.Fire), cmp.Compare(a.ID, b.ID))
	})
	return runs[:min(len(runs), limitOf(q.Limit))], nil
}
