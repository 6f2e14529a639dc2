package explain

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rota-dev/rota/internal/group/coordtest"
	"github.com/rota-dev/rota/internal/group/due"
	"github.com/rota-dev/rota/internal/group/snapshot"
	"github.com/rota-dev/rota/internal/record"
	"github.com/rota-dev/rota/internal/shardset"
	"github.com/rota-dev/rota/registry"
)

const (
	incA = "a.1"
	incB = "b.2"
)

// world returns the records of a job of four shards that fires each minute. Instance a owns shards 0 and 1
// and leads, b owns the others. It is 10 s after the fifth fire, and the last one claimed is the fourth.
func world(t *testing.T) *Records {
	t.Helper()
	keys, err := record.NewKeys("test", "default")
	require.NoError(t, err)
	def := json.RawMessage(coordtest.Def("job", 0, 4, ""))
	stored, err := record.ParseJob(def)
	require.NoError(t, err)
	plan := &record.Plan{
		Job: "job", Epochs: []record.Epoch{epoch(t, 1, coordtest.Start, "")},
		Owners: map[string]shardset.Set{incA: shardset.Of(0, 1), incB: shardset.Of(2, 3)},
	}
	r := &Records{
		Now: coordtest.At(5).Add(10 * time.Second), Keys: keys, Job: "job", Definition: def, Stored: stored, Plan: plan,
		Leader: "a", Term: 7, Skewed: map[string]record.Duration{}, Unreadable: map[registry.Key]string{},
		Members: map[string]record.Member{
			incA: {Name: "a", Session: "1", Host: "host-a", Jobs: []string{"job"}},
			incB: {Name: "b", Session: "2", Host: "host-b", Jobs: []string{"job"}},
		},
		Live:    map[registry.SessionID]bool{"1": true, "2": true},
		Claims:  map[string]record.Claims{incA: {Job: "job"}, incB: {Job: "job"}},
		Compile: func(json.RawMessage) (due.Program, error) { return coordtest.Minutely{}, nil },
	}
	r.claim(0, coordtest.Fire(4, 1).Watermark())
	r.claim(1, coordtest.Fire(4, 1).Watermark())
	r.claim(2, coordtest.Fire(4, 1).Watermark())
	r.claim(3, coordtest.Fire(4, 1).Watermark())
	return r
}

func epoch(t *testing.T, number int, from record.Instant, more string) record.Epoch {
	t.Helper()
	e, err := record.NewEpoch(number, from, json.RawMessage(coordtest.Def("job", number-1, 4, more)))
	require.NoError(t, err)
	return e
}

func (r *Records) ownerOf(shard int) string { return []string{incA, incA, incB, incB}[shard] }

func (r *Records) editClaims(shard int, f func(*record.Claims)) {
	c := r.Claims[r.ownerOf(shard)]
	f(&c)
	r.Claims[r.ownerOf(shard)] = c
}

func (r *Records) claim(shard int, m record.Watermark) {
	r.editClaims(shard, func(c *record.Claims) { c.Watermarks = c.Watermarks.Raise(shardset.Of(shard), m) })
}

// run records a run of a shard as claimed and not ended.
func (r *Records) run(shard int, ref record.Ref) {
	r.editClaims(shard, func(c *record.Claims) {
		c.Watermarks = c.Watermarks.Raise(shardset.Of(shard), ref.Watermark())
		c.Running = c.Running.With(shardset.Of(shard), ref)
	})
}

func (r *Records) fail(shard int, ref record.Ref, err string) {
	r.editClaims(shard, func(c *record.Claims) {
		c.Failures = c.Failures.With(record.Failure{RunGroup: record.RunGroup{Shards: shardset.Of(shard), Ref: ref}, At: ref.Fire + 1, Error: err})
	})
}

func (r *Records) editMember(inc string, f func(*record.Member)) {
	m := r.Members[inc]
	f(&m)
	r.Members[inc] = m
}

// triggered returns the first attempt at trigger n, which was requested 10 s before the fifth minute.
func triggered(n uint64) record.Ref {
	return record.Ref{Epoch: 1, Fire: coordtest.At(5) - record.Instant(10*time.Second), Trigger: n, Attempt: 1}
}

// byTriggerOnly makes the job one without fires of a schedule.
func (r *Records) byTriggerOnly(t *testing.T) {
	r.Plan.Epochs[0] = epoch(t, 1, coordtest.Start, `,"schedule":"on trigger"`)
	r.Compile = func(json.RawMessage) (due.Program, error) { return never{}, nil }
	r.Claims = map[string]record.Claims{incA: {Job: "job"}, incB: {Job: "job"}}
}

// request puts trigger n into the plan, for shard 0.
func (r *Records) request(n uint64) {
	only := shardset.Of(0)
	r.Plan.Triggers = append(r.Plan.Triggers, record.Trigger{Number: n, At: triggered(n).Fire, Epoch: 1, Shards: &only})
}

// never is a Program without fires.
type never struct{}

func (never) Due(_, _, _ time.Time) due.Due     { return due.Due{} }
func (never) SkipDue(_, _, _ time.Time) due.Due { return due.Due{} }

// disown takes the owner of shard 0 away.
func (r *Records) disown() { r.Plan.Owners[incA] = shardset.Of(1) }

// follow makes the job one that follows another, with one released fire.
func (r *Records) follow(t *testing.T, released record.Release) {
	r.Plan.Epochs[0] = epoch(t, 1, coordtest.Start, `,"schedule":"after job-a"`)
	r.Plan.Epochs[0].Released = []record.Release{released}
	r.Compile = func(json.RawMessage) (due.Program, error) { return coordtest.Following{}, nil }
}

// pendLost puts a re-run of the fifth fire of shard 0 on record, which the definition counts as lost.
func (r *Records) pendLost(t *testing.T) {
	r.Plan.Epochs[0] = epoch(t, 1, coordtest.Start, `,"on_crash":"count as failed"`)
	r.claim(0, coordtest.Fire(5, 1).Watermark())
	r.Plan.Reruns = coordtest.Runs(shardset.Of(0), coordtest.Fire(5, 2))
}

// claimAhead raises the watermark of shard 0 to a fire that its owner reports as ahead of all clocks.
func (r *Records) claimAhead() {
	fire := coordtest.Fire(90, 1)
	r.claim(0, fire.Watermark())
	r.editMember(incA, func(m *record.Member) { m.Ahead = map[string]record.Ahead{"job": {Epoch: 1, At: fire.Fire}} })
}

func (r *Records) expire(inc string) { delete(r.Live, record.SessionOf(inc)) }

type gateCase struct {
	name    string
	gate    string // the last one
	verdict Verdict
	change  func(t *testing.T, r *Records)
	fire    record.Instant // 0: the newest
	detail  string         // a part of it
	summary string         // a part of it
	do      string         // a part of it
}

func gateCases() []gateCase {
	at := coordtest.At
	return []gateCase{
		{"an unknown job", "defined", Stop, func(_ *testing.T, r *Records) { r.Definition, r.Plan, r.Stored = nil, nil, record.Job{} }, at(5), "no process has stored", "has not run", "registers the job"},
		{"a damaged definition without a plan", "defined", Stop, func(_ *testing.T, r *Records) {
			r.Definition, r.Plan = nil, nil
			r.Unreadable[r.Keys.Job("job")] = "shards is -3"
		}, at(5), "test/groups/default/jobs/job cannot be read: shards is -3", "", "restore or delete"},
		{"a damaged plan", "defined", Stop, func(_ *testing.T, r *Records) {
			r.Plan = nil
			r.Unreadable[r.Keys.Plan("job")] = "epochs: none"
		}, at(5), "plan/job cannot be read: epochs: none", "", "restore or delete"},

		{"no instance offers the job", "offered", Stop, func(_ *testing.T, r *Records) {
			r.editMember(incA, func(m *record.Member) { m.Jobs = nil })
			r.expire(incB)
		}, 0, "no live instance offers the job; 1 instance is in the group", "It is 10s late and still due", "start a process"},
		{"no instance supports the definition", "offered", Stop, func(_ *testing.T, r *Records) {
			for _, inc := range []string{incA, incB} {
				r.editMember(inc, func(m *record.Member) { m.Jobs, m.Unsupported = nil, []string{"job"} })
			}
		}, 0, "supports all definitions in force: 2 instances register it", "", "finish the upgrade"},

		{"no plan", "in force", Stop, func(_ *testing.T, r *Records) { r.Plan = nil }, at(5), "no leader has made a plan yet (leader: a, term 7)", "", "leader's log"},
		{"no plan and no leader", "in force", Stop, func(_ *testing.T, r *Records) { r.Plan, r.Leader = nil, "" }, at(5), "leader: none", "", "start an instance"},
		{"a fire before the job", "in force", Stop, nil, at(-3), "the job exists since", "", ""},
		{"a fire of a definition that was dropped", "in force", Unknown, func(t *testing.T, r *Records) {
			r.Plan.Epochs = []record.Epoch{epoch(t, 3, at(4), "")}
		}, at(2), "are not in the plan any more", "", "run history"},
		{"a fire during a pause that is over", "in force", Stop, func(t *testing.T, r *Records) {
			r.Plan.Epochs[0].Until = at(2)
			r.Plan.Epochs = append(r.Plan.Epochs, epoch(t, 2, at(4), ""))
		}, at(3), "fires count again from", "", ""},

		{"not an instant of the schedule", "due", Stop, nil, at(5) + 1, "does not have the instant. the next fire is at " + at(6).String(), "", "ask for an instant"},
		{"a fire in the future", "due", Stop, nil, at(6), "due in 50s", "", ""},
		{"no fire yet", "due", Stop, func(_ *testing.T, r *Records) {
			r.Now = coordtest.Start.Add(time.Second)
			r.Claims = nil
		}, 0, "the next fire is at", "No fire: the next fire", ""},
		{"no compiler and no claim", "due", Stop, func(_ *testing.T, r *Records) { r.Compile, r.Claims = nil, nil }, 0, "schedules of the job are not known here", "", "give an instant"},

		{"a paused job", "intent", Stop, func(_ *testing.T, r *Records) { r.Plan.Paused, r.Plan.Epochs[0].Until = true, at(4)+1 }, 0, "paused since", "has not run", "resume"},
		{"a job of a paused group", "intent", Stop, func(_ *testing.T, r *Records) {
			r.Plan.Paused, r.Plan.GroupPause, r.Plan.Epochs[0].Until = true, &record.OwnHold{}, at(4)+1
		}, 0, "all jobs of the group are paused", "has not run", "resume the group"},
		{"a job of a paused group that owed the fire before", "intent", Stop, func(_ *testing.T, r *Records) {
			r.Plan.Paused, r.Plan.GroupPause, r.Plan.Epochs[0].Until = true, &record.OwnHold{}, at(5)+1
		}, 0, "wait for the resume", "", "resume the group"},
		{"a paused job that owed the fire before", "intent", Stop, func(_ *testing.T, r *Records) { r.Plan.Paused, r.Plan.Epochs[0].Until = true, at(5)+1 }, 0, "wait for the resume", "", "resume"},
		{"a resume that is not in force", "intent", Stop, func(_ *testing.T, r *Records) {
			r.Plan.Paused, r.Plan.Epochs[0].Until = true, at(4)+1
			r.Control = &record.Control{Job: "job"}
		}, 0, "a resume is stored", "", "wait"},
		{"a retirement that is not in force", "claimed", Stop, func(_ *testing.T, r *Records) {
			r.Control = &record.Control{Job: "job", Retiring: &record.Act{}}
		}, 0, "a owns the shard and may claim the fire", "", ""},
		{"a stopped schedule", "intent", Stop, func(_ *testing.T, r *Records) { r.Plan.Stopped, r.Plan.Epochs[0].Until = true, at(4)+1 }, 0, "by triggers only", "", "resume"},
		{"a disabled shard", "intent", Stop, func(_ *testing.T, r *Records) { r.Plan.Disabled = shardset.Of(0) }, 0, "the shard is disabled", "would skip it", "enable"},
		{"a disabled shard with a trigger", "intent", Stop, func(_ *testing.T, r *Records) { r.Plan.Disabled = shardset.Of(0); r.request(2) }, 0, "the shard is disabled", "Trigger 2 of the shard waits too.", "enable the shard; trigger 2 of the shard waits, and runs then"},
		{"no owner, and a trigger", "owner", Stop, func(_ *testing.T, r *Records) { r.disown(); r.request(2) }, 0, "", "Trigger 2 of the shard waits too.", ""},
		{"a re-run of a disabled shard", "intent", Stop, func(_ *testing.T, r *Records) {
			r.Plan.Disabled = shardset.Of(0)
			r.claim(0, coordtest.Fire(5, 1).Watermark())
			r.Plan.Reruns = coordtest.Runs(shardset.Of(0), coordtest.Fire(5, 2))
		}, 0, "its re-run waits", "is to be run again, as attempt 2: the shard is disabled", "enable"},

		{"no leader for an unowned shard", "leader", Stop, func(_ *testing.T, r *Records) { r.disown(); r.Leader = "" }, 0, "gets no owner", "", "elections"},
		{"no leader for a failover", "leader", Stop, func(_ *testing.T, r *Records) { r.expire(incA); r.Leader = "" }, 0, "not reassigned", "", "elections"},
		{"no leader for a move", "leader", Stop, func(_ *testing.T, r *Records) { r.Plan.Frozen, r.Leader = shardset.Of(0), "" }, 0, "not moved", "", "elections"},

		{"no instance has the labels", "owner", Stop, func(_ *testing.T, r *Records) {
			r.disown()
			r.Stored.RunOn = map[string]string{"gpu": "yes"}
		}, 0, "2 instances offer the job, and none may own it (without the labels gpu=yes: a, b)", "", "with the labels"},
		{"disabled by instance and by host", "owner", Stop, func(_ *testing.T, r *Records) {
			r.disown()
			r.Group.Instances, r.Control = []string{"a"}, &record.Control{Exclusion: record.Exclusion{Hosts: []string{"host-b"}}}
		}, 0, "(disabled: a, b)", "", "enable"},
		{"draining and skewed instances", "owner", Stop, func(_ *testing.T, r *Records) {
			r.disown()
			r.editMember(incA, func(m *record.Member) { m.Draining = true })
			r.Skewed[incB] = record.Duration(7 * time.Second)
		}, 0, "(clock 7s ahead of the fleet's median: b; draining: a)", "", "set the clock; start an instance"},
		{"blocked on one instance, expired on the other", "owner", Stop, func(_ *testing.T, r *Records) {
			r.disown()
			r.expire(incB)
			r.editMember(incA, func(m *record.Member) { m.Blocked = map[string]shardset.Set{"job": shardset.Of(0)} })
		}, 0, "1 instance offers the job, and none may own it (with a handler", "", "end that process"},
		{"not assigned yet", "owner", Stop, func(_ *testing.T, r *Records) { r.disown() }, 0, "though 2 instances may own it", "", "leader"},
		{"a problem of the plan", "owner", Stop, func(_ *testing.T, r *Records) { r.disown(); r.Plan.Problem = "strategy fails" }, 0, "strategy fails", "", "messages.md"},
		{"an owner that has expired", "owner", Stop, func(_ *testing.T, r *Records) { r.expire(incA) }, 0, "session of the owner a has expired", "", "failover"},
		{"an owner that is awaited", "owner", Stop, func(_ *testing.T, r *Records) {
			r.expire(incA)
			r.editMember(incA, func(m *record.Member) { m.RestartGrace = record.Duration(time.Minute) })
		}, 0, "wait up to 1m0s for its return", "", "start a again"},
		{"an owner that is disabled, and so not awaited", "owner", Stop, func(_ *testing.T, r *Records) {
			r.expire(incA)
			r.editMember(incA, func(m *record.Member) { m.RestartGrace = record.Duration(time.Minute) })
			r.Group.Instances = []string{"a"}
		}, 0, "the leader has not reassigned the shard yet", "", "failover"},
		{"an owner that drains and is awaited", "owner", Stop, func(_ *testing.T, r *Records) {
			r.editMember(incA, func(m *record.Member) { m.Draining, m.RestartGrace = true, record.Duration(time.Minute) })
		}, 0, "its shards wait for its return", "", "restart of a"},
		{"an owner that drains", "owner", Stop, func(_ *testing.T, r *Records) { r.editMember(incA, func(m *record.Member) { m.Draining = true }) }, 0, "about to move", "", "wait"},
		{"an owner with a skewed clock", "owner", Stop, func(_ *testing.T, r *Records) { r.Skewed[incA] = record.Duration(-time.Hour) }, 0, "1h0m0s behind the fleet's median", "", "set the clock of a"},
		{"an owner that is blocked", "owner", Stop, func(_ *testing.T, r *Records) {
			r.editMember(incA, func(m *record.Member) { m.Blocked = map[string]shardset.Set{"job": shardset.Of(0)} })
		}, 0, "has not returned", "", "end the process of a"},
		{"an owner of an older version", "owner", Stop, func(_ *testing.T, r *Records) {
			r.editMember(incA, func(m *record.Member) { m.Jobs, m.Unsupported = nil, []string{"job"} })
		}, 0, "does not support", "", "upgrade"},

		{"frozen until a run ends", "frozen", Stop, func(_ *testing.T, r *Records) {
			r.Plan.Frozen = shardset.Of(0)
			r.run(0, coordtest.Fire(4, 1))
		}, 0, "it moves when the run of " + at(4).String() + " (attempt 1) has ended", "", "cancel it"},
		{"frozen until claims are read", "frozen", Stop, func(_ *testing.T, r *Records) { r.Plan.Frozen = shardset.Of(0) }, 0, "has to read", "", "leader"},

		{"an earlier run", "ahead", Stop, func(_ *testing.T, r *Records) { r.run(0, coordtest.Fire(4, 1)) }, 0, "the run of " + at(4).String() + " (attempt 1) has not ended on a", "", "timeout"},
		{"all slots of its pool are taken", "pool", Stop, func(t *testing.T, r *Records) {
			e, err := record.NewEpoch(1, coordtest.Start, json.RawMessage(`{"name":"job","shards":4,"pool":"db"}`))
			require.NoError(t, err)
			r.Plan.Epochs[0] = e
			r.Pools = snapshot.Pools{
				Sizes:   map[string]int{"db": 3},
				Slots:   map[string]record.Slots{"db": {Grants: map[string]record.Grant{incA: {Slots: 1, Deal: 1}, incB: {Slots: 2, Deal: 1}}}},
				Demands: map[string]record.Demand{incA: {Pools: map[string]record.PoolDemand{"db": {Want: 2}}}},
			}
		}, 0, "the run waits for pool db: 3 of 3 slots taken by b (2), a (1)", "", "a larger size"},
		{"many instances have slots of its pool", "pool", Stop, func(t *testing.T, r *Records) {
			r.Plan.Epochs[0] = epoch(t, 1, coordtest.Start, `,"pool":"db"`)
			grants := map[string]record.Grant{}
			for n := range 9 {
				grants[fmt.Sprintf("i%d.%d", n, n)] = record.Grant{Slots: 1, Deal: 1}
			}
			r.Pools = snapshot.Pools{Sizes: map[string]int{"db": 9}, Slots: map[string]record.Slots{"db": {Grants: grants}}}
		}, 0, "9 of 9 slots taken by i0 (1), i1 (1), i2 (1), i3 (1), i4 (1), 4 more instances", "", "a larger size"},
		{"a fire of an earlier definition waits for a slot", "ahead", Stop, func(t *testing.T, r *Records) {
			r.Plan.Epochs[0] = epoch(t, 1, coordtest.Start, `,"pool":"db"`)
			r.Plan.Epochs[0].Until = at(5)
			r.Plan.Epochs = append(r.Plan.Epochs, epoch(t, 2, at(5), ""))
			r.Claims = nil
		}, 0, "the fire of " + at(4).String() + " goes first: it is due by revision 0, an earlier definition, and waits for a slot of pool db", "", "wait"},
		{
			"its pool has no size", "pool", Stop, func(t *testing.T, r *Records) { r.Plan.Epochs[0] = epoch(t, 1, coordtest.Start, `,"pool":"db"`) },
			0, "the run waits for a slot of pool db, which has no size", "", "rota set-pool db N",
		},
		{"its owner has lost its grant and ends its runs", "pool", Stop, func(t *testing.T, r *Records) {
			r.Plan.Epochs[0] = epoch(t, 1, coordtest.Start, `,"pool":"db"`)
			r.Pools = snapshot.Pools{Sizes: map[string]int{"db": 3}, Demands: map[string]record.Demand{incA: {Pools: map[string]record.PoolDemand{"db": {Want: 2, Cap: 2}}}}}
		}, 0, "2 of 3 slots taken by a (2)", "", "a larger size"},
		{"its owner has free slots", "claimed", Stop, func(t *testing.T, r *Records) {
			r.Plan.Epochs[0] = epoch(t, 1, coordtest.Start, `,"pool":"db"`)
			r.Pools = snapshot.Pools{Sizes: map[string]int{"db": 3}, Slots: map[string]record.Slots{"db": {Grants: map[string]record.Grant{incA: {Slots: 2, Deal: 1}}}}}
		}, 0, "a owns the shard and may claim the fire", "", ""},
		{"a run that skips the fires that it overlaps", "ahead", Stop, func(t *testing.T, r *Records) {
			r.Plan.Epochs[0] = epoch(t, 1, coordtest.Start, `,"on_overlap":"skip"`)
			r.run(0, coordtest.Fire(4, 1))
		}, 0, "The job skips the fires that come due meanwhile (overlap)", "is to be skipped, as the run of " + at(4).String() + " (attempt 1) has not ended on a", "only if the run hangs"},
		{"a late run of a job that skips the fires that runs overlap", "ahead", Stop, func(t *testing.T, r *Records) {
			r.Plan.Epochs[0] = epoch(t, 1, coordtest.Start, `,"on_overlap":"skip"`)
			late := coordtest.Fire(4, 1)
			late.Missed = true
			r.run(0, late)
		}, 0, "a shard has one run at a time", "late and still due", "timeout"},
		{"a run of a trigger", "ahead", Stop, func(_ *testing.T, r *Records) { r.run(0, record.Ref{Epoch: 1, Fire: at(4), Trigger: 3, Attempt: 2}) }, 0, "the run of trigger 3 (attempt 2)", "", ""},
		{"a re-run of an earlier fire", "ahead", Stop, func(_ *testing.T, r *Records) { r.Plan.Reruns = coordtest.Runs(shardset.Of(0), coordtest.Fire(4, 2)) }, 0, "goes first", "", "wait"},
		{"a retry of an earlier fire", "ahead", Stop, func(_ *testing.T, r *Records) {
			r.editClaims(0, func(c *record.Claims) {
				c.Reruns = coordtest.Runs(shardset.Of(0), coordtest.Fire(4, 1).RetryAt(at(7), time.Minute))
			})
		}, 0, "a retry of " + at(4).String() + " (attempt 2) goes first, and waits until " + at(7).String(), "", "wait"},
		{"a trigger", "ahead", Stop, func(_ *testing.T, r *Records) { r.Plan.Triggers = []record.Trigger{{Number: 9, At: at(5), Epoch: 1}} }, 0, "trigger 9", "", "wait"},
		{"a fire of an earlier definition", "ahead", Stop, func(t *testing.T, r *Records) {
			r.Plan.Epochs[0].Until = at(5)
			r.Plan.Epochs = append(r.Plan.Epochs, epoch(t, 2, at(5), ""))
			r.Claims = nil
		}, 0, "the fire of " + at(4).String() + " goes first", "", "wait"},

		{"a run of an incarnation that does not own the shard", "claimed", Stop, func(_ *testing.T, r *Records) {
			c := r.Claims[incB]
			c.Running = coordtest.Runs(shardset.Of(0), coordtest.Fire(4, 1))
			r.Claims[incB] = c
		}, 0, "a owns the shard and may claim the fire", "", ""},
		{"a fire of an earlier definition that is due later", "ahead", Stop, func(t *testing.T, r *Records) {
			r.follow(t, record.Release{At: at(3), Released: at(6)})
			r.Plan.Epochs[0].Until, r.Claims = at(4), nil
			r.Plan.Epochs = append(r.Plan.Epochs, epoch(t, 2, at(4), `,"schedule":"after job-a"`))
			r.Plan.Epochs[1].Released = []record.Release{{At: at(5), Released: at(5)}}
		}, 0, "the fires of revision 0, an earlier definition, go first, and the next one is due at " + at(6).String(), "", "wait"},
		{"a fire of an earlier definition that is not known here", "claimed", Unknown, func(t *testing.T, r *Records) {
			r.Plan.Epochs[0].Until = at(5)
			r.Plan.Epochs = append(r.Plan.Epochs, epoch(t, 2, at(5), ""))
			newest := string(r.Plan.Last().Def)
			r.Compile = func(def json.RawMessage) (due.Program, error) {
				if string(def) != newest {
					return nil, errors.New("not known")
				}
				return coordtest.Minutely{}, nil
			}
		}, 0, "the watermark of the shard is " + at(4).String(), "", ""},

		{"a followed fire that is due later", "claimed", Stop, func(t *testing.T, r *Records) {
			r.follow(t, record.Release{At: at(5), Released: at(6)})
		}, 0, "a claims no fire of the shard before " + at(6).String(), "", "wait"},
		{"skipped", "claimed", Stop, func(_ *testing.T, r *Records) { r.claim(0, record.Watermark{Epoch: 1, Fire: at(5)}) }, 0, "the fire was skipped by a", "was skipped.", "misfire"},
		{"claims ahead of the clock", "claimed", Stop, func(_ *testing.T, r *Records) { r.claimAhead() }, 0, "a wrong clock", "", "reset"},
		{"claimed by a clock that is 5 s ahead", "outcome", OK, func(_ *testing.T, r *Records) {
			r.Now = at(5).Add(-5 * time.Second)
			r.claim(0, coordtest.Fire(5, 1).Watermark())
		}, at(5), "", "succeeded", ""},
		{"the next fire claimed by a clock that is 5 s ahead", "outcome", Unknown, func(_ *testing.T, r *Records) {
			r.Now = at(5).Add(-5 * time.Second)
			r.claim(0, coordtest.Fire(5, 1).Watermark())
		}, 0, "not on record", "", ""},
		{"a later fire replaces it", "claimed", Stop, func(_ *testing.T, r *Records) { r.Claims = nil }, at(4), "the misfire policy runs that of " + at(5).String() + " in its place", "would skip it", "misfire"},
		{"the owner has not claimed", "claimed", Stop, nil, 0, "a owns the shard and may claim the fire, and has not yet", "It is 10s late and still due", "store unreachable"},
		{"damaged claims", "claimed", Unknown, func(_ *testing.T, r *Records) {
			delete(r.Claims, incA)
			r.Unreadable[r.Keys.Claims(incA, "job")] = "no JSON"
		}, 0, "cannot be read (no JSON)", "", "restore"},

		{"a retry that waits", "retry", Stop, func(_ *testing.T, r *Records) {
			r.claim(0, coordtest.Fire(5, 1).Watermark())
			r.fail(0, coordtest.Fire(5, 1), "no such table")
			r.editClaims(0, func(c *record.Claims) {
				c.Reruns = coordtest.Runs(shardset.Of(0), coordtest.Fire(5, 1).RetryAt(at(7), time.Minute))
			})
		}, 0, "attempt 1 failed: no such table; attempt 2 waits until", "failed and is retried: attempt 2 waits", "cancel the retry"},
		{"a retry that a wrong clock recorded", "retry", Stop, func(_ *testing.T, r *Records) {
			r.claim(0, coordtest.Fire(5, 1).Watermark())
			r.Plan.Reruns = coordtest.Runs(shardset.Of(0), coordtest.Fire(5, 1).RetryAt(at(90), time.Minute))
			r.Skew = time.Second
			r.editMember(incA, func(m *record.Member) { m.Clock = r.Now })
		}, 0, "attempt 2 may begin, and a has not claimed it yet", "", "log of a"},
		{"a retry, if clocks are not compared", "retry", Stop, func(_ *testing.T, r *Records) {
			r.claim(0, coordtest.Fire(5, 1).Watermark())
			r.Plan.Reruns = coordtest.Runs(shardset.Of(0), coordtest.Fire(5, 1).RetryAt(at(90), time.Minute))
			r.Skew = time.Second
		}, 0, "attempt 2 waits until", "", "wait"},
		{"a re-run that counts as lost", "retry", Stop, func(t *testing.T, r *Records) { r.pendLost(t) }, 0, "a does not make attempt 2: the newest definition counts crashed runs as failed", "is to be run again", "retry the fire then"},
		{"a re-run of a disabled shard that counts as lost", "intent", Stop, func(t *testing.T, r *Records) {
			r.pendLost(t)
			r.Plan.Disabled = shardset.Of(0)
		}, 0, "the shard is disabled, and its owner does not make attempt 2", "", "enable"},
		{"a lost re-run of an earlier fire", "claimed", Stop, func(t *testing.T, r *Records) {
			r.pendLost(t)
			r.Now = at(6)
		}, 0, "a owns the shard and may claim the fire", "", ""},
		{"a cancelled retry", "retry", Stop, func(_ *testing.T, r *Records) {
			r.claim(0, coordtest.Fire(5, 1).Watermark())
			r.claim(1, coordtest.Fire(5, 1).Watermark())
			r.Plan.Reruns = coordtest.Runs(shardset.Of(0, 1), coordtest.Fire(5, 1).RetryAt(at(7), time.Minute))
			r.Plan.Cancels = coordtest.Runs(shardset.Of(0), coordtest.Fire(5, 1))
		}, 0, "a does not make attempt 2: an operator has cancelled the run", "", "retry the fire then"},
		{"a cancelled retry, while a trigger waits for a slot", "retry", Stop, func(t *testing.T, r *Records) {
			r.Plan.Epochs[0] = epoch(t, 1, coordtest.Start, `,"pool":"db"`)
			r.claim(0, coordtest.Fire(5, 1).Watermark())
			r.Plan.Reruns = coordtest.Runs(shardset.Of(0), coordtest.Fire(5, 1).RetryAt(at(7), time.Minute))
			r.Plan.Cancels = coordtest.Runs(shardset.Of(0), coordtest.Fire(5, 1))
			r.Plan.Triggers = []record.Trigger{{Number: 9, At: at(5), Epoch: 1}}
		}, 0, "a does not make attempt 2: an operator has cancelled the run", "", "retry the fire then"},
		{"a re-run that may begin", "retry", Stop, func(_ *testing.T, r *Records) {
			r.claim(0, coordtest.Fire(5, 1).Watermark())
			r.Plan.Reruns = coordtest.Runs(shardset.Of(0), coordtest.Fire(5, 2))
		}, 0, "attempt 2 may begin, and a has not claimed it yet", "", "log of a"},

		{"no worker is free", "worker", Stop, func(_ *testing.T, r *Records) {
			r.run(0, coordtest.Fire(5, 1))
			r.editMember(incA, func(m *record.Member) {
				m.Waiting = map[string]record.Waiting{"job": {Shards: shardset.Of(0), Since: at(5), Behind: "MaxRunning 1 of this job"}}
			})
		}, 0, "waits for a worker, behind MaxRunning 1 of this job", "is claimed and waits for a worker of a", "sizing"},

		{"running", "running", OK, func(_ *testing.T, r *Records) { r.run(0, coordtest.Fire(5, 2)) }, 0, "attempt 2, claimed by a", "runs on a, as attempt 2", ""},
		{"running under a session that has expired", "running", Stop, func(_ *testing.T, r *Records) { r.run(0, coordtest.Fire(5, 1)); r.expire(incA) }, 0, "expired during attempt 1", "whose session has expired", "failover"},

		{"succeeded", "outcome", OK, func(_ *testing.T, r *Records) { r.claim(0, coordtest.Fire(5, 1).Watermark()) }, 0, "no failure of it is on record", "succeeded, as attempt 1 by a", ""},
		{"failed", "outcome", Stop, func(_ *testing.T, r *Records) {
			r.claim(0, coordtest.Fire(5, 3).Watermark())
			r.fail(0, coordtest.Fire(5, 3), "no such table")
		}, 0, "attempt 3 failed", "with: no such table", "retry the fire"},
		{"lost", "outcome", Stop, func(_ *testing.T, r *Records) {
			r.claim(0, coordtest.Fire(5, 1).Watermark())
			r.fail(0, coordtest.Fire(5, 1), due.CrashedRunError)
		}, 0, "was lost", "was lost", "on_crash"},
		{"lost, and the pending attempt was dropped", "outcome", Stop, func(_ *testing.T, r *Records) {
			r.claim(0, coordtest.Fire(5, 2).Watermark()) // which covers the attempt that nobody made
			r.fail(0, coordtest.Fire(5, 1), due.CrashedRunError)
		}, 0, "attempt 1 was lost", "was lost", "on_crash"},
		{"cancelled while an attempt was pending", "outcome", Stop, func(_ *testing.T, r *Records) {
			r.claim(0, coordtest.Fire(5, 2).Watermark())
			r.fail(0, coordtest.Fire(5, 1), due.CancelledRunError)
		}, 0, "attempt 1 failed", "cancelled by an operator", "retry the fire"},
		{"an earlier attempt failed", "outcome", OK, func(_ *testing.T, r *Records) {
			r.fail(0, coordtest.Fire(3, 1), "earlier")
			r.fail(0, coordtest.Fire(5, 1), "no such table")
			r.claim(0, coordtest.Fire(5, 2).Watermark())
		}, 0, "", "succeeded, as attempt 2", ""},
		{"an older fire", "outcome", Unknown, nil, at(2), "not on record", "only the run history has its outcome", "run history"},
		{"an older fire that failed and was retried", "outcome", Unknown, func(_ *testing.T, r *Records) {
			r.editClaims(0, func(c *record.Claims) {
				c.Failures = c.Failures.With(record.Failure{RunGroup: record.RunGroup{Shards: shardset.Of(0), Ref: coordtest.Fire(2, 1)}, At: at(2) + 1, Error: "no such table", Again: true})
			})
		}, at(2), "do not hold how that ended", "only the run history has how that ended", "run history"},
		{"an older fire that failed", "outcome", Stop, func(_ *testing.T, r *Records) { r.fail(0, coordtest.Fire(2, 1), "no such table") }, at(2), "no such table", "", "retry"},
		{"a failure that may be displaced", "outcome", Unknown, func(_ *testing.T, r *Records) {
			r.claim(0, coordtest.Fire(5, 1).Watermark())
			r.fail(2, coordtest.Fire(6, 1), "newer")
		}, 0, "displaced", "whether it succeeded is not on record", "run history"},
		{"a job that tracks claims", "outcome", Unknown, func(t *testing.T, r *Records) {
			r.Plan.Epochs[0] = epoch(t, 1, coordtest.Start, coordtest.ClaimsOnly)
			r.claim(0, coordtest.Fire(5, 1).Watermark())
		}, 0, "tracks claims only", "whether it succeeded", ""},
	}
}

func TestExplain_StopsAtEachGate(t *testing.T) {
	stopped := map[string]bool{}
	for _, c := range gateCases() {
		t.Run(c.name, func(t *testing.T) {
			r := world(t)
			if c.change != nil {
				c.change(t, r)
			}
			answers := Explain(*r, shardset.Of(0), c.fire)
			require.Len(t, answers, 1)
			a := answers[0]
			last := a.Gates[len(a.Gates)-1]
			assert.Equal(t, c.gate, last.Name, "%+v", a)
			assert.Equal(t, c.verdict, last.Verdict, "%+v", last)
			assert.Equal(t, c.verdict == Stop, a.Stops)
			assert.Contains(t, last.Detail, c.detail)
			assert.Contains(t, a.Summary, c.summary)
			assert.Contains(t, a.Do, c.do)
			assert.True(t, strings.HasSuffix(a.Summary, "."), a.Summary)
			if c.do == "" && c.verdict == OK {
				assert.Empty(t, a.Do)
			}
			names := GateNames()
			for i, g := range a.Gates {
				at := slices.Index(names, g.Name)
				require.GreaterOrEqual(t, at, 0, "gates are checked in order: %+v", a.Gates)
				names = names[at+1:]
				assert.NotEmpty(t, g.Detail, g.Name)
				if i < len(a.Gates)-1 {
					assert.NotEqual(t, Stop, g.Verdict, "nothing is checked after a stop")
				}
			}
		})
		if c.verdict == Stop {
			stopped[c.gate] = true
		}
	}
	t.Run("a shard that the definition does not have", func(t *testing.T) {
		r := world(t)
		e, err := record.NewEpoch(2, coordtest.At(5), json.RawMessage(coordtest.Def("job", 1, 2, "")))
		require.NoError(t, err)
		r.Plan.Epochs[0].Until = coordtest.At(5)
		r.Plan.Epochs = append(r.Plan.Epochs, e)
		a := Explain(*r, shardset.Of(3), coordtest.At(5))[0]
		assert.Equal(t, Gate{"in force", Stop, "revision 1, in force at that instant, has only 2 shards"}, a.Gates[len(a.Gates)-1])
		a = Explain(*r, shardset.Of(3), 0)[0]
		assert.Equal(t, coordtest.At(4), a.Fire, "its newest fire is one of the definition before")
	})
	for _, name := range GateNames() {
		assert.True(t, stopped[name], "no case stops at %q", name)
	}
}

// A job that runs by triggers only has no fire to explain: the newest run that was triggered takes the place of one.
func TestExplain_OfATriggeredRun(t *testing.T) {
	run := "The run of trigger 2, of " + triggered(2).Fire.String() + ","
	failed := func(r *Records) {
		r.claim(0, triggered(2).Watermark())
		r.fail(0, triggered(2), "no such table")
	}
	retried := func(r *Records) {
		failed(r)
		r.editClaims(0, func(c *record.Claims) {
			c.Failures[0].Again = true
			c.Reruns = coordtest.Runs(shardset.Of(0), triggered(2).RetryAt(coordtest.At(7), time.Minute))
		})
	}
	covered := map[string]bool{}
	for _, c := range []struct {
		name    string
		gate    string
		verdict Verdict
		change  func(r *Records)
		summary string
		do      string
		verb    Verb
	}{
		{"that failed", "outcome", Stop, failed, run + " failed: attempt 1 ended at " + seconds(triggered(2).Fire+1) + " with: no such table.", "remove the cause, then retry the run", Retry},
		{"that failed and is retried", "retry", Stop, retried, run + " failed and is retried: attempt 2 waits until " + seconds(coordtest.At(7)) + ".", "wait, or cancel the retry, and retry the run then", ""},
		{"that failed and is retried now", "retry", Stop, func(r *Records) {
			failed(r)
			r.editClaims(0, func(c *record.Claims) {
				c.Reruns = coordtest.Runs(shardset.Of(0), triggered(2).RetryAt(coordtest.At(5), time.Minute))
			})
		}, run + " failed and is to be retried, as attempt 2: attempt 2 may begin, and a has not claimed it yet.", "log of a", ""},
		{"whose second attempt failed too", "outcome", Stop, func(r *Records) {
			retried(r)
			second := triggered(2)
			second.Attempt = 2
			r.claim(0, second.Watermark())
			r.fail(0, second, "still no table")
		}, run + " failed: attempt 2 ended at " + seconds(triggered(2).Fire+1) + " with: still no table.", "retry", Retry},
		{"that was lost in a crash", "outcome", Stop, func(r *Records) {
			r.claim(0, triggered(2).Watermark())
			r.fail(0, triggered(2), due.CrashedRunError)
		}, run + " was lost: the session of its owner expired during attempt 1", "retry the run", Retry},
		{"that runs", "running", OK, func(r *Records) { r.run(0, triggered(2)) }, run + " runs on a, as attempt 1.", "", ""},
		{"that waits for a worker", "worker", Stop, func(r *Records) {
			r.run(0, triggered(2))
			r.editMember(incA, func(m *record.Member) {
				m.Waiting = map[string]record.Waiting{"job": {Shards: shardset.Of(0), Since: coordtest.At(5), Behind: "Workers 1"}}
			})
		}, run + " is claimed and waits for a worker of a", "sizing", ""},
		{"that is not claimed", "claimed", Stop, func(r *Records) { r.request(2) }, run + " has not run: a owns the shard and may claim the run, and has not yet.", "log of a", ""},
		{"behind another one", "ahead", Stop, func(r *Records) { r.request(1); r.request(2) }, run + " has not run: trigger 1 of", "wait", ""},
		{"without an owner", "owner", Stop, func(r *Records) { r.request(2); r.disown() }, run + " has not run: the shard has no owner yet", "leader", ""},
		{"of a paused job", "intent", Stop, func(r *Records) {
			r.request(2)
			r.Plan.Paused, r.Plan.Epochs[0].Until = true, coordtest.At(4)
		}, run + " has not run: the job is paused since " + seconds(coordtest.At(4)) + "; triggers wait for the resume.", "resume the job", Resume},
		{"of a paused job, whose retry waits", "intent", Stop, func(r *Records) {
			retried(r)
			r.Plan.Paused, r.Plan.Epochs[0].Until = true, coordtest.At(4)
		}, run + " failed and is to be retried, as attempt 2: the job is paused since " + seconds(coordtest.At(4)) + "; attempt 2 waits for the resume.", "resume the job", Resume},
		{"that failed, of a paused job", "outcome", Stop, func(r *Records) {
			failed(r)
			r.Plan.Paused, r.Plan.Epochs[0].Until = true, coordtest.At(4)
		}, "with: no such table. The job is paused since " + seconds(coordtest.At(4)) + ", so no further run of it begins.", "remove the cause, then resume the job, then retry the run", Resume},
		{"that failed, of a paused group", "outcome", Stop, func(r *Records) {
			failed(r)
			r.Plan.Paused, r.Plan.GroupPause = true, &record.OwnHold{}
		}, "with: no such table. All jobs of the group are paused, so no further run of it begins.", "remove the cause, then resume the group, then", ResumeGroup},
		{"that failed, of a disabled shard", "outcome", Stop, func(r *Records) {
			failed(r)
			r.Plan.Disabled = shardset.Of(0)
		}, "with: no such table. The shard is disabled, so no further run of it begins.", "remove the cause, then enable the shard, then retry the run", Enable},
		{"that failed, of a retiring job", "outcome", Stop, func(r *Records) {
			failed(r)
			r.Plan.Paused = true
			r.Control = &record.Control{Job: "job", Retiring: &record.Act{At: coordtest.At(3), By: "kim", Reason: "renamed"}}
		}, "with: no such table. The job is retiring since " + seconds(coordtest.At(3)) + " by kim (renamed), so no further run of it begins.", "to keep it: rota unretire job", ""},
		{"that succeeded, of a retiring job", "intent", Stop, func(r *Records) {
			r.claim(0, triggered(2).Watermark())
			r.Plan.Paused = true
			r.Control = &record.Control{Job: "job", Retiring: &record.Act{At: coordtest.At(3), By: "kim"}}
		}, "No fire can run: the job is retiring since " + seconds(coordtest.At(3)) + " by kim, so no run of it begins.", "rota unretire job", ""},
		{"of a paused group", "intent", Stop, func(r *Records) {
			r.request(2)
			r.Plan.Paused, r.Plan.GroupPause = true, &record.OwnHold{}
		}, run + " has not run: all jobs of the group are paused; triggers wait for the resume.", "resume the group", ResumeGroup},
		{"of a disabled shard", "intent", Stop, func(r *Records) { r.request(2); r.Plan.Disabled = shardset.Of(0) }, run + " has not run: the shard is disabled, and its triggers wait until it is enabled.", "enable the shard", Enable},
		{"of a stopped schedule", "claimed", Stop, func(r *Records) {
			r.request(2)
			r.Plan.Stopped, r.Plan.Epochs[0].Until = true, coordtest.At(4)
		}, run + " has not run: a owns the shard", "log of a", ""},
		{"that failed by a definition that is dropped", "outcome", Stop, func(r *Records) {
			failed(r)
			r.Plan.Epochs[0].Number = 2
		}, run + " failed: attempt 1", "retry", Retry},
		{
			"that has ended", "due", OK, func(r *Records) { r.claim(0, triggered(2).Watermark()) },
			"No fire: the job runs by triggers only; trigger 2 of the shard was claimed as attempt 1 and has ended, and no failure of it is on record.", "", "",
		},
		{"that followed a failed one", "due", OK, func(r *Records) {
			failed(r)
			r.claim(0, triggered(3).Watermark())
		}, "No fire: the job runs by triggers only; trigger 3 of the shard", "", ""},
		{"that there is none of", "due", Stop, func(*Records) {}, "No fire: the job runs by triggers only.", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := world(t)
			r.byTriggerOnly(t)
			c.change(r)
			a := Explain(*r, shardset.Of(0), 0)[0]
			last := a.Gates[len(a.Gates)-1]
			assert.Equal(t, c.gate, last.Name, "%+v", a)
			assert.Equal(t, c.verdict, last.Verdict, "%+v", a)
			assert.Equal(t, c.verdict == Stop, a.Stops)
			assert.Contains(t, a.Summary, c.summary)
			assert.Contains(t, a.Do, c.do)
			assert.Equal(t, c.verb, a.Verb)
			if strings.HasPrefix(c.summary, run) {
				assert.Equal(t, triggered(2).Fire, a.Fire, "rota retry needs it")
			}
		})
		covered[c.gate] = true
	}
	assert.True(t, covered["outcome"] && covered["retry"])
}

// The screen of all jobs counts a shard as failing whose last run was triggered and failed, whenever its last fire was.
func TestExplain_PrefersATriggeredRunThatFailedAfterTheFire(t *testing.T) {
	later := record.Ref{Epoch: 1, Fire: coordtest.At(5) + 1, Trigger: 2, Attempt: 1}
	world := func(t *testing.T) *Records {
		r := world(t)
		r.claim(0, coordtest.Fire(5, 1).Watermark())
		r.claim(0, later.Watermark())
		r.fail(0, later, "no such table")
		return r
	}
	t.Run("that succeeded", func(t *testing.T) {
		a := Explain(*world(t), shardset.Of(0), 0)[0]
		assert.Contains(t, a.Summary, "The run of trigger 2, of "+later.Fire.String()+", failed")
		assert.Equal(t, []any{Retry, later.Fire}, []any{a.Verb, a.Fire})
	})
	t.Run("and explains the fire if asked for it", func(t *testing.T) {
		a := Explain(*world(t), shardset.Of(0), coordtest.At(5))[0]
		assert.Contains(t, a.Summary, "The fire of "+coordtest.At(5).String()+" was run as attempt 1")
	})
	t.Run("and the run if asked for its instant", func(t *testing.T) {
		r := world(t)
		r.claim(0, coordtest.Fire(6, 1).Watermark())
		r.Now = coordtest.At(6).Add(time.Second)
		a := Explain(*r, shardset.Of(0), later.Fire)[0]
		assert.Contains(t, a.Summary, "The run of trigger 2, of "+later.Fire.String()+", failed")
		assert.Contains(t, Explain(*r, shardset.Of(0), 0)[0].Summary, "The fire of "+coordtest.At(6).String()+" succeeded", "the fire came later")
	})
	t.Run("but not to a fire that waits", func(t *testing.T) {
		r := world(t)
		r.Now = coordtest.At(6).Add(time.Second)
		assert.Contains(t, Explain(*r, shardset.Of(0), 0)[0].Summary, "The fire of "+coordtest.At(6).String()+" has not run")
	})
	t.Run("nor to a fire that failed", func(t *testing.T) {
		r := world(t)
		r.fail(0, coordtest.Fire(5, 1), "earlier")
		assert.Contains(t, Explain(*r, shardset.Of(0), 0)[0].Summary, "The fire of "+coordtest.At(5).String()+" failed")
	})
}

func TestExplain_NamesTheVerbThatHelps(t *testing.T) {
	at := coordtest.At
	for name, c := range map[string]struct {
		verb   Verb
		target string
		change func(*Records)
	}{
		"paused": {Resume, "", func(r *Records) { r.Plan.Paused, r.Plan.Epochs[0].Until = true, at(4)+1 }},
		"group": {ResumeGroup, "", func(r *Records) {
			r.Plan.Paused, r.Plan.GroupPause, r.Plan.Epochs[0].Until = true, &record.OwnHold{}, at(4)+1
		}},
		"stopped":  {Resume, "", func(r *Records) { r.Plan.Stopped, r.Plan.Epochs[0].Until = true, at(4)+1 }},
		"disabled": {Enable, "", func(r *Records) { r.Plan.Disabled = shardset.Of(0) }},
		"labels":   {"", "", func(r *Records) { r.disown(); r.Stored.RunOn = map[string]string{"gpu": "yes"} }},
		"awaited": {Disable, "a", func(r *Records) {
			r.expire(incA)
			r.editMember(incA, func(m *record.Member) { m.RestartGrace = record.Duration(time.Minute) })
		}},
		"behind a run":  {Cancel, "", func(r *Records) { r.run(0, coordtest.Fire(4, 1)) }},
		"skipped":       {Trigger, "", func(r *Records) { r.claim(0, record.Watermark{Epoch: 1, Fire: at(5)}) }},
		"claimed ahead": {Reset, "", (*Records).claimAhead},
		"failed": {Retry, "", func(r *Records) {
			r.claim(0, coordtest.Fire(5, 1).Watermark())
			r.fail(0, coordtest.Fire(5, 1), "no such table")
		}},
		"not claimed yet": {"", "", func(*Records) {}},
	} {
		t.Run(name, func(t *testing.T) {
			r := world(t)
			c.change(r)
			a := Explain(*r, shardset.Of(0), 0)[0]
			assert.True(t, a.Stops)
			assert.Equal(t, []string{string(c.verb), c.target}, []string{string(a.Verb), a.Target}, a.Summary)
		})
	}
}

func TestExplain_NamesWhoPaused(t *testing.T) {
	for _, c := range []struct {
		by   *record.Act
		want string
	}{
		{nil, "since " + seconds(coordtest.At(4)+1) + ";"},
		{&record.Act{}, "since " + seconds(coordtest.At(4)+1) + ";"},
		{&record.Act{By: "kim"}, " by kim;"},
		{&record.Act{Reason: "new tables"}, " (new tables);"},
		{&record.Act{By: "kim", Reason: "new tables"}, " by kim (new tables);"},
	} {
		r := world(t)
		r.Plan.Paused, r.Plan.Epochs[0].Until = true, coordtest.At(4)+1
		r.Control = &record.Control{Job: "job", Paused: true, Hold: record.Hold{HeldBy: c.by}}
		assert.Contains(t, Explain(*r, shardset.Of(0), 0)[0].Summary, c.want)
	}
}

func TestExplain_NamesWhoDisabled(t *testing.T) {
	by := record.Act{At: coordtest.At(3), By: "kim", Reason: "new disk"}
	since := "disabled since " + seconds(by.At) + " by kim (new disk)"
	act := func(what string) record.Acts {
		a := by
		a.What = what
		return record.Acts{{At: coordtest.At(1), What: "disable shards 0, instances a b, hosts host-a host-b"}, a, {At: coordtest.At(4), What: "resume"}}
	}
	both := []string{"a", "b"}
	for name, c := range map[string]struct {
		change      func(r *Records)
		summary, do string
	}{
		"instances": {func(r *Records) {
			r.disown()
			r.Group = record.GroupControl{Exclusion: record.Exclusion{Instances: both}, Acts: act("drain instance a").With(record.Act{What: "drain instance b"})}
		}, "none may own it (disabled: b; " + since + ": a)", "enable the instance or its host: rota undrain a, rota undrain b"},
		"hosts": {func(r *Records) {
			r.disown()
			r.Group = record.GroupControl{Exclusion: record.Exclusion{Hosts: []string{"host-a", "host-b"}}, Acts: act("disable hosts host-a host-b")}
		}, "(" + since + ": a, b)", "rota enable --host host-a, rota enable --host host-b"},
		"instances and hosts for the job": {func(r *Records) {
			r.disown()
			r.Control = &record.Control{Job: "job", Exclusion: record.Exclusion{Instances: []string{"a"}, Hosts: []string{"host-b"}}, Acts: act("disable instances a, hosts host-b")}
		}, "(" + since + ": a, b)", "rota enable job --host host-b, rota enable job --instance a"},
		"an instance, without an act on record": {func(r *Records) {
			r.disown()
			r.Group.Instances = both
		}, "(disabled: a, b)", "rota undrain a, rota undrain b"},
		"the owner": {func(r *Records) {
			r.Plan.Frozen = shardset.Of(0)
			r.Group = record.GroupControl{Exclusion: record.Exclusion{Instances: []string{"a"}}, Acts: act("drain instance a")}
		}, "it is to move from a, which is " + since + "; the leader", "wait"},
		"the shard": {func(r *Records) {
			r.Plan.Disabled = shardset.Of(0)
			r.Control = &record.Control{Job: "job", Disabled: shardset.Of(0), Acts: act("disable shards 0 3")}
		}, "the shard is " + since + ", and its owner skips its fires", "enable the shard"},
	} {
		t.Run(name, func(t *testing.T) {
			r := world(t)
			c.change(r)
			a := Explain(*r, shardset.Of(0), 0)[0]
			assert.Contains(t, a.Summary, c.summary)
			assert.Contains(t, a.Do, c.do)
		})
	}
	t.Run("each shard", func(t *testing.T) {
		r := world(t)
		r.Plan.Disabled = shardset.Of(0, 1, 2)
		r.Control = &record.Control{Job: "job", Disabled: r.Plan.Disabled, Acts: record.Acts{{At: 1, By: "kim", What: "disable shards 0 1 2"}, {At: 2, By: "lee", What: "disable shards 1"}}}
		var got []string
		for _, a := range Explain(*r, shardset.Range(0, 3), 0) {
			got = append(got, a.Shards.String()+a.Gates[len(a.Gates)-1].Detail)
		}
		require.Len(t, got, 2)
		assert.Contains(t, got[0], "0,2the shard is disabled since 1970-01-01T00:00:00Z by kim")
		assert.Contains(t, got[1], "1the shard is disabled since 1970-01-01T00:00:00Z by lee")
	})
}

func TestExplain_NamesWhatStopsTheFirstFire(t *testing.T) {
	r := world(t)
	r.Now, r.Claims = coordtest.Start.Add(time.Second), nil
	r.Plan.Paused, r.Plan.Epochs[0].Until = true, r.Now
	a := Explain(*r, shardset.Of(0), 0)[0]
	last := len(a.Gates) - 1
	assert.Equal(t, "intent", a.Gates[last].Name)
	assert.Equal(t, OK, a.Gates[last-1].Verdict)
	assert.Contains(t, a.Gates[last-1].Detail, "no fire is due; the next fire is at "+coordtest.At(1).String())
	assert.Contains(t, a.Summary, "No fire can run: the job is paused")
}

func TestExplain_MentionsALaterTrigger(t *testing.T) {
	failed := func(t *testing.T) *Records {
		r := world(t)
		r.claim(0, coordtest.Fire(5, 1).Watermark())
		r.fail(0, coordtest.Fire(5, 1), "no such table")
		return r
	}
	r := failed(t)
	r.claim(0, record.Watermark{Trigger: 3, TriggerAttempt: 1})
	a := Explain(*r, shardset.Of(0), 0)[0]
	assert.False(t, a.Stops)
	assert.Contains(t, a.Summary, "failed: attempt 1 ended")
	assert.Contains(t, a.Summary, "trigger 3 has run the shard again")

	r.fail(0, record.Ref{Epoch: 1, Fire: coordtest.At(5), Trigger: 3, Attempt: 1}, "still no table")
	assert.True(t, Explain(*r, shardset.Of(0), 0)[0].Stops, "the trigger has failed, too")
}

func TestExplain_GroupsEqualAnswers(t *testing.T) {
	shards := func(answers []Answer) (out []string) {
		for _, a := range answers {
			out = append(out, a.Shards.String())
		}
		return out
	}
	all := shardset.Range(0, 100)
	t.Run("of shards that differ in nothing", func(t *testing.T) {
		r := world(t)
		r.Plan.Owners = map[string]shardset.Set{incA: shardset.Range(0, 4)}
		assert.Equal(t, []string{"0-3"}, shards(Explain(*r, all, 0)))
	})
	t.Run("apart from shards that do", func(t *testing.T) {
		r := world(t)
		r.Plan.Disabled = shardset.Of(1, 2)
		r.run(3, coordtest.Fire(5, 1))
		assert.Equal(t, []string{"0", "1-2", "3"}, shards(Explain(*r, all, 0)))
	})
	t.Run("though records differ that the answers do not depend on", func(t *testing.T) {
		r := world(t)
		r.claim(1, coordtest.Fire(5, 1).Watermark())
		r.claim(0, coordtest.Fire(5, 1).Watermark())
		r.Plan.Frozen = shardset.Of(1)
		assert.Equal(t, []string{"0-1", "2-3"}, shards(Explain(*r, all, 0)))
	})
	t.Run("of 10,000 shards in few parts", func(t *testing.T) {
		r := world(t)
		e, err := record.NewEpoch(1, coordtest.Start, json.RawMessage(coordtest.Def("job", 0, 10_000, "")))
		require.NoError(t, err)
		r.Plan.Epochs, r.Claims = []record.Epoch{e}, nil
		r.Plan.Owners = map[string]shardset.Set{incA: shardset.Range(0, 5000), incB: shardset.Range(5000, 10_000)}
		r.derive()
		assert.Len(t, r.divide(shardset.Range(0, 10_000)), 2)
	})
}

// Each record that newSubject and the gates read of a single shard must divide shards.
func TestExplain_AnswersEachShardAsIfAlone(t *testing.T) {
	for _, c := range gateCases() {
		r := world(t)
		if c.change != nil {
			c.change(t, r)
		}
		var got []string
		for _, a := range Explain(*r, shardset.Range(0, 4), c.fire) {
			for range a.Shards.All() {
				got = append(got, a.Summary)
			}
		}
		var want []string
		for s := range 4 {
			for _, a := range Explain(*r, shardset.Of(s), c.fire) {
				want = append(want, a.Summary)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		assert.Equal(t, want, got, c.name)
	}
}

func TestExplain_OfAJobThatFollowsOthers(t *testing.T) {
	at := coordtest.At
	ended := func(n, failed, skipped int) record.EndedFire {
		return record.EndedFire{At: at(n), Shards: 3, Failed: failed, Skipped: skipped}
	}
	for _, c := range []struct {
		name     string
		schedule string
		change   func(r *Records, parent *record.Plan)
		gate     string
		verdict  Verdict
		detail   string
	}{
		{"released", "after job-a", func(r *Records, _ *record.Plan) {
			r.Plan.Epochs[0].Released = []record.Release{{At: at(5), Released: at(5) + 1}}
		}, "claimed", Stop, "a owns the shard and may claim the fire"},
		{"the followed fire has not ended", "after job-a", func(_ *Records, p *record.Plan) { p.Fires.Through, p.Fires.Ended = at(4), nil }, "due", Stop, `the job follows "job-a", of which the fire of that instant, or an earlier one, has not ended`},
		{"the followed fire failed", "after job-a", func(_ *Records, p *record.Plan) { p.Fires.Ended = []record.EndedFire{ended(5, 1, 1)} }, "due", Stop, `(on success): of 3 shards of "job-a", 1 failed and 1 did not run`},
		{"the followed fire failed, and that does not matter", "after-end job-a", func(_ *Records, p *record.Plan) { p.Fires.Ended = []record.EndedFire{ended(5, 1, 1)} }, "due", Stop, "the leader has not released it yet"},
		{"the followed fire did not fail", "after-failure job-a", nil, "due", Stop, "(on failure)"},
		{"there was no such fire", "after job-a", func(_ *Records, p *record.Plan) { p.Fires.Ended = []record.EndedFire{ended(4, 0, 0)} }, "due", Stop, "has no fire at that instant"},
		{"the followed job has no plan", "after job-a", func(r *Records, _ *record.Plan) { r.Followed = nil }, "claimed", Stop, ""},
		{"the ends are not on record any more", "after job-a", func(_ *Records, p *record.Plan) { p.Fires.Ended = []record.EndedFire{ended(6, 0, 0)} }, "claimed", Stop, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := world(t)
			more := `,"schedule":"` + c.schedule + `"`
			r.Plan.Epochs[0] = epoch(t, 1, coordtest.Start, more)
			r.Compile = func(json.RawMessage) (due.Program, error) { return coordtest.Following{}, nil }
			parent := &record.Plan{Job: "job-a", Fires: &record.Fires{Through: at(5), Ended: []record.EndedFire{ended(5, 0, 0)}}}
			r.Followed = map[string]*record.Plan{"job-a": parent}
			if c.change != nil {
				c.change(r, parent)
			}
			a := Explain(*r, shardset.Of(0), at(5))[0]
			last := a.Gates[len(a.Gates)-1]
			if c.detail == "" {
				i := slices.IndexFunc(a.Gates, func(g Gate) bool { return g.Name == "due" })
				require.GreaterOrEqual(t, i, 0)
				assert.Equal(t, Unknown, a.Gates[i].Verdict)
				return
			}
			assert.Equal(t, c.gate, last.Name, "%+v", a)
			assert.Equal(t, c.verdict, last.Verdict)
			assert.Contains(t, last.Detail, c.detail)
		})
	}
}

func TestExplain_DoesNotKnowWhetherFiresOfAnUnknownDefinitionGoFirst(t *testing.T) {
	r := world(t)
	r.Plan.Epochs[0].Until = coordtest.At(5)
	r.Plan.Epochs = append(r.Plan.Epochs, epoch(t, 2, coordtest.At(5), ""))
	r.Compile = func(json.RawMessage) (due.Program, error) { return nil, errors.New("not known") }
	unknown := Gate{"ahead", Unknown, "fires of revision 0, an earlier definition whose schedule is not known here, may go first"}
	assert.Contains(t, Explain(*r, shardset.Of(0), coordtest.At(5))[0].Gates, unknown)
	r.Now = coordtest.At(6)
	r.claim(0, record.Watermark{Epoch: 2, Fire: coordtest.At(5), Attempt: 1})
	assert.NotContains(t, Explain(*r, shardset.Of(0), coordtest.At(6))[0].Gates, unknown, "they have been claimed")
}

func TestExplain_WithoutACompiler(t *testing.T) {
	r := world(t)
	r.Compile = func(json.RawMessage) (due.Program, error) { return nil, errors.New("not known") }
	a := Explain(*r, shardset.Of(0), coordtest.At(5))[0]
	i := slices.IndexFunc(a.Gates, func(g Gate) bool { return g.Name == "due" })
	assert.Equal(t, Unknown, a.Gates[i].Verdict)
	assert.Contains(t, a.Gates[i].Detail, "is not known here")
	r.Plan.Paused = true
	assert.Contains(t, Explain(*r, shardset.Of(0), coordtest.At(5))[0].Summary, "paused", "gates after it are checked all the same")
	assert.Equal(t, coordtest.At(4), Explain(*r, shardset.Of(0), 0)[0].Fire, "the newest fire is that of the watermark")
}

// Triggers run in the order of their numbers, so a later one never holds up an earlier one.
func TestExplain_LaterTriggersDoNotGoFirst(t *testing.T) {
	r := world(t)
	r.byTriggerOnly(t)
	r.request(3)
	r.request(5)
	r.Plan.Triggers[1].At += record.Instant(time.Second)
	for asked, want := range map[record.Instant]Gate{
		r.Plan.Triggers[0].At: {"ahead", OK, "no run, re-run or trigger of the shard goes first"},
		r.Plan.Triggers[1].At: {"ahead", Stop, "trigger 3 of " + seconds(r.Plan.Triggers[0].At) + " goes first"},
	} {
		answers := Explain(*r, shardset.Of(0), asked)
		require.Len(t, answers, 1)
		assert.Contains(t, answers[0].Gates, want)
	}
}

// Without a leader no text promises an act of one.
func TestExplain_WithoutALeader(t *testing.T) {
	promises := regexp.MustCompile(`the leader (has|is|will|deletes|moves)|wait for the (leader|failover)|leader's log|look at its log`)
	for _, c := range gateCases() {
		r := world(t)
		if c.change != nil {
			c.change(t, r)
		}
		r.Leader, r.Term = "", 0
		for _, a := range Explain(*r, shardset.Range(0, 4), c.fire) {
			text := a.Summary + " | " + a.Do
			for _, g := range a.Gates {
				text += " | " + g.Detail
			}
			assert.NotRegexp(t, promises, text, c.name)
		}
	}
}
