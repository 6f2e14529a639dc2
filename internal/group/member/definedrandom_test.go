package member_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/claimer"
	"github.com/rota-dev/rota/internal/group/membertest"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/registry"
	"github.com/rota-dev/rota/schedule"
)

var (
	definedSeeds = flag.Int("defined.seeds", 4, "how many random worlds of defined jobs to run")
	definedSeed  = flag.Uint64("defined.seed", 1, "the first of them")
)

// TestDefined_InRandomWorlds defines, changes and deletes jobs at random while instances crash, lose their connections and are
// replaced, or none is there, and judges the claims in the store's log: in each creation of a name each fire of its
// definitions is claimed, none twice as the same attempt, and none once the deletion has returned.
func TestDefined_InRandomWorlds(t *testing.T) {
	for i := range *definedSeeds {
		seed := *definedSeed + uint64(i)
		membertest.RunBubble(t, fmt.Sprintf("seed %d", seed), func(t *testing.T, g *membertest.Group) {
			w := newRandomWorld(t, g, seed)
			w.live(2 * time.Hour)
			w.judge()
		})
	}
}

// span is the time in which a definition of a creation is the one that operators want.
type span struct {
	schedule    schedule.Schedule
	from, until time.Time
}

// creation is a job from its definition until its deletion.
type creation struct {
	job     string
	token   string
	spans   []span
	deleted time.Time // when the deletion had returned; zero: it has not been deleted
}

// randomWorld is a fleet and the operators' definitions.
type randomWorld struct {
	definer
	t         *testing.T
	rng       *rand.Rand
	now       map[string]*creation // by job
	all       []*creation
	instances map[string]*membertest.Worker
	heals     []func()
	started   int
}

func newRandomWorld(t *testing.T, g *membertest.Group, seed uint64) *randomWorld {
	w := &randomWorld{
		definer: definer{g}, t: t, rng: rand.New(rand.NewPCG(seed, 7)), now: map[string]*creation{}, instances: map[string]*membertest.Worker{},
	}
	g.Server.Record()
	return w
}

// work ends after some seconds, sometimes after a minute.
func (w *randomWorld) work() func(context.Context, claimer.Run) error {
	d := time.Duration(w.rng.IntN(5000)) * time.Millisecond
	return func(ctx context.Context, r claimer.Run) error {
		d := d
		if r.Fire.Unix()/60%7 == 0 {
			d = time.Minute
		}
		return membertest.WorkFor(d)(ctx, r)
	}
}

func (w *randomWorld) startInstance() {
	w.started++
	name := fmt.Sprintf("i%d", w.started)
	w.instances[name] = w.start(name, w.work())
}

// anInstance returns the name of one, "" if there is none.
func (w *randomWorld) anInstance() string {
	var names []string
	for name := range w.instances {
		names = append(names, name)
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return names[w.rng.IntN(len(names))]
}

func (w *randomWorld) live(d time.Duration) {
	end := time.Now().Add(d)
	for range 3 {
		w.startInstance()
	}
	for time.Now().Before(end) {
		sleep(time.Duration(w.rng.IntN(90_000)) * time.Millisecond)
		job := fmt.Sprintf("j%d", w.rng.IntN(6))
		switch n := w.rng.IntN(100); {
		case n < 45:
			w.defineAnew(job)
		case n < 60:
			w.deleteJob(job)
		case n < 75:
			if name := w.anInstance(); name != "" {
				w.g.Server.Expire(name)
			}
		case n < 85:
			if name := w.anInstance(); name != "" {
				heal := w.g.Server.Partition(name)
				w.heals = append(w.heals, heal)
				time.AfterFunc(time.Duration(w.rng.IntN(30))*time.Second, heal)
			}
		case n < 93:
			if name := w.anInstance(); name != "" {
				w.stopInstance(name, w.rng.IntN(2) == 0)
				w.startInstance()
			}
		case n < 97:
			w.g.Server.LoseReply(w.anInstance(), 1)
		default:
			for name := range w.instances {
				w.stopInstance(name, true)
			}
			sleep(time.Duration(w.rng.IntN(10)) * time.Minute)
			for range 3 {
				w.startInstance()
			}
		}
	}
	for _, heal := range w.heals {
		heal()
	}
	sleep(20 * time.Minute) // for what is owed
	for _, c := range w.now {
		c.spans[len(c.spans)-1].until = time.Now()
	}
}

// stopInstance ends an instance without a drain, or with one.
func (w *randomWorld) stopInstance(name string, crash bool) {
	worker := w.instances[name]
	delete(w.instances, name)
	if crash {
		worker.Abandon()
		w.g.Server.Expire(name)
		synctest.Wait()
		return
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	_ = worker.Drain(ctx)
	worker.Abandon()
}

// aSchedule returns a schedule whose fires are minutes apart, or one of a few instants.
func (w *randomWorld) aSchedule() schedule.Schedule {
	switch w.rng.IntN(5) {
	case 0:
		return schedule.Every(time.Minute)
	case 1:
		return schedule.Every(4 * time.Minute)
	case 2:
		return schedule.Every(15 * time.Minute)
	case 3:
		return schedule.Every(7 * time.Minute)
	}
	at := time.Now().Truncate(time.Second)
	return schedule.At(at.Add(time.Duration(w.rng.IntN(300))*time.Second+15*time.Second), at.Add(10*time.Minute))
}

// defineAnew defines a job, or changes it.
func (w *randomWorld) defineAnew(job string) {
	now, s := time.Now(), w.aSchedule()
	c := w.now[job]
	if c != nil && w.read(job) == nil {
		c.spans[len(c.spans)-1].until = now // finished, and deleted an hour later
		c = nil
	}
	if c == nil {
		c = &creation{job: job, token: fmt.Sprintf("t%d", len(w.all)+1)}
		w.now[job], w.all = c, append(w.all, c)
	} else {
		c.spans[len(c.spans)-1].until = now
	}
	c.spans = append(c.spans, span{schedule: s, from: now})
	next := w.fireAfter(s, now)
	w.define(job, c.token, len(c.spans), s.String(), `,"on_misfire":"run all 1000"`, func(r *record.Defined) {
		if _, awake := w.g.GetRecord(w.g.Keys.Job(record.Segment(job))); !awake && len(c.spans) > 1 {
			if old := w.read(job); r.Next != 0 && r.Next <= record.InstantOf(now) {
				r.Earlier = append(old.Earlier, record.EarlierDefinition{Until: record.InstantOf(now), Definition: old.Definition})
			} else {
				r.Next = record.InstantOf(next)
			}
			r.Changed = record.InstantOf(now)
		}
		if r.Rest != nil {
			r.Rest.Finished = 0
		}
	})
}

// fireAfter returns the first fire of a schedule after an instant, zero if there is none.
func (w *randomWorld) fireAfter(s schedule.Schedule, at time.Time) time.Time {
	table, err := s.Timetable()
	require.NoError(w.t, err)
	return table.Next(at)
}

// deleteJob deletes a job and waits until no run of it can be claimed.
func (w *randomWorld) deleteJob(job string) {
	c := w.now[job]
	if c == nil {
		return
	}
	delete(w.now, job)
	c.spans[len(c.spans)-1].until = time.Now()
	if w.read(job) == nil {
		return
	}
	w.remove(job)
	for range 300 { // with no instance, or a partitioned leader, it may take longer than a TTL
		e, planned := w.g.GetRecord(w.g.Keys.Plan(record.Segment(job)))
		if !planned {
			break
		}
		if p, err := record.DecodePlan(e.Value); err == nil && (p.Paused || !strings.HasPrefix(p.Life, c.token+".")) {
			break
		}
		sleep(100 * time.Millisecond)
		if len(w.instances) == 0 {
			return // nobody claims; it is not said to be deleted
		}
	}
	c.deleted = time.Now()
}

// claimed is a claim in the log.
type claimed struct {
	life    string
	shard   int
	fire    record.Instant
	attempt int
}

// judge compares the claims in the log with the definitions.
func (w *randomWorld) judge() {
	lives, before := map[string]string{}, map[registry.Key]record.Claims{}
	seen, fires := map[claimed]time.Time{}, map[string]map[record.Instant]bool{}
	for _, commit := range w.g.Server.Log() {
		if commit.Err != nil {
			continue
		}
		for _, op := range commit.Then {
			switch dir := op.Key.Dir(); {
			case op.Kind == registry.OpDelete:
				delete(before, op.Key)
			case dir == w.g.Keys.Plans():
				p, err := record.DecodePlan(op.Value)
				require.NoError(w.t, err)
				lives[op.Key.Name()] = p.Life
			case strings.Contains(string(dir), "/claims/"):
				c, err := record.DecodeClaims(op.Value)
				require.NoError(w.t, err)
				for _, g := range c.Running {
					old := before[op.Key].Running
					for shard := range g.Shards.All() {
						if ref, runs := old.Of(shard); runs && ref == g.Ref {
							continue
						}
						token, _, _ := strings.Cut(lives[op.Key.Name()], ".")
						id := claimed{token, shard, g.Fire, g.Attempt}
						if at, twice := seen[id]; twice {
							w.t.Errorf("%s: claimed twice: %+v at %v and %v", op.Key, id, at, commit.At)
						}
						seen[id] = commit.At
						if fires[token] == nil {
							fires[token] = map[record.Instant]bool{}
						}
						fires[token][g.Fire] = true
					}
				}
				before[op.Key] = c
			}
		}
	}
	for _, worker := range w.g.Members {
		for _, line := range worker.Log.LinesWith("another writer changed a record", "claim j") {
			w.t.Errorf("%s found its records changed: %s", worker.Instance(), line)
		}
	}
	for _, c := range w.all {
		w.judgeCreation(c, seen, fires[c.token])
	}
}

// late bounds how late a fire may be claimed: no instance is there for ten minutes, and runs of the fires before it take their
// time. What is owed when a job is deleted is not run.
const late = 15 * time.Minute

// slack is how far from a change a fire may belong to the definition before or after it: MaxClockSkew, and the leader's rounds.
const slack = 45 * time.Second

func (w *randomWorld) judgeCreation(c *creation, seen map[claimed]time.Time, fires map[record.Instant]bool) {
	may, over := map[record.Instant]bool{}, c.spans[len(c.spans)-1].until.Add(-late)
	for _, s := range c.spans {
		for at := s.from.Add(-1); ; {
			next := w.fireAfter(s.schedule, at)
			if next.IsZero() || !next.Before(s.until.Add(slack)) {
				break
			}
			at = next
			may[record.InstantOf(next)] = true
			if next.Before(s.until.Add(-slack)) && next.After(s.from.Add(slack)) && next.Before(over) && !fires[record.InstantOf(next)] {
				w.t.Errorf("%s of %s: the fire %v of %v is lost: defined %v to %v", c.token, c.job, next.UTC(), s.schedule, s.from.UTC(), s.until.UTC())
			}
		}
	}
	for fire := range fires {
		if !may[fire] {
			w.t.Errorf("%s of %s: %v is no fire of its definitions", c.token, c.job, fire)
		}
	}
	for id, at := range seen {
		if id.life == c.token && !c.deleted.IsZero() && at.After(c.deleted) {
			w.t.Errorf("%s of %s: %+v claimed at %v, after the deletion had returned at %v", c.token, c.job, id, at.UTC(), c.deleted.UTC())
		}
	}
}
